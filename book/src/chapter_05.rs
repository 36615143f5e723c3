//! Chapter 5: a value of its own, and a gap between check and delete.

use lockson_harness::proxy::When;

use crate::actor::{Part, Recipe};
use crate::process::{Pause, Process as Child};
use crate::stage::State::{Holds, Idle, Stopped};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 5, recipe: "own value: GET, compare, DEL", source: include_str!("chapter_05.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult, TypedCommands};

/// `me` is a value that no other process has, such as a UUID.
pub(crate) fn lock(redis: &mut Connection, me: &str) -> RedisResult<bool> {
    let mut set = redis::cmd("SET");
    set.arg("lock").arg(me).arg("NX").arg("PX").arg(1_000);
    Ok(set.query::<Option<String>>(redis)?.is_some())
}

fn unlock(redis: &mut Connection, me: &str) -> RedisResult<bool> {
    let is_mine = redis.get("lock")?.as_deref() == Some(me);
    if is_mine {
        redis.del("lock")?;
    }
    Ok(is_mine)
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("A process is stopped between the check and the delete", &["A", "B", "C"]);
    let after_check = |a: &mut Child| a.tell_and_stop_after("unlock", When::command("GET"));
    let seen =
        stopped_release(stage, "own-value", &[], "A releases: GET says that it is its own; A is stopped", after_check)?;
    stage.seen("the DEL of A came one time to live late and deleted the lock of B: B and C both hold");
    failed_as_expected(seen.answer == "released" && seen.third_got_in, "the lock of B survived")?;

    stage.lockson("a process is stopped in the middle of its release", &["A", "B", "C"]);
    let before_release = |a: &mut Child| a.tell_and_stop_before("unlock", When::script());
    let lease = ["lease=1000".into()];
    let seen =
        stopped_release(stage, "lockson", &lease, "A releases; A is stopped, its request is late", before_release)?;
    stage.seen("the release is one request that compares and deletes in one step; late, it found nothing of its own");
    lockson_held(seen.answer == "not mine" && !seen.third_got_in, "the lock of B was deleted")?;
    Ok(Verdict {
        failure: "stopped between check and delete: 2 holders".into(),
        lockson: "late release found nothing, 1 holder".into(),
    })
}

pub(crate) struct Seen {
    pub(crate) answer: String,
    pub(crate) third_got_in: bool,
}

/// A is stopped in the middle of its release until B has the lock; then C tries.
pub(crate) fn stopped_release(
    stage: &mut Stage,
    role: &str,
    options: &[String],
    words: &str,
    stop: impl Fn(&mut Child) -> Pause,
) -> Outcome<Seen> {
    let mut a = stage.process_with("A", role, options)?;
    let (mut b, mut c) = (stage.process("B", role)?, stage.process("C", role)?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock", &[("A", Holds)]);
    let pause = stop(&mut a);
    stage.step(words, &[("A", Stopped)]);
    stage.wait_until_expired("lock");
    given(b.lock()?, "the lock is free again")?;
    stage.step("the time to live is over; B takes the lock", &[("B", Holds)]);
    a.go_on(pause);
    let answer = a.answer()?;
    stage.step(&format!("A goes on with its release: {answer}"), &[("A", Idle)]);
    let third_got_in = stage.third_tries(&mut c)?;
    Ok(Seen { answer, third_got_in })
}

pub(crate) fn process(part: &Part) -> Outcome<Recipe> {
    Ok(Recipe { redis: part.connect()?, value: part.name.clone(), lock, unlock })
}
