//! Chapter 3: a time to live in a second command.

use lockson_harness::proxy::When;

use crate::actor::{Actor, Part};
use crate::stage::State::{Dead, Holds, Stopped, Waits};
use crate::stage::{Stage, Verdict, failed_as_expected, lockson_held, mended, ms};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 3, recipe: "SETNX, then EXPIRE", source: include_str!("chapter_03.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult, TypedCommands};

fn lock(redis: &mut Connection) -> RedisResult<bool> {
    let held = redis.set_nx("lock", "taken")?;
    if held {
        redis.expire("lock", 1)?;
    }
    Ok(held)
}

/// The lock of waiters that repair a missing time to live.
fn lock_or_repair(redis: &mut Connection) -> RedisResult<bool> {
    let held = lock(redis)?;
    if !held && redis::cmd("TTL").arg("lock").query::<i64>(redis)? == -1 {
        redis.expire("lock", 1)?;
    }
    Ok(held)
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("The holder is killed between the two commands", &["A", "B"]);
    let tried = killed_in_between(stage, "expire", When::command("SETNX"), &[])?;
    let left = stage.time_to_live("lock")?;
    stage.seen(&format!("locked for ever: PTTL answers {left} after {} tries of B", tried.tries));
    failed_as_expected(!tried.held && left == -1, "the lock ends")?;

    stage.mend("waiters repair a missing time to live", &["A", "B"]);
    let repaired = killed_in_between(stage, "expire", When::command("SETNX"), &["repair=1".into()])?;
    let cost = format!("{} tries of B cost {} requests", repaired.tries, repaired.requests);
    stage.seen(&format!("B had the lock, a whole time to live after its first try; {cost}"));
    mended(repaired.held, "the lock never ends")?;

    stage.lockson("the holder is killed before it has the answer to its take", &["A", "B"]);
    let seen = killed_in_between(stage, "lockson", When::script(), &[])?;
    stage.seen(&format!("B had the lock after {} ms and {} requests", seen.after, seen.requests));
    lockson_held(seen.held, "the lock of a dead holder stayed")?;
    Ok(Verdict {
        failure: format!("killed in between: locked for ever; repair: {} requests", repaired.requests),
        lockson: format!("free {} ms after the kill, {} requests", seen.after, seen.requests),
    })
}

struct Seen {
    held: bool,
    after: u128,
    tries: u64,
    requests: usize,
}

/// A is killed when Redis has carried out its first command.
fn killed_in_between(stage: &mut Stage, role: &str, first: When, options: &[String]) -> Outcome<Seen> {
    let (mut a, mut b) = (stage.process("A", role)?, stage.process_with("B", role, options)?);
    stage.start_clock();
    let _pause = a.tell_and_stop_after("lock", first);
    stage.step("A has sent its first command", &[("A", Stopped)]);
    a.kill();
    stage.step("A is killed before it sends another command", &[("A", Dead), ("B", Waits)]);
    let before = b.proxy.mark();
    let tried = b.lock_within(ms(3_000))?;
    let requests = b.proxy.fitting_since(before, &When::any()).len();
    if tried.held {
        stage.step("B has the lock", &[("B", Holds)]);
    } else {
        stage.step(&format!("B has tried {} times", tried.tries), &[]);
    }
    Ok(Seen { held: tried.held, after: tried.after.as_millis(), tries: tried.tries, requests })
}

pub(crate) struct Process {
    redis: Connection,
    repairs: bool,
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        Ok(Self { redis: part.connect()?, repairs: part.option("repair").is_some() })
    }
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        Ok(if self.repairs { lock_or_repair(&mut self.redis)? } else { lock(&mut self.redis)? })
    }

    fn unlock(&mut self) -> Outcome<bool> {
        self.redis.del("lock")?;
        Ok(true)
    }

    fn value(&self) -> String {
        String::new() // every process writes the same
    }
}
