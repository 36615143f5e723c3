//! Chapter 2: the time of the end as the value, by the clock of the client.

use lockson_harness::eventually;
use lockson_harness::proxy::When;

use crate::actor::{Actor, Part};
use crate::process::BOUND;
use crate::redis_view::now;
use crate::stage::State::{Dead, Holds, Idle, Stopped, Waits};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held, ms};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 2, recipe: "SETNX with the end as value, GETSET", source: include_str!("chapter_02.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult, TypedCommands};

/// Takes the lock for two seconds; `now` is the time of this machine in milliseconds.
fn lock(redis: &mut Connection, now: i64) -> RedisResult<(bool, i64)> {
    let mine = now + 2_000;
    if redis.set_nx("lock", mine)? {
        return Ok((true, mine));
    }
    let is_over = |end: Option<String>| end.and_then(|end| end.parse().ok()).is_none_or(|end: i64| end < now);
    if !is_over(redis.get("lock")?) {
        return Ok((false, mine)); // another process holds the lock
    }
    // The holder must be dead. The process that replaces the old end first has the lock.
    Ok((is_over(redis.getset("lock", mine)?), mine))
}

fn unlock(redis: &mut Connection, mine: i64) -> RedisResult<bool> {
    let is_mine = redis.get("lock")? == Some(mine.to_string());
    if is_mine {
        redis.del("lock")?;
    }
    Ok(is_mine)
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("Two takers at once: the loser overwrites the value of the winner", &["A", "B", "C"]);
    let blocked = two_takers(stage)?;
    stage.seen(&format!("A could not release what it held, and the lock was blocked for {blocked} ms more"));

    stage.failure("A clock that is 10 s ahead takes a live lock", &["A", "B"]);
    let (mut a, mut b) = (stage.process("A", "getset")?, stage.process_with("B", "getset", &["clock=10000".into()])?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock", &[("A", Holds)]);
    failed_as_expected(b.lock()?, "a fast clock takes no lock")?;
    stage.step("B, whose clock is 10 s ahead, takes the lock", &[("B", Holds)]);
    stage.seen("two holders at once, although A had nearly 2 s left");
    drop((a, b));

    stage.lockson("the holder is dead, and two processes wait; then one asks for a live lock", &["A", "B", "C"]);
    let next = two_waiters(stage)?;
    let (mut a, mut b) = (stage.process("A", "lockson")?, stage.process("B", "lockson")?);
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock", &[("A", Holds)]);
    let refused = !b.lock()?;
    stage.step("B is refused, whatever its clock says", &[]);
    stage.seen(&format!(
        "one holder at a time; the next had the lock {next} ms after the release. The server alone counts the \
         time to live; Lockson reads no time of day, so there is no clock to set forward"
    ));
    lockson_held(refused, "two holders")?;
    Ok(Verdict {
        failure: format!("release impossible, {blocked} ms blocked; fast clock: 2 holders"),
        lockson: "1 holder, no client clock".into(),
    })
}

/// Two takers see the same dead holder. Returns for how long the lock was taken after its holder was done.
fn two_takers(stage: &mut Stage) -> Outcome<u128> {
    let (mut a, mut b, mut c) =
        (stage.process("A", "getset")?, stage.process("B", "getset")?, stage.process("C", "getset")?);
    given(c.lock()?, "the lock is free")?;
    c.kill();
    let end: i64 = redis::cmd("GET").arg("lock").query(&mut stage.redis())?;
    eventually(BOUND, "the end of C has passed", || now() > end);
    stage.start_clock();
    stage.step("C was killed while it held; its time is over", &[("C", Dead)]);
    let pause = b.tell_and_stop_after("lock", When::command("GET"));
    stage.step("B reads the old end, and is stopped", &[("B", Stopped)]);
    // Two values of one millisecond would be equal.
    let stopped_at = now();
    eventually(BOUND, "a later millisecond", || now() > stopped_at);
    given(a.lock()?, "A takes over")?;
    stage.step("A takes over by GETSET", &[("A", Holds)]);
    b.go_on(pause);
    let got = b.tried()?.held;
    stage.step("B goes on: GETSET says that B was too late", &[("B", Waits)]);
    let released = a.unlock()?;
    stage.step("A releases: the value is not its own", &[("A", Idle)]);
    failed_as_expected(!got && released == "not mine", "A knows its lock")?;
    let waited = b.lock_within(ms(5_000))?;
    stage.step("B has the lock", &[("B", Holds)]);
    failed_as_expected(waited.held && waited.after > ms(300), "B waits")?;
    Ok(waited.after.as_millis())
}

/// Two waiters for the lock of a dead holder; returns how long after the release of the first the second had the lock.
fn two_waiters(stage: &mut Stage) -> Outcome<u128> {
    let (mut first, mut second) = (stage.process("A", "lockson")?, stage.process("B", "lockson")?);
    let mut c = stage.process("C", "lockson")?;
    given(c.lock()?, "the lock is free")?;
    c.kill();
    stage.start_clock();
    stage.step("C was killed while it held", &[("C", Dead), ("A", Waits), ("B", Waits)]);
    first.tell("lock 10000");
    second.tell("lock 10000");
    while !first.has_answered() {
        std::mem::swap(&mut first, &mut second);
    }
    (first.name, second.name) = ("A".into(), "B".into());
    lockson_held(first.tried()?.held && !second.has_answered(), "two holders")?;
    stage.step("A, the faster of the two, has the lock; B waits", &[("A", Holds)]);
    let began = std::time::Instant::now();
    lockson_held(first.unlock()? == "released", "the holder could not release")?;
    lockson_held(second.tried()?.held, "the second waiter holds")?;
    let took = began.elapsed().as_millis();
    stage.step("A releases, and B has the lock", &[("A", Idle), ("B", Holds)]);
    lockson_held(second.unlock()? == "released", "the holder could not release")?;
    stage.step("B releases", &[("B", Idle)]);
    Ok(took)
}

pub(crate) struct Process {
    redis: Connection,
    /// By how much the clock of this machine is ahead.
    ahead: i64,
    mine: i64,
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        Ok(Self { redis: part.connect()?, ahead: part.number("clock")?.unwrap_or(0), mine: 0 })
    }
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        let (held, mine) = lock(&mut self.redis, now() + self.ahead)?;
        self.mine = mine;
        Ok(held)
    }

    fn unlock(&mut self) -> Outcome<bool> {
        Ok(unlock(&mut self.redis, self.mine)?)
    }

    fn value(&self) -> String {
        self.mine.to_string()
    }
}
