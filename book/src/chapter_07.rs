//! Chapter 7: a guard thread that extends the time to live.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lockson_harness::eventually;
use lockson_harness::proxy::{NewConnections, Scope, When};

use crate::actor::{Actor, Part};
use crate::process::BOUND;
use crate::stage::State::{Ended, Holds, Idle, Waits};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held, ms};
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 7, recipe: "6 with a thread that extends", source: include_str!("chapter_07.rs"), play };

// ---- the recipe ----
use std::sync::Arc;

use redis::{Connection, RedisResult, Script};

/// Runs beside the work until `done`, and extends the lock of chapter 6 three times in each time to live.
fn guard(mut redis: Connection, me: String, done: Arc<AtomicBool>) -> RedisResult<()> {
    let extend =
        Script::new("return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2]) or 0");
    while !done.load(Ordering::Relaxed) {
        extend.key("lock").arg(&me).arg(1_000).invoke::<()>(&mut redis)?;
        thread::sleep(Duration::from_millis(333));
    }
    Ok(())
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.failure("The guard thread outlives the work", &["A", "B"]);
    let outlived = panicking_work(stage, "guard-thread")?;
    stage.seen(&format!("the guard kept the lock of work that has ended; B tried {} ms in vain", outlived.1));
    failed_as_expected(!outlived.0, "the lock ended with the work")?;

    stage.failure("The guard thread dies, and the work does not notice", &["A", "B"]);
    let (mut a, mut b) = (stage.process("A", "guard-thread")?, stage.process("B", "guard-thread")?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    let of_guard = a.proxy.wait_for(&When::script(), BOUND).connection;
    stage.step("A takes the lock; its guard extends it", &[("A", Holds), ("B", Waits)]);
    a.proxy.cut(Scope::Connection(of_guard));
    stage.step("the connection of the guard breaks", &[]);
    let tried = b.lock_within(ms(5_000))?;
    stage.step("B takes the lock while A works", &[("B", Holds)]);
    failed_as_expected(tried.held, "the lock was extended")?;
    stage.seen("the guard ended at its first error; A works on and believes that it holds");
    drop((a, b));

    with_lockson(stage, outlived.1)
}

fn with_lockson(stage: &mut Stage, tried_in_vain: u128) -> Outcome<Verdict> {
    stage.lockson("the work panics", &["A", "B"]);
    let (held, after) = panicking_work(stage, "lockson")?;
    stage.seen(&format!("the guard of the lock was dropped with the work; B had the lock after {after} ms"));
    lockson_held(held, "the lock of a panicked thread stayed")?;

    stage.lockson("all connections of the holder break; then Redis cannot be reached at all", &["A", "B"]);
    let (mut a, mut b) = (stage.process("A", "lockson")?, stage.process("B", "lockson")?);
    stage.start_clock();
    given(a.lock()?, "the lock is free")?;
    stage.step("A takes the lock", &[("A", Holds), ("B", Waits)]);
    a.proxy.cut(Scope::All);
    stage.step("all connections of A break", &[]);
    let tried = b.lock_within(ms(2_500))?;
    lockson_held(!tried.held && a.ask("look")? == "true", "a broken connection ended the hold")?;
    stage.step("B gives up: A has connected again and renews", &[]);
    a.proxy.new_connections(NewConnections::Refuse);
    a.proxy.cut(Scope::All);
    b.tell("lock 10000");
    stage.step("no connection of A gets through any more", &[]);
    eventually(BOUND, "A learns of the loss", || a.ask("look").is_ok_and(|held| held == "false"));
    lockson_held(b.tried()?.held, "the lock of an unreachable holder stayed")?;
    // A is told some 50 ms before Redis lets B in: too short a time to look at Redis between, for a busy machine.
    stage.step("A is told by its own clock; then B takes the lock", &[("A", Idle), ("B", Holds)]);
    lockson_held(a.ask("look")? == "false", "two holders")?;
    stage.seen("a broken connection costs nothing; a holder that cannot renew stops believing before Redis lets B in");
    Ok(Verdict {
        failure: format!("lock of ended work kept {tried_in_vain} ms; guard dies: 2 holders"),
        lockson: "ends with the work; the holder is told".into(),
    })
}

/// A's work panics while it holds: whether B had the lock within two times to live, and after which time.
fn panicking_work(stage: &mut Stage, role: &str) -> Outcome<(bool, u128)> {
    let (mut a, mut b) = (stage.process("A", role)?, stage.process("B", role)?);
    stage.start_clock();
    given(a.ask("work that panics")? == "panicked", "the work panics")?;
    stage.step("A takes the lock, and its work panics", &[("A", Ended("its work has ended")), ("B", Waits)]);
    let tried = b.lock_within(ms(2_000))?;
    if tried.held {
        stage.step("B has the lock", &[("B", Holds)]);
    } else {
        stage.step(&format!("B has tried {} times", tried.tries), &[]);
    }
    Ok((tried.held, tried.after.as_millis()))
}

pub(crate) struct Process {
    url: String,
    redis: Connection,
    me: String,
    done: Arc<AtomicBool>,
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        Ok(Self { url: part.url.clone(), redis: part.connect()?, me: part.name.clone(), done: Arc::default() })
    }
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        let held = crate::chapter_05::lock(&mut self.redis, &self.me)?;
        if held {
            let redis = redis::Client::open(self.url.as_str())?.get_connection()?;
            let (me, done) = (self.me.clone(), Arc::clone(&self.done));
            thread::spawn(|| guard(redis, me, done));
        }
        Ok(held)
    }

    fn unlock(&mut self) -> Outcome<bool> {
        self.done.store(true, Ordering::Relaxed);
        Ok(crate::chapter_06::unlock_by_script(&mut self.redis, &self.me)?)
    }

    fn value(&self) -> String {
        self.me.clone()
    }

    fn perform(&mut self, _: &str) -> Outcome<String> {
        // The work holds the lock and panics, so its `unlock` is never called.
        let work = thread::scope(|scope| {
            let work = || -> Outcome<()> {
                self.lock()?;
                panic!("the work fails");
            };
            scope.spawn(work).join().is_err()
        });
        Ok(if work { "panicked".into() } else { "done".into() })
    }
}
