//! Chapter 8: three tries, half a second apart.

use std::thread;
use std::time::{Duration, Instant};

use lockson_harness::proxy::{Then, When};

use crate::actor::{Actor, Part};
use crate::process::{BOUND, Process as Child};
use crate::stage::State::{Dead, Holds, Idle, Waits};
use crate::stage::{Stage, State, Verdict, failed_as_expected, given, lockson_held};
use crate::with_lockson::numbers;
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 8, recipe: "three tries, 500 ms apart", source: include_str!("chapter_08.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult, TypedCommands};

fn lock(redis: &mut Connection, me: &str) -> RedisResult<bool> {
    for pause in [500, 500, 0] {
        let mut set = redis::cmd("SET");
        set.arg("lock").arg(me).arg("NX").arg("PX").arg(3_000);
        if set.query::<Option<String>>(redis)?.is_some() {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(pause));
    }
    Ok(false)
}

/// Releases at the end of the work, or always, as a `finally` does.
fn unlock(redis: &mut Connection) -> RedisResult<()> {
    redis.del("lock")?;
    Ok(())
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("The lock is free, and the waiter sleeps", &["A", "B"]);
    let late = release_between_tries(stage, "three-tries")?;
    stage.seen(&format!("the lock lay free for {late} ms while B waited for it"));
    failed_as_expected(late > 300, "B came at once")?;

    let names = ["A", "B", "C", "D", "E"];
    stage.failure("Five processes want the lock at once, for 400 ms each", &names);
    let (done, took) = contention(stage, "three-tries", &names)?;
    stage.seen(&format!("{done} of 5 had the lock, {} gave up; {took} ms for {done} sections of 400 ms", 5 - done));
    failed_as_expected(done < 5, "all five had the lock")?;

    release_always(stage)?;
    let left = release_on_success(stage)?;
    let missed = run_per_interval(stage, "three-tries")?;

    stage.lockson("the holder releases while another waits", &["A", "B"]);
    let woken = release_between_tries(stage, "lockson")?;
    stage.lockson("five processes want the lock at once, for 400 ms each", &names);
    let (all, in_all) = contention(stage, "lockson", &names)?;
    stage.seen(&format!("B had the lock {woken} ms after the release; {all} of 5 had the lock in {in_all} ms"));
    lockson_held(woken < late && all == 5, "a waiter was late or gave up")?;

    stage.lockson("the answer to a take is lost; and a gate of one run per interval", &["A", "B"]);
    let held = lost_answer(stage, "lockson")?;
    lockson_held(held, "the take with a lost answer did not succeed")?;
    let gate = run_per_interval(stage, "lockson")?;
    stage.seen(&format!(
        "the lost answer did no harm. The gate has the same price: no run for {gate} ms after a killed one; a job that \
         must run is better kept under a lock until it is done"
    ));
    Ok(Verdict {
        failure: format!("{late} ms late, {} of 5 gave up; {left} and {missed} ms blocked", 5 - done),
        lockson: format!("{woken} ms late, 0 of 5 gave up"),
    })
}

/// A releases after the second try of B; returns how long after the release B had the lock.
fn release_between_tries(stage: &mut Stage, role: &str) -> Outcome<u128> {
    let (mut a, mut b) = (stage.process("A", role)?, stage.process("B", role)?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock", &[("A", Holds), ("B", Waits)]);
    let take = if role == "lockson" { When::script() } else { When::command("SET") };
    let mark = b.proxy.mark();
    b.tell("lock 5000");
    let second = b.proxy.wait_for_since(mark, &take.nth(2), BOUND);
    b.proxy.wait_fate(&second, BOUND);
    stage.step("B has tried twice", &[]);
    a.unlock()?;
    let released = Instant::now();
    // A waiter of Lockson may have the lock before Redis can be looked at.
    if role != "lockson" {
        stage.step("A releases", &[("A", Idle)]);
    }
    given(b.tried()?.held, "B has the lock")?;
    let late = released.elapsed().as_millis();
    stage.step("B has the lock", &[("A", Idle), ("B", Holds)]);
    Ok(late)
}

/// Each process wants one section of 400 ms; returns how many had it, and the time for all.
fn contention(stage: &mut Stage, role: &str, names: &[&str]) -> Outcome<(usize, u128)> {
    let mut processes: Vec<Child> = names.iter().map(|name| stage.process(name, role)).collect::<Outcome<_>>()?;
    let all_wait: Vec<(&str, State)> = names.iter().map(|name| (*name, Waits)).collect();
    stage.start_clock();
    stage.step("all begin to try", &all_wait);
    let began = Instant::now();
    processes.iter_mut().for_each(|process| process.tell("section 10000 400"));
    let answers: Vec<String> = processes.iter_mut().map(Child::answer).collect::<Outcome<_>>()?;
    let words = |answer: &String| if answer == "done" { "had the lock" } else { "gave up" };
    let all_ended: Vec<(&str, State)> =
        names.iter().zip(&answers).map(|(name, answer)| (*name, State::Ended(words(answer)))).collect();
    stage.step("all have had the lock, or have given up", &all_ended);
    let (done, took) = (answers.iter().filter(|answer| *answer == "done").count(), began.elapsed().as_millis());
    Ok((done, took))
}

/// The `finally` of a loser deletes the lock of the holder.
fn release_always(stage: &mut Stage) -> Outcome<()> {
    stage.failure("Release always: a process that gave up releases, too", &["A", "B", "C"]);
    let role = "three-tries";
    let (mut a, mut b, mut c) = (stage.process("A", role)?, stage.process("B", role)?, stage.process("C", role)?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock", &[("A", Holds), ("B", Waits)]);
    given(!b.lock()?, "B gives up")?;
    b.unlock()?;
    stage.step("B gives up, and its finally releases", &[("B", Idle)]);
    let got_in = c.lock()?;
    stage.step("C takes the lock", &[("C", Holds)]);
    stage.seen("A and C both hold. With a value of its own in the release (chapter 6), B deletes nothing");
    failed_as_expected(got_in, "the lock of A survived")
}

/// A take whose answer is lost is no success, so nothing releases it; returns the time that is left.
fn release_on_success(stage: &mut Stage) -> Outcome<i64> {
    stage.failure("Release only on success: the answer to a take is lost", &["A", "B"]);
    failed_as_expected(!lost_answer(stage, "three-tries")?, "A knows that it holds")?;
    let mut b = stage.process("B", "three-tries")?;
    failed_as_expected(!b.lock()?, "no lock is left")?;
    stage.step("B tries three times in vain", &[("B", Waits)]);
    let left = stage.time_to_live("lock")?;
    stage.seen(&format!("A reported an error and released nothing; the lock stays for {left} ms more"));
    failed_as_expected(left > 0, "no lock is left")?;
    Ok(left)
}

/// The answer to A's take is lost with its connection; tells whether A believes that it holds.
fn lost_answer(stage: &mut Stage, role: &str) -> Outcome<bool> {
    let mut a = stage.process("A", role)?;
    let take = if role == "lockson" { When::script() } else { When::command("SET") };
    stage.start_clock();
    a.proxy.rule(take, Then::CutReplyAfter(0));
    a.tell("lock");
    let held = a.tried().is_ok_and(|tried| tried.held);
    let believes = if held { Holds } else { Idle };
    let words = if held { "A asks again and holds" } else { "A takes the lock, but the answer is lost" };
    stage.step(words, &[("A", believes)]);
    if held {
        lockson_held(a.unlock()? == "released", "the holder could not release")?;
        stage.step("A releases", &[("A", Idle)]);
    }
    Ok(held)
}

/// The lock is left to its time to live as a gate: one run in three seconds. The run is killed at once.
fn run_per_interval(stage: &mut Stage, role: &str) -> Outcome<i64> {
    if role == "lockson" {
        redis::cmd("FLUSHALL").exec(&mut stage.redis())?;
    } else {
        stage.failure("One run per interval by not releasing: the run is killed", &["A", "B"]);
    }
    let (mut a, mut b) = (stage.process("A", role)?, stage.process("B", role)?);
    stage.start_clock();
    let runs = a.ask("gate")?;
    stage.step("A takes the lock of this interval, and runs", &[("A", Holds)]);
    a.kill();
    let other = b.ask("gate")?;
    stage.step("A is killed; B may not run in this interval", &[("A", Dead)]);
    failed_as_expected(runs == "true" && other == "false", "one run per interval")?;
    let left = stage.time_to_live("lock")?;
    if role != "lockson" {
        stage.seen(&format!("the run of this interval is lost; nobody runs for {left} ms more"));
    }
    Ok(left)
}

pub(crate) struct Process {
    redis: Connection,
    me: String,
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        Ok(Self { redis: part.connect()?, me: part.name.clone() })
    }
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        Ok(lock(&mut self.redis, &self.me)?)
    }

    fn lock_within(&mut self, _: Duration) -> Outcome<(bool, u64)> {
        Ok((lock(&mut self.redis, &self.me)?, 3))
    }

    fn unlock(&mut self) -> Outcome<bool> {
        unlock(&mut self.redis)?;
        Ok(true)
    }

    fn value(&self) -> String {
        self.me.clone()
    }

    fn perform(&mut self, what: &str) -> Outcome<String> {
        if what == "gate" {
            let mut set = redis::cmd("SET");
            set.arg("lock").arg(&self.me).arg("NX").arg("PX").arg(3_000);
            return Ok(set.query::<Option<String>>(&mut self.redis)?.is_some().to_string());
        }
        let [_, work] = numbers(what.strip_prefix("section ").ok_or("unknown")?)?;
        if !self.lock()? {
            return Ok("gave up".into());
        }
        thread::sleep(work);
        self.unlock()?;
        Ok("done".into())
    }
}
