//! Chapter 9: a function that holds the lock calls another function that takes it.

use crate::stage::State::{Holds, Idle};
use crate::stage::{Stage, Verdict, given, lockson_held, mended, ms};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 9, recipe: "nested calls with 6", source: include_str!("hash_lock.rs"), play };

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("The inner call waits for the lock of its own caller", &["A"]);
    let waited = nested(stage, "guard-thread")?;
    let (tries, after) = waited.ok_or("the failure did not happen: the inner call had the lock")?;
    stage.seen(&format!("A tried {tries} times in {after} ms to take what A itself held and extended"));

    stage.mend("a hash with the owner and a count", &["A"]);
    let waited = nested(stage, "hash")?;
    stage.seen("the inner call raises the count, and the last release deletes the lock");
    mended(waited.is_none() && stage.time_to_live("lock")? == -2, "the inner call waits, or a lock is left")?;

    stage.lockson("nested calls", &["A"]);
    let waited = nested(stage, "lockson")?;
    stage.seen("the thread that holds may take the lock again; the same hash");
    lockson_held(waited.is_none() && stage.time_to_live("lock")? == -2, "the inner call waits, or a lock is left")?;
    Ok(Verdict {
        failure: format!("waits for itself: {tries} tries in {after} ms"),
        lockson: "taken twice, free at the end".into(),
    })
}

/// A takes the lock within the lock; returns tries and time if that was in vain.
fn nested(stage: &mut Stage, role: &str) -> Outcome<Option<(u64, u128)>> {
    let mut a = stage.process("A", role)?;
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock", &[("A", Holds)]);
    let inner = a.lock_within(ms(2_000))?;
    let waited = (!inner.held).then_some((inner.tries, inner.after.as_millis()));
    if inner.held {
        stage.step("an inner function of A takes the lock", &[]);
        given(a.unlock()? == "released", "the inner hold is released")?;
        stage.step("the inner function releases", &[]);
    } else {
        stage.step("an inner function of A tries, and gives up", &[]);
    }
    given(a.unlock()? == "released", "the outer hold is released")?;
    stage.step("A releases", &[("A", Idle)]);
    Ok(waited)
}
