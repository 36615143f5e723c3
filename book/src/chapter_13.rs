//! Chapter 13: two locks, in whatever order.

use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Lock};
use lockson_harness::proxy::When;

use crate::actor::{Actor, Part};
use crate::hash_lock;
use crate::process::BOUND;
use crate::redis_view::View;
use crate::stage::State::{Both, Holds, Idle, Waits};
use crate::stage::{Stage, Verdict, failed_as_expected, given, lockson_held, mended};
use crate::with_lockson::client;
use crate::{Chapter, Outcome};

pub(crate) const CHAPTER: Chapter =
    Chapter { number: 13, recipe: "two locks in any order", source: include_str!("chapter_13.rs"), play };

// ---- the recipe ----
use redis::{Connection, RedisResult};

/// Takes the lock of chapter 9 twice: A names the keys as x, y, and B as y, x.
fn lock_both(redis: &mut Connection, me: &str, [first, second]: [&str; 2]) -> RedisResult<bool> {
    Ok(wait_for(redis, first, me)? && wait_for(redis, second, me)?) // the second wait keeps the first lock
}

fn wait_for(redis: &mut Connection, key: &str, me: &str) -> RedisResult<bool> {
    for _ in 0..100 {
        if hash_lock::lock(redis, key, me, 10_000)? {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(false)
}
// ---- end of the recipe ----

fn play(stage: &mut Stage) -> Outcome<Verdict> {
    stage.watch(vec![View::new("x", stage.server.url(), "x"), View::new("y", stage.server.url(), "y")]);
    stage.failure("Each of two processes waits for what the other holds", &["A", "B"]);
    let done = both_want_both(stage, ["x,y", "y,x"])?;
    stage.seen("nobody had both locks. With a thread that extends (chapter 7) both wait for ever");
    failed_as_expected(done == 0, "no deadlock")?;

    stage.mend("the same order everywhere", &["A", "B"]);
    let done = both_want_both(stage, ["x,y", "x,y"])?;
    stage.seen("both had both, one after the other. Every program that ever takes the two has to keep to the order");
    mended(done == 2, "a deadlock")?;

    stage.lockson("a multi-lock, named in opposite orders, 20 times each", &["A", "B"]);
    let mut a = stage.process_with("A", "multi", &["keys=x,y".into()])?;
    let mut b = stage.process_with("B", "multi", &["keys=y,x".into()])?;
    stage.start_clock();
    let began = Instant::now();
    a.tell("rounds 20");
    b.tell("rounds 20");
    let [of_a, of_b]: [u64; 2] = [a.answer()?.parse()?, b.answer()?.parse()?];
    let took = began.elapsed().as_millis();
    stage.step(&format!("A had both {of_a} times, and B {of_b} times"), &[("A", Idle), ("B", Idle)]);
    stage.seen(&format!("{} sections under both locks in {took} ms; a waiter sleeps with empty hands", of_a + of_b));
    lockson_held((of_a, of_b) == (20, 20), "a deadlock, or a starved process")?;
    Ok(Verdict { failure: "deadlock: 0 of 2 had both locks".into(), lockson: format!("40 of 40 had both, {took} ms") })
}

/// Both processes want both keys; returns how many had them.
fn both_want_both(stage: &mut Stage, orders: [&str; 2]) -> Outcome<usize> {
    let [mut a, mut b] = [
        stage.process_with("A", "two-locks", &[format!("keys={}", orders[0])])?,
        stage.process_with("B", "two-locks", &[format!("keys={}", orders[1])])?,
    ];
    let is_opposite = orders[0] != orders[1];
    stage.start_clock();
    let pause = a.tell_and_stop_before("lock", When::script().nth(2));
    stage.step("A has taken x, and is stopped", &[("A", Both("holds x"))]);
    if is_opposite {
        let other = b.tell_and_stop_before("lock", When::script().nth(2));
        stage.step("B has taken y, and is stopped", &[("B", Both("holds y"))]);
        b.go_on(other);
        a.go_on(pause);
        stage.step(
            "both go on: A wants y, B wants x",
            &[("A", Both("holds x, wants y")), ("B", Both("holds y, wants x"))],
        );
    } else {
        b.tell("lock");
        b.proxy.wait_for(&When::script().containing("x"), BOUND);
        stage.step("B wants x first, too, and waits", &[("B", Waits)]);
        a.go_on(pause);
    }
    let first = a.tried()?.held;
    if first {
        stage.step("A goes on, and has x and y", &[("A", Holds)]);
        given(a.unlock()? == "released", "A releases")?;
    }
    let second = b.tried()?.held;
    if second {
        stage.step("A releases both; B has x and y", &[("A", Idle), ("B", Holds)]);
    } else {
        stage.step("both have tried 100 times", &[]);
    }
    Ok(usize::from(first) + usize::from(second))
}

pub(crate) struct Process {
    redis: Connection,
    me: String,
    keys: [String; 2],
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        let mut redis = part.connect()?;
        hash_lock::warm_up(&mut redis)?;
        let (first, second) = part.option("keys").and_then(|keys| keys.split_once(',')).ok_or("no keys")?;
        Ok(Self { redis, me: part.name.clone(), keys: [first.into(), second.into()] })
    }
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        Ok(lock_both(&mut self.redis, &self.me, self.keys.each_ref().map(String::as_str))?)
    }

    fn unlock(&mut self) -> Outcome<bool> {
        let mut is_all = true;
        for key in &self.keys {
            is_all &= hash_lock::unlock(&mut self.redis, key, &self.me)?;
        }
        Ok(is_all)
    }

    fn value(&self) -> String {
        self.me.clone()
    }
}

pub(crate) struct WithMultiLock {
    /// The lock needs its client.
    _client: Client,
    lock: Lock,
}

impl WithMultiLock {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        let client = client(&part.url)?;
        let keys = part.option("keys").ok_or("no keys")?;
        let lock = Lock::multi(keys.split(',').map(|key| client.get_lock(key)));
        Ok(Self { _client: client, lock })
    }
}

impl Actor for WithMultiLock {
    fn lock(&mut self) -> Outcome<bool> {
        Ok(self.lock.try_lock()?.is_some())
    }

    fn unlock(&mut self) -> Outcome<bool> {
        Err("the rounds release".into())
    }

    fn value(&self) -> String {
        String::new()
    }

    fn perform(&mut self, what: &str) -> Outcome<String> {
        let rounds: u64 = what.strip_prefix("rounds ").ok_or("unknown")?.parse()?;
        for done in 0..rounds {
            let Some(guard) = self.lock.try_lock_for(Duration::from_secs(10))? else { return Ok(done.to_string()) };
            thread::sleep(Duration::from_millis(1)); // the work
            guard.unlock()?;
        }
        Ok(rounds.to_string())
    }
}
