//! Chapter 6: compare and delete in one step, and work that takes longer than the lock lives.

use lockson_harness::proxy::When;

use crate::actor::{Part, Recipe};
use crate::chapter_05::{lock, stopped_release};
use crate::process::Process as Child;
use crate::stage::State::{Holds, Idle, Waits};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held, mended, ms};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 6, recipe: "own value, delete in one step", source: include_str!("chapter_06.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult, Script, TypedCommands};

/// Takes the lock as before; `EXEC` does nothing when the key has changed since `WATCH`.
fn unlock_by_transaction(redis: &mut Connection, me: &str) -> RedisResult<bool> {
    redis::cmd("WATCH").arg("lock").exec(redis)?;
    if redis.get("lock")?.as_deref() != Some(me) {
        redis::cmd("UNWATCH").exec(redis)?;
        return Ok(false);
    }
    let done: Option<(i64,)> = redis::pipe().atomic().del("lock").query(redis)?;
    Ok(done.is_some())
}

/// One request, on any server.
pub(crate) fn unlock_by_script(redis: &mut Connection, me: &str) -> RedisResult<bool> {
    let script = Script::new("return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0");
    script.key("lock").arg(me).invoke(redis)
}

/// One command, `DELIFEQ lock me` on Valkey 9, and `DELEX lock IFEQ me` on Redis 8.4.
fn unlock_by_command(redis: &mut Connection, me: &str) -> RedisResult<bool> {
    let delifeq = redis::cmd("DELIFEQ").arg("lock").arg(me).query(redis);
    delifeq.or_else(|_| redis::cmd("DELEX").arg("lock").arg("IFEQ").arg(me).query(redis))
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    for (role, words, command) in [
        ("watch", "WATCH, MULTI, EXEC; A is stopped between check and delete", When::command("GET")),
        ("script", "compare and delete by a script; A is stopped after sending it", When::script()),
    ] {
        stage.mend(words, &["A", "B", "C"]);
        let stop = |a: &mut Child| match role {
            "watch" => a.tell_and_stop_after("unlock", command.clone()),
            _ => a.tell_and_stop_before("unlock", command.clone()),
        };
        let seen = stopped_release(stage, role, &[], "A releases, and is stopped", stop)?;
        mended(seen.answer == "not mine" && !seen.third_got_in, "the lock of B was deleted")?;
    }
    let has_command = {
        let mut process = stage.process("A", "command")?;
        process.lock()? && process.unlock().is_ok()
    };
    stage.seen(&format!(
        "the failure of chapter 5 is gone. WATCH takes 3 round trips and a script 1; this server knows {} of the two \
         commands DELIFEQ and DELEX",
        if has_command { 1 } else { 0 }
    ));

    stage.failure("The work takes longer than the time to live", &["A", "B"]);
    let seen = long_work(stage, "script")?;
    stage
        .seen(&format!("B came in {} ms after it began to try; A worked on, and learned of it at its release", seen.0));
    failed_as_expected(seen.1 && seen.2 == "not mine", "one holder")?;

    stage.lockson("the work takes longer than the time to live", &["A", "B"]);
    let seen = long_work(stage, "lockson")?;
    stage.seen(&format!("the lock was renewed while A worked; B tried for {} ms in vain", seen.0));
    lockson_held(!seen.1 && seen.2 == "released", "two holders")?;
    Ok(Verdict {
        failure: "work longer than the time to live: 2 holders".into(),
        lockson: "renewed while in use, 1 holder".into(),
    })
}

/// A works until B has the lock, or has given up: how long B tried, whether B had it, and the release of A.
fn long_work(stage: &mut Stage, role: &str) -> Outcome<(u128, bool, String)> {
    let (mut a, mut b) = (stage.process("A", role)?, stage.process("B", role)?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock and works", &[("A", Holds), ("B", Waits)]);
    let tried = b.lock_within(ms(3_000))?;
    if tried.held {
        stage.step("B takes the lock while A works", &[("B", Holds)]);
    } else {
        stage.step("B gives up; A still works", &[("B", Idle)]);
    }
    let answer = a.unlock()?;
    stage.step(&format!("A is done and releases: {answer}"), &[("A", Idle)]);
    Ok((tried.after.as_millis(), tried.held, answer))
}

pub(crate) fn process(part: &Part) -> Outcome<Recipe> {
    let mut redis = part.connect()?;
    // The first call of a script sends its text; the scenes are about later calls.
    unlock_by_script(&mut redis, "warm-up")?;
    let unlock = match part.role.as_str() {
        "watch" => unlock_by_transaction,
        "script" => unlock_by_script,
        _ => unlock_by_command,
    };
    Ok(Recipe { redis, value: part.name.clone(), lock, unlock })
}
