//! Chapter 10: a lost answer, and a count that is one too high.

use lockson_harness::proxy::{Then, When};

use crate::actor::{Actor, Part};
use crate::hash_lock;
use crate::stage::State::{Holds, Idle, Waits};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held, ms};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 10, recipe: "9 with one lost answer", source: include_str!("chapter_10.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult};

/// The take of chapter 9, asked again over a new connection when the connection broke.
fn lock(client: &redis::Client, redis: &mut Connection, me: &str) -> RedisResult<bool> {
    hash_lock::lock(redis, "lock", me, 3_000).or_else(|_| {
        *redis = client.get_connection()?;
        hash_lock::lock(redis, "lock", me, 3_000)
    })
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("The repeated take counts twice, and the lock stays behind", &["A", "B"]);
    let seen = lost_answer(stage, "hash-repeated")?;
    stage.seen(&format!(
        "count {} for one hold; after its release the lock blocked B for {} ms more",
        seen.count, seen.blocked
    ));
    failed_as_expected(seen.count == 2 && seen.blocked > 500, "the count is right")?;

    stage.lockson("the answer to the take is lost", &["A", "B"]);
    let sure = lost_answer(stage, "lockson")?;
    stage.seen(&format!(
        "count {} for one hold; B had the lock {} ms after the release. Lockson ends the first connection at the server \
         (CLIENT KILL), so that its request has run or never will, and then asks again for the same owner, with an \
         absolute count",
        sure.count, sure.blocked
    ));
    lockson_held(sure.count == 1 && sure.blocked < seen.blocked / 2, "a lock was left behind")?;
    Ok(Verdict {
        failure: format!("count {}, a lock nobody has for {} ms", seen.count, seen.blocked),
        lockson: format!("count {}, free at once", sure.count),
    })
}

struct Seen {
    count: i64,
    /// For how long B waited after the release of A.
    blocked: u128,
}

fn lost_answer(stage: &mut Stage, role: &str) -> Outcome<Seen> {
    let (mut a, mut b) = (stage.process("A", role)?, stage.process("B", role)?);
    stage.start_clock();
    let rule = a.proxy.rule(When::script(), Then::CutReplyAfter(0));
    given(a.lock()?, "the lock is free")?;
    given(rule.hits() == 1, "an answer was lost")?;
    stage.step("A takes, the answer is lost, and A asks again", &[("A", Holds)]);
    let counts: Vec<i64> = redis::cmd("HVALS").arg("lock").query(&mut stage.redis())?;
    given(a.unlock()? == "released", "A releases")?;
    stage.step("A releases once, as it took once", &[("A", Idle), ("B", Waits)]);
    let tried = b.lock_within(ms(5_000))?;
    stage.step("B has the lock", &[("B", Holds)]);
    given(tried.held, "the lock ends")?;
    Ok(Seen { count: counts.iter().sum(), blocked: tried.after.as_millis() })
}

pub(crate) struct Process {
    client: redis::Client,
    redis: Connection,
    me: String,
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        let client = redis::Client::open(part.url.as_str())?;
        let mut redis = client.get_connection()?;
        hash_lock::warm_up(&mut redis)?;
        Ok(Self { client, redis, me: part.name.clone() })
    }
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        Ok(lock(&self.client, &mut self.redis, &self.me)?)
    }

    fn unlock(&mut self) -> Outcome<bool> {
        Ok(hash_lock::unlock(&mut self.redis, "lock", &self.me)?)
    }

    fn value(&self) -> String {
        self.me.clone()
    }
}
