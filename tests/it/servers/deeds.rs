//! The calls of users of locks, each with the rights under test.

use std::fmt;

use lockson::Result as LockResult;

use super::stage::{Stage, Turn};
use crate::support::prelude::*;

/// A promise about a lock.
pub(crate) struct Deed {
    /// The letter in the table.
    pub(crate) letter: char,
    pub(crate) what: &'static str,
    /// Only where a holder may take the lock again.
    pub(crate) reenters: bool,
    /// Only where waiters listen.
    pub(crate) listens: bool,
    /// Only where the time of a hold can be raised.
    pub(crate) prolongs: bool,
    /// Prepares, waits for its turn and acts; an error describes the failure.
    pub(crate) act: fn(&Stage<'_>, Turn) -> Outcome,
}

pub(crate) type Outcome = std::result::Result<(), String>;

const ANY: Deed = Deed { letter: ' ', what: "", reenters: false, listens: false, prolongs: false, act: |_, _| Ok(()) };

/// The promises of every kind.
pub(crate) const USUAL: &[Deed] = &[
    Deed { letter: 'C', what: "`connect`", act: connect, ..ANY },
    Deed { letter: 'A', what: "acquire", act: acquire, ..ANY },
    Deed { letter: 'B', what: "a busy lock", act: busy, ..ANY },
    Deed { letter: 'K', what: "another kind of lock has the name", act: other_kind, ..ANY },
    Deed { letter: 'W', what: "wait and get it", act: wait, ..ANY },
    Deed { letter: 'E', what: "re-entry", reenters: true, act: reenter, ..ANY },
    Deed { letter: 'X', what: "`extend`", prolongs: true, act: extend, ..ANY },
    Deed { letter: 'N', what: "renewal", prolongs: true, act: renewal, ..ANY },
    Deed { letter: 'P', what: "release of one of two", reenters: true, act: release_of_one, ..ANY },
    Deed { letter: 'R', what: "release", act: release, ..ANY },
    Deed { letter: 'T', what: "waking others", listens: true, act: wake_others, ..ANY },
    LEAVING,
    ANEW,
];

/// The promises of a lock with several holders.
pub(crate) const SHARED: &[Deed] =
    &[Deed { letter: 'S', what: "release beside another reader", act: release_beside_another, ..ANY }];

/// The promises of a lock whose writer may read.
pub(crate) const STEPPING_DOWN: &[Deed] =
    &[Deed { letter: 'D', what: "a writer reads, and goes on reading", act: step_down, ..ANY }];

/// The promises of a lock with a queue in Redis.
pub(crate) const QUEUEING: &[Deed] = &[Deed {
    letter: 'Q',
    what: "waiting among waiters of Redisson, and after an outage",
    act: wait_among_others,
    ..ANY
}];

/// The promises of `once_per`.
pub(crate) const ONCE_PER: &[Deed] = &[
    Deed { letter: 'C', what: "`connect`", act: connect, ..ANY },
    Deed { letter: 'A', what: "acquire", act: once, ..ANY },
    Deed { letter: 'B', what: "a busy lock", act: not_again, ..ANY },
    Deed { letter: 'K', what: "another kind of lock has the name", act: other_kind, ..ANY },
    ANEW,
];

/// Takes two seconds, and depends only on one special right.
pub(crate) const LEAVING: Deed =
    Deed { letter: 'L', what: "leaving channel and queue", listens: true, act: leave, ..ANY };

/// Concerns all other deeds on the same server.
pub(crate) const ANEW: Deed = Deed { letter: 'F', what: "after `SCRIPT FLUSH`", act: scripts_anew, ..ANY };

impl fmt::Debug for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

fn connect(stage: &Stage<'_>, turn: Turn) -> Outcome {
    turn.comes();
    ["", "?protocol=resp3"].into_iter().try_for_each(|rest| told(stage.builder(rest).connect()).map(drop))
}

fn acquire(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("free");
    turn.comes();
    locks.iter().try_for_each(|lock| told(lock.try_lock())?.map(drop).ok_or("busy".to_owned()))
}

fn busy(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("busy");
    let held: Vec<_> =
        locks.iter().map(|lock| stage.of_bystander(lock.name()).lock().expect("the lock is free")).collect();
    turn.comes();
    let outcome = locks.iter().try_for_each(|lock| told(lock.try_lock())?.map_or(Ok(()), |_| Err("taken".to_owned())));
    drop(held);
    outcome
}

fn other_kind(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("other");
    let of_other = |lock: &Lock| (stage.user.other_kind)(&stage.house.bystander, lock.name());
    let held: Vec<_> = locks.iter().map(|lock| of_other(lock).lock().expect("the lock is free")).collect();
    turn.comes();
    let refused = |lock: &Lock| match told(lock.try_lock()) {
        Err(why) if why == "`OtherKind`" => Ok(()),
        Err(why) => Err(why),
        Ok(_) => Err("not told".to_owned()),
    };
    let outcome = locks.iter().try_for_each(refused);
    drop(held);
    outcome
}

fn wait(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let client = stage.client();
    let lock = &(stage.user.sides[0])(&client, &stage.name("awaited"));
    wait_for(stage, &client, lock, || turn.comes())
}

/// Waits for a lock that the bystander releases as soon as the waiter sleeps, with another waiter behind.
pub(crate) fn wait_for(stage: &Stage<'_>, client: &lockson::Client, lock: &Lock, ready: impl FnOnce()) -> Outcome {
    let held = stage.of_bystander(lock.name()).owned().lock().expect("the lock is free");
    ready();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = told(lock.try_lock_for(SOON))?.ok_or("never".to_owned())?;
            stage.was_woken(guard.owner())
        });
        within(SOON, || stage.sleeps(client, lock.name()) || waiter.is_finished());
        let behind = stage.user.is_fair.then(|| {
            let lock = stage.of_bystander(lock.name());
            let behind = scope.spawn(move || lock.try_lock_for(SOON * 2).map(drop));
            within(SOON, || queue_of(stage, held.name()).len() == 2 || waiter.is_finished());
            behind
        });
        held.unlock().expect("the bystander holds the lock");
        let outcome = joined(waiter);
        behind.map(joined).transpose().expect("the bystander has all rights");
        outcome
    })
}

/// A waiter among a waiter of Redisson in front, a waiter whose deadline is over, and a waiter silent for three
/// seconds.
fn wait_among_others(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let (client, name) = (stage.client(), stage.name("queued"));
    let lock = (stage.user.sides[0])(&client, &name);
    let held = stage.of_bystander(&name).owned().lock().expect("the lock is free");
    let rig = &stage.house.rig;
    let keys = ["queue", "timeout", "alive"].map(|key| prefixed(&format!("redisson_lock_{key}"), &name));
    let run = |script: &str| rig.server.run(&["EVAL", script, "3", &keys[0], &keys[1], &keys[2]]);
    turn.comes();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| told(lock.try_lock_for(SOON * 2))?.map(drop).ok_or("never".to_owned()));
        within(SOON, || stage.sleeps(&client, &name) || waiter.is_finished());
        run(DISTURBED);
        let asked = || rig.proxy.count(&When::script().containing(&*name));
        let before = asked();
        within(SOON, || asked() >= before + 2 || waiter.is_finished());
        run(UNDISTURBED);
        held.unlock().expect("the bystander holds the lock");
        joined(waiter)
    })
}

const DISTURBED: &str = "local now = redis.call('time')[1] * 1000
redis.call('lpush', KEYS[1], 'java:1')
redis.call('zadd', KEYS[2], now + 300000, 'java:1', now + 300000, 'stale:1')
for _, waiter in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do redis.call('zincrby', KEYS[3], -3000, waiter) end";
const UNDISTURBED: &str = "redis.call('lrem', KEYS[1], 0, 'java:1') redis.call('zrem', KEYS[2], 'java:1', 'stale:1')";

fn reenter(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("reentered");
    let _outer: Vec<_> = locks.iter().map(|lock| lock.lock().expect("the lock is free")).collect();
    turn.comes();
    locks.iter().try_for_each(|lock| told(lock.try_lock()).map(drop))
}

fn extend(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("extended");
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().expect("the lock is free")).collect();
    turn.comes();
    guards.iter().try_for_each(|guard| told(guard.extend(Duration::from_secs(60))))
}

fn renewal(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let events = Events::default();
    let client = stage.builder("").observer(events.clone()).connect_lazily().expect("the URL is good");
    let taken =
        stage.user.sides.iter().enumerate().map(|(side, lock)| {
            lock(&client, &stage.name(&format!("watched{side}"))).lock().expect("the lock is free")
        });
    let _guards: Vec<_> = taken.collect();
    turn.comes();
    // One renewal may have been under way when the rights changed.
    let round = || (events.count_of("renewed"), events.times_left().len());
    let (renewed, failed) = round();
    within(SOON, || round().0 >= renewed + 2 || round().1 >= failed + 2);
    // Of two holds one may be renewed while the other is refused.
    if round().0 >= renewed + 2 && round().1 == failed { Ok(()) } else { Err("not renewed".to_owned()) }
}

fn release_of_one(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("twice");
    let both = |lock: &Lock| [lock.lock().expect("the lock is free"), lock.lock().expect("this thread holds the lock")];
    let guards: Vec<_> = locks.iter().map(both).collect();
    turn.comes();
    guards.into_iter().try_for_each(|[_outer, inner]| told(inner.unlock()))
}

fn release(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("released");
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().expect("the lock is free")).collect();
    turn.comes();
    guards.into_iter().try_for_each(|guard| {
        let name = guard.name().to_owned();
        told(guard.unlock())?;
        let left = stage.keys_of(&name);
        if left.is_empty() { Ok(()) } else { Err("a key stays".to_owned()) }
    })
}

fn release_beside_another(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let (client, name) = (stage.client(), stage.name("shared"));
    let _other = stage.house.bystander.get_read_write_lock(&name).read().lock().expect("nobody writes");
    let ours = client.get_read_write_lock(&name).read().lock().expect("nobody writes");
    turn.comes();
    told(ours.unlock())?;
    if stage.keys_of(&name).len() == 2 { Ok(()) } else { Err("a key stays".to_owned()) }
}

fn step_down(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let lock = stage.client().get_read_write_lock(stage.name("both"));
    let writing = lock.write().lock().expect("the lock is free");
    turn.comes();
    let reading = told(lock.read().try_lock())?.ok_or("busy".to_owned())?;
    told(writing.unlock())?;
    told(reading.unlock())
}

fn wake_others(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let (name, enough) = (stage.name("handed over"), Cancel::new());
    let guard = (stage.user.sides[0])(&stage.client(), &name).lock().expect("the lock is free");
    // The release of a fair lock does more when several waiters are in the queue.
    let clients: Vec<_> = (0..if stage.user.is_fair { 2 } else { 1 }).map(|_| stage.house.rig.client()).collect();
    thread::scope(|scope| {
        let begin = |client| {
            let lock = (stage.user.sides[0])(client, &name).with_cancel(&enough);
            let waiter = scope.spawn(move || {
                let guard = told(lock.try_lock_for(SOON * 2))?.ok_or("never".to_owned())?;
                stage.was_woken(guard.owner())
            });
            assert!(within(SOON, || stage.sleeps(client, &name)), "this client has all rights");
            waiter
        };
        let waiters: Vec<_> = clients.iter().map(begin).collect();
        turn.comes();
        let outcome = told(guard.unlock());
        if outcome.is_err() {
            enough.cancel();
        }
        let woken: Vec<Outcome> = waiters.into_iter().map(joined).collect();
        outcome.and(woken[0].clone())
    })
}

fn leave(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let (client, rig) = (stage.client(), &stage.house.rig);
    let [left, kept] = ["left", "kept"].map(|what| stage.name(what));
    let _held = [&left, &kept].map(|name| stage.of_bystander(name).lock().expect("the lock is free"));
    let channel = stage.user.channel.expect("it listens")(&left);
    turn.comes();
    let (enough, leaving) = (Cancel::new(), Cancel::new());
    let waits = |lock: &Lock, until: &Cancel| told(lock.with_cancel(until).try_lock_for(SOON * 2)).map(drop);
    thread::scope(|scope| {
        // While a waiter is listening the connection stays open, so only the channel is left.
        let keeping = scope.spawn(|| waits(&(stage.user.sides[0])(&client, &kept), &enough));
        let gone = scope.spawn(|| waits(&(stage.user.sides[0])(&client, &left), &leaving));
        let listens = || rig.server.channels().iter().any(|other| other.starts_with(&channel));
        within(SOON, || listens() || gone.is_finished());
        let behind = stage.user.is_fair.then(|| {
            let behind = scope.spawn(|| waits(&stage.of_bystander(&left), &enough));
            within(SOON, || queue_of(stage, &left).len() == 2 || gone.is_finished());
            behind
        });
        leaving.cancel();
        let outcome = joined(gone).or_else(|why| if why == "`Cancelled`" { Ok(()) } else { Err(why) }).and_then(|()| {
            let request = rig.proxy.wait_for(&When::command("UNSUBSCRIBE").containing(&channel), SOON);
            let refused =
                matches!(rig.proxy.wait_fate(&request, SOON), Fate::Answered(reply) if reply.starts_with(b"-"));
            let queued = queue_of(stage, &left).iter().any(|waiter| waiter.starts_with(client.id()));
            if refused || queued { Err("it stays".to_owned()) } else { Ok(()) }
        });
        enough.cancel();
        drop((joined(keeping), behind.map(joined)));
        outcome
    })
}

fn once(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("once");
    turn.comes();
    let first = told(locks[0].once_per(SOON))?;
    if first { Ok(()) } else { Err("not the first".to_owned()) }
}

fn not_again(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("not again");
    assert!(stage.of_bystander(locks[0].name()).once_per(SOON).expect("the bystander has all rights"));
    turn.comes();
    let again = told(locks[0].once_per(SOON))?;
    if again { Err("again".to_owned()) } else { Ok(()) }
}

fn scripts_anew(stage: &Stage<'_>, turn: Turn) -> Outcome {
    let locks = stage.locks("anew");
    turn.comes();
    stage.house.rig.server.run(&["SCRIPT", "FLUSH"]);
    let outcome = locks.iter().try_for_each(|lock| told(lock.try_lock())?.map(drop).ok_or("busy".to_owned()));
    stage.house.load_scripts();
    outcome
}

/// The waiters that Redis lists for a fair lock.
fn queue_of(stage: &Stage<'_>, name: &str) -> Vec<String> {
    stage.house.rig.server.query(&["LRANGE", &prefixed("redisson_lock_queue", name), "0", "-1"])
}

/// An error in a word.
pub(crate) fn told<T>(outcome: LockResult<T>) -> std::result::Result<T, String> {
    outcome.map_err(|error: Error| match (error.kind(), error.redis_word()) {
        (ErrorKind::Refused, Some(word)) => format!("`{word}`"),
        (kind, _) => format!("`{kind:?}`"),
    })
}

pub(crate) fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(ms(5));
    }
}

pub(crate) const PASSWORD: &str = "secret";
