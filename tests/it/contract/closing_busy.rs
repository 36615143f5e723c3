//! `close()` during work: running calls end, nothing stays in Redis, and no thread waits for itself.

use std::sync::OnceLock;

use super::{for_every_kind, for_every_reentrant_kind, key};
use crate::support::prelude::*;

#[test]
fn sixty_closes_in_the_middle_of_work_leave_no_key() {
    thread::scope(|scope| {
        let reading = scope.spawn(|| busy_closes("read", |client, name| client.get_read_write_lock(name).read()));
        for_every_kind(|kind| busy_closes(kind.label, kind.lock));
        joined(reading);
    });
}

fn busy_closes(label: &str, lock_of: fn(&Client, &str) -> Lock) {
    for round in 0..60 {
        let name = fresh(label);
        // Another test checks the bound; here a busy machine may be slow.
        let client = Client::builder(&RedisServer::shared().url()).drop_timeout(SOON * 6).connect().unwrap();
        let lock = lock_of(&client, &name);
        let left = thread::scope(|scope| {
            let (started, begun) = unbounded();
            for seed in 1..5 {
                let (lock, started) = (lock.clone(), started.clone());
                scope.spawn(move || work_until_closed(&lock, Random(seed + 10 * round), || started.send(()).unwrap()));
            }
            (0..4).for_each(|_| begun.recv_timeout(SOON).unwrap());
            thread::sleep(Duration::from_micros(Random(round + 1).below(3_000)));
            client.close();
            RedisServer::shared().query::<Vec<String>>(&["KEYS", &format!("*{name}*")])
        });
        let left: Vec<_> = left.into_iter().filter(|key| !key.starts_with("redisson_lock_token")).collect();
        assert_eq!(left, Vec::<String>::new(), "round {round}");
    }
}

/// Takes the lock in several ways and releases the lock, until the client is closed.
fn work_until_closed(lock: &Lock, mut random: Random, started: impl Fn()) {
    started();
    loop {
        let taken = match random.below(4) {
            0 => lock.try_lock(),
            1 => lock.try_lock_for(Duration::from_micros(random.below(3_000))),
            _ => lock.lock().map(Some),
        };
        let given_back = match taken {
            Ok(guard) => guard.map_or(Ok(()), |guard| give_back(lock, guard, &mut random)),
            Err(error) => Err(error),
        };
        match given_back.map_err(|error| error.kind()) {
            Ok(()) => {}
            Err(ErrorKind::Closed | ErrorKind::Lost(Loss::Closed)) => return,
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn give_back(lock: &Lock, guard: Guard, random: &mut Random) -> lockson::Result<()> {
    let inner = if random.below(2) == 0 { lock.try_lock() } else { Ok(None) };
    let inner = match inner {
        Err(error) if error.kind() == ErrorKind::AlreadyHeld => None,
        other => other?,
    };
    if random.below(2) == 0 {
        drop(inner);
        return guard.unlock();
    }
    guard.unlock()?;
    inner.map_or(Ok(()), Guard::unlock)
}

#[test]
fn close_within_a_call_of_the_observer_does_not_wait_for_itself() {
    for_every_reentrant_kind(|kind| {
        for moment in ["acquired", "released", "lost"] {
            let (closer, closes) = unbounded();
            let cell = Arc::new(OnceLock::<Client>::new());
            let closing = Arc::clone(&cell);
            let observer = Events::acting(move |event, _| {
                if event.starts_with(moment) {
                    let (took, ()) = timed(|| closing.get().unwrap().close());
                    let _ = closer.send(took);
                }
            });
            let builder = Client::builder(&RedisServer::shared().url()).observer(observer).drop_timeout(SOON * 6);
            let client = builder.connect().unwrap();
            cell.set(client.clone()).unwrap();
            let lock = kind.get_lock(&client, &kind.fresh());
            let (took, _) = timed(|| {
                let lock = if moment == "lost" { lock.with_lease(ms(300)) } else { lock.clone() };
                lock.lock().map(|guard| {
                    let lost = moment == "lost";
                    assert_eq!(lost, lost && guard.wait_lost(SOON) == Some(Loss::Expired));
                    guard.unlock()
                })
            });
            let closing = closes.recv_timeout(SOON).unwrap();
            assert!(closing < SOON && took < SOON, "{moment}: {closing:?} of {took:?}");
            assert_eq!(kind_of(lock.try_lock()), ErrorKind::Closed);
            let others = kind.get_lock(&crate::support::client(), key(lock.name()));
            // A lost hold ends in Redis with its lease.
            let free = if moment == "lost" { others.try_lock_for(SOON) } else { others.try_lock() };
            assert!(free.unwrap().is_some(), "{moment}");
        }
    });
}

#[test]
fn a_release_that_is_pending_is_made_up_for_by_close() {
    let rig = Rig::start();
    let client = rig.builder().command_timeout(ms(500)).drop_timeout(SOON).connect().unwrap();
    let guard = client.get_lock("job").lock().unwrap();
    rig.proxy.new_connections(NewConnections::Refuse);
    rig.proxy.cut(Scope::All);
    assert!(guard.unlock().is_err());
    rig.proxy.heal();
    client.close();
    rig.assert_no_keys();
}

#[test]
fn calls_end_at_once_while_close_waits_for_others() {
    let rig = Rig::start();
    let client = rig.builder().command_timeout(SOON).drop_timeout(SOON).connect().unwrap();
    let guard = client.get_lock("held").owned().lock().unwrap();
    let slow = client.get_lock("slow");
    thread::scope(|scope| {
        let held = rig.proxy.rule(When::any().containing("slow"), Then::HoldReply);
        let asking = scope.spawn(|| slow.is_locked());
        held.wait_hit(SOON);
        let closing = scope.spawn(|| client.close());
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Closed));
        let other = client.get_lock("other");
        let (took, ()) = timed(|| {
            assert_eq!(kind_of(other.try_lock()), ErrorKind::Closed);
            assert_eq!(kind_of(other.is_locked()), ErrorKind::Closed);
            assert_eq!(kind_of(other.force_unlock()), ErrorKind::Closed);
            client.close();
        });
        assert!(took <= SCHEDULING, "{took:?}");
        assert!(!closing.is_finished(), "the first close waits for the call under way");
        held.release();
        let _ = joined(asking);
        joined(closing);
    });
    rig.assert_no_keys();
}

#[test]
fn cancel_and_close_end_a_caller_between_attempts() {
    for cancels in [true, false] {
        // A busy machine may be late once, but not each time.
        assert!((0..3).any(|_| ended_pauses(cancels) <= ms(150)), "cancelled: {cancels}");
    }
}

/// How long until all callers have ended that found no server and are about to try again.
fn ended_pauses(cancels: bool) -> Duration {
    let (rig, client) = Rig::start().and(Rig::client);
    let held = client.get_lock("held").owned().lock().unwrap();
    let stop = Cancel::new();
    thread::scope(|scope| {
        let (ready, outage) = unbounded();
        let (begin, begins) = unbounded::<()>();
        let mut callers = vec![];
        for number in 0..12 {
            let lock = client.get_lock(format!("job {number}")).with_cancel(&stop);
            let (ready, begins) = (ready.clone(), begins.clone());
            callers.push(scope.spawn(move || {
                let reenters = number % 2 == 0;
                let outer = reenters.then(|| lock.lock().unwrap());
                ready.send(()).unwrap();
                let _ = begins.recv();
                let kind = kind_of(lock.try_lock_for(SOON));
                outer.into_iter().for_each(Guard::keep_until_expiry);
                kind
            }));
        }
        (0..12).for_each(|_| outage.recv_timeout(SOON).unwrap());
        rig.proxy.new_connections(NewConnections::Refuse);
        rig.proxy.cut(Scope::All);
        drop(begin);
        // Pauses grow: after this time a pause lasts from a third of a second to a whole second.
        thread::sleep(ms(1_500));
        let wanted = if cancels { ErrorKind::Cancelled } else { ErrorKind::Closed };
        let (took, kinds) = timed(|| {
            scope.spawn(|| if cancels { stop.cancel() } else { client.close() });
            callers.into_iter().map(joined).collect::<Vec<_>>()
        });
        assert!(kinds.iter().all(|kind| *kind == wanted || *kind == ErrorKind::Lost(Loss::Closed)), "{kinds:?}");
        held.keep_until_expiry();
        took
    })
}
