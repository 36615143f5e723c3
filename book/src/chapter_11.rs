//! Chapter 11: a holder that is stopped, and writes when it goes on.

use std::time::Duration;

use lockson::{ACCEPT_IF_NOT_OLDER, Client, FencingToken, Guard};

use crate::actor::{Actor, Part};
use crate::hash_lock;
use crate::process::Process as Child;
use crate::redis_view::View;
use crate::stage::State::{Holds, Idle, Stopped};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held};
use crate::with_lockson::client;
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 11, recipe: "9 with a paused holder", source: include_str!("chapter_11.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult, TypedCommands};

/// Reads the account under the lock of chapter 9; the deposit is computed and written later.
fn read(redis: &mut Connection) -> RedisResult<i64> {
    Ok(redis.get_int("account")?.unwrap_or(0) as i64)
}

fn write(redis: &mut Connection, balance: i64) -> RedisResult<()> {
    redis.set("account", balance)
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    let views =
        vec![View::new("Redis", stage.server.url(), "lock"), View::of_data("account", stage.server.url(), "account")];
    stage.watch(views);
    stage.failure("A stopped holder goes on and overwrites the work of its successor", &["A", "B"]);
    let (mut a, mut b) = begin(stage, "account")?;
    a.stop();
    stage.step("A reads 100, and is stopped", &[("A", Stopped)]);
    successor(stage, &mut b)?;
    a.resume();
    a.ask("deposit 10")?;
    stage.step("A goes on and writes 100 + 10", &[("A", Holds)]);
    let balance = balance(stage)?;
    stage.seen(&format!("the account has {balance} instead of 160: the deposit of B is lost"));
    failed_as_expected(balance == 110, "the deposit of B is there")?;
    drop((a, b));

    stage.lockson("A asks is_held() before it writes", &["A", "B"]);
    let (mut a, mut b) = begin(stage, "account-lockson")?;
    a.stop();
    stage.step("A reads 100, and is stopped", &[("A", Stopped)]);
    successor(stage, &mut b)?;
    a.resume();
    let held = a.ask("look")?;
    stage.step(&format!("A goes on; is_held() says {held}"), &[("A", Idle)]);
    let balance_by_deadline = self::balance(stage)?;
    lockson_held(held == "false" && balance_by_deadline == 150, "A believes that it holds")?;
    drop((a, b));

    stage.lockson("A is stopped after is_held(): the store refuses an older token", &["A", "B"]);
    let (mut a, mut b) = begin(stage, "account-lockson")?;
    let held = a.ask("look")?;
    a.stop();
    stage.step(&format!("A reads 100, is_held() says {held}, A is stopped"), &[("A", Stopped)]);
    successor(stage, &mut b)?;
    a.resume();
    let answer = a.ask("deposit 10")?;
    stage.step(&format!("A goes on and writes 100 + 10: {answer}"), &[("A", Idle)]);
    let balance = self::balance(stage)?;
    stage.seen(&format!(
        "A knew of its loss when it asked; when it did not ask, the store refused its token. The account has {balance}, \
         and A can begin again"
    ));
    lockson_held(held == "true" && answer == "refused" && balance == 150, "a late write was accepted")?;
    Ok(Verdict {
        failure: "late write: a deposit of 50 is lost".into(),
        lockson: "late write refused by its token".into(),
    })
}

/// A holds the lock and has read the account.
fn begin(stage: &mut Stage, role: &str) -> Outcome<(Child, Child)> {
    let (mut a, b) = (stage.process_with("A", role, &["lease=1000".into()])?, stage.process("B", role)?);
    redis::cmd("SET").arg("account").arg(100).exec(&mut stage.redis())?;
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    a.ask("read")?;
    stage.step("A takes the lock", &[("A", Holds)]);
    Ok((a, b))
}

fn successor(stage: &mut Stage, b: &mut Child) -> Outcome<()> {
    stage.wait_until_expired("lock");
    given(b.lock()?, "the lock is free again")?;
    b.ask("read")?;
    b.ask("deposit 50")?;
    stage.step("B takes the lock and writes 100 + 50", &[("B", Holds)]);
    Ok(())
}

fn balance(stage: &Stage) -> Outcome<i64> {
    Ok(redis::cmd("GET").arg("account").query(&mut stage.redis())?)
}

pub(crate) struct Process {
    redis: Connection,
    me: String,
    seen: i64,
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        Ok(Self { redis: part.connect()?, me: part.name.clone(), seen: 0 })
    }
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        Ok(hash_lock::lock(&mut self.redis, "lock", &self.me, 1_000)?)
    }

    fn unlock(&mut self) -> Outcome<bool> {
        Ok(hash_lock::unlock(&mut self.redis, "lock", &self.me)?)
    }

    fn value(&self) -> String {
        self.me.clone()
    }

    fn perform(&mut self, what: &str) -> Outcome<String> {
        if let Some(amount) = what.strip_prefix("deposit ") {
            write(&mut self.redis, self.seen + amount.parse::<i64>()?)?;
            return Ok("written".into());
        }
        self.seen = read(&mut self.redis)?;
        Ok(self.seen.to_string())
    }
}

/// The same with a fenced lock, and an account that refuses an older token.
pub(crate) struct WithToken {
    client: Client,
    redis: Connection,
    guard: Option<Guard<FencingToken>>,
    lease: Option<Duration>,
    seen: i64,
}

impl WithToken {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        let lease = part.number("lease")?.map(|lease| Duration::from_millis(lease.unsigned_abs()));
        Ok(Self { client: client(&part.url)?, redis: part.connect()?, guard: None, lease, seen: 0 })
    }
}

impl Actor for WithToken {
    fn lock(&mut self) -> Outcome<bool> {
        let lock = self.client.get_fenced_lock("lock");
        let lock = self.lease.map_or(lock.clone(), |lease| lock.with_lease(lease));
        self.guard = lock.try_lock()?;
        Ok(self.guard.is_some())
    }

    fn unlock(&mut self) -> Outcome<bool> {
        Ok(self.guard.take().ok_or("not held")?.unlock().is_ok())
    }

    fn value(&self) -> String {
        self.guard.as_ref().map_or_else(String::new, |guard| guard.owner().to_owned())
    }

    fn perform(&mut self, what: &str) -> Outcome<String> {
        let guard = self.guard.as_ref().ok_or("not held")?;
        if what == "look" {
            return Ok(guard.is_held().to_string());
        }
        if let Some(amount) = what.strip_prefix("deposit ") {
            let script = redis::Script::new(ACCEPT_IF_NOT_OLDER);
            let mut call = script.key("account:newest-token");
            let balance = self.seen + amount.parse::<i64>()?;
            let is_written = call.key("account").arg(guard.token().value()).arg(balance).invoke(&mut self.redis)?;
            return Ok(if is_written { "written".into() } else { "refused".into() });
        }
        self.seen = read(&mut self.redis)?;
        Ok(self.seen.to_string())
    }
}
