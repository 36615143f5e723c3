//! Chapter 1: a lock without an end.

use crate::actor::{Part, Recipe};
use crate::stage::State::{Dead, Holds, Waits};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held, ms};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 1, recipe: "SETNX, DEL", source: include_str!("chapter_01.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult, TypedCommands};

fn lock(redis: &mut Connection) -> RedisResult<bool> {
    redis.set_nx("lock", "taken")
}

fn unlock(redis: &mut Connection) -> RedisResult<()> {
    redis.del("lock")?;
    Ok(())
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("The holder is killed, and the lock stays for ever", &["A", "B"]);
    let (tries, _) = killed_holder(stage, "setnx")?;
    let left = stage.time_to_live("lock")?;
    stage.seen(&format!("B tried {tries} times in vain, and the key has no time to live: PTTL answers {left}"));
    failed_as_expected(left == -1, "the lock has a time to live")?;

    stage.lockson("the holder is killed", &["A", "B"]);
    let (_, after) = killed_holder(stage, "lockson")?;
    let after = after.ok_or("Lockson did not hold: the lock of a dead holder stayed")?;
    stage.seen(&format!("the lock of a dead holder ended by itself, and B had it {after} ms later (30 s by default)"));
    lockson_held(stage.time_to_live("lock")? > 0, "the lock of B has no time to live")?;
    Ok(Verdict {
        failure: format!("holder killed: locked for ever, {tries} tries in vain"),
        lockson: format!("free {after} ms after the kill"),
    })
}

/// A takes the lock and is killed; returns the tries of B, and how long after the kill B had the lock.
fn killed_holder(stage: &mut Stage, role: &str) -> Outcome<(u64, Option<u128>)> {
    let (mut a, mut b) = (stage.process("A", role)?, stage.process("B", role)?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock", &[("A", Holds)]);
    a.kill();
    stage.step("A is killed (SIGKILL)", &[("A", Dead), ("B", Waits)]);
    let waited = b.lock_within(ms(3_000))?;
    if waited.held {
        stage.step("B has the lock", &[("B", Holds)]);
    } else {
        stage.step(&format!("B has tried {} times", waited.tries), &[]);
    }
    Ok((waited.tries, waited.held.then_some(waited.after.as_millis())))
}

/// Every process writes the same value.
pub(crate) fn process(part: &Part) -> Outcome<Recipe> {
    Ok(Recipe {
        redis: part.connect()?,
        value: String::new(),
        lock: |redis, _| lock(redis),
        unlock: |redis, _| unlock(redis).map(|()| true),
    })
}
