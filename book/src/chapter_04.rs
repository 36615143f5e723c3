//! Chapter 4: a release that deletes the lock of any holder.

use crate::actor::{Part, Recipe};
use crate::stage::State::{Holds, Idle};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 4, recipe: "SET NX PX, DEL", source: include_str!("chapter_04.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult, TypedCommands};

fn lock(redis: &mut Connection) -> RedisResult<bool> {
    let mut set = redis::cmd("SET");
    set.arg("lock").arg("taken").arg("NX").arg("PX").arg(1_000);
    Ok(set.query::<Option<String>>(redis)?.is_some())
}

fn unlock(redis: &mut Connection) -> RedisResult<()> {
    redis.del("lock")?;
    Ok(())
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("A late holder deletes the lock of its successor", &["A", "B", "C"]);
    let seen = late_release(stage, "set-nx-px", &[])?;
    stage.seen("B and C both hold; B has not done anything wrong");
    failed_as_expected(seen.answer == "released" && seen.third_got_in, "the lock of B survived")?;

    stage.lockson("the same, with a lease of one second for A", &["A", "B", "C"]);
    let seen = late_release(stage, "lockson", &["lease=1000".into()])?;
    stage.seen("the release of A found no lock of its own, said so, and left the lock of B alone");
    lockson_held(seen.answer == "not mine" && !seen.third_got_in, "the lock of B was deleted")?;
    Ok(Verdict {
        failure: "late release deleted another's lock: 2 holders".into(),
        lockson: "late release says Lost, 1 holder".into(),
    })
}

struct Seen {
    answer: String,
    third_got_in: bool,
}

fn late_release(stage: &mut Stage, role: &str, options: &[String]) -> Outcome<Seen> {
    let mut a = stage.process_with("A", role, options)?;
    let (mut b, mut c) = (stage.process("B", role)?, stage.process("C", role)?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock and works", &[("A", Holds)]);
    stage.wait_until_expired("lock");
    if role == "lockson" {
        let held = a.ask("look")?;
        stage.step(&format!("the lease is over; is_held() of A says {held}"), &[("A", Idle)]);
        lockson_held(held == "false", "A believes that it holds")?;
    } else {
        stage.step("the time to live is over; A still works", &[]);
    }
    given(b.lock()?, "the lock is free again")?;
    stage.step("B takes the lock", &[("B", Holds)]);
    let answer = a.unlock()?;
    stage.step(&format!("A is done and releases: {answer}"), &[("A", Idle)]);
    let third_got_in = stage.third_tries(&mut c)?;
    Ok(Seen { answer, third_got_in })
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
