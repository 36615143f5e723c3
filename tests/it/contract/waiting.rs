//! Waiting: limits, early ends, and the waiter that is served.

use super::{Kind, for_a_lock_of_every_kind, for_every_kind, key, three_waiters};
use crate::support::handed_over;
use crate::support::prelude::*;

#[test]
fn a_busy_lock_is_none_after_the_wait_and_not_much_later() {
    for_a_lock_of_every_kind(|kind, lock| {
        let _guard = lock.lock().unwrap();
        let others = kind.get_lock(&client(), key(lock.name()));
        let check = |wait: Duration| {
            let (took, got) = timed(|| others.try_lock_for(wait).unwrap().is_some());
            assert!(!got, "{wait:?}");
            assert!(took >= wait, "{wait:?} ended after {took:?}");
            assert!(took <= wait + GRACE + SCHEDULING, "{wait:?} ended after {took:?}");
            took - wait
        };
        check(Duration::ZERO);
        check(Duration::from_nanos(1));
        check(ms(1));
        // Longer than a waiter's longest sleep.
        check(ms(1_300));
        // A busy machine may be late now and then, but not always.
        let mut least = Duration::MAX;
        let is_in_time = |_| {
            least = least.min(check(ms(60)));
            least <= GRACE
        };
        assert!((0..40).any(is_in_time), "at best {least:?} late");
    });
}

#[test]
fn a_waiter_in_the_local_queue_ends_its_wait_in_time() {
    for_a_lock_of_every_kind(|kind, lock| {
        let _guard = lock.lock().unwrap();
        let others = kind.get_lock(&client(), key(lock.name()));
        thread::scope(|scope| {
            let wait = |wait| {
                let others = &others;
                move || timed(|| others.try_lock_for(wait).unwrap().is_some())
            };
            let first = scope.spawn(wait(ms(1_500)));
            kind.await_waiter(RedisServer::shared(), key(lock.name()));
            let behind: Vec<_> = (0..8).map(|_| scope.spawn(wait(ms(300)))).collect();
            for waiter in behind {
                let (took, got) = joined(waiter);
                assert!(!got && took >= ms(300) && took <= ms(300) + GRACE + SCHEDULING, "{took:?}");
            }
            assert!(!joined(first).1);
        });
    });
}

#[test]
fn a_try_does_not_wait_behind_those_who_do() {
    for_a_lock_of_every_kind(|kind, lock| {
        let guard = lock.lock().unwrap();
        let others = kind.get_lock(&client(), key(lock.name()));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| others.try_lock_for(SOON).unwrap().is_some());
            kind.await_waiter(RedisServer::shared(), key(lock.name()));
            let (took, got) = timed(|| is_free(&others));
            assert!(!got && took <= GRACE + SCHEDULING, "{took:?}");
            guard.unlock().unwrap();
            assert!(joined(waiter));
        });
    });
}

#[test]
fn a_release_wakes_a_waiter_of_another_client_at_once() {
    for_every_kind(|kind| wakes_at_once(kind, |_| client()));
}

#[test]
fn a_release_wakes_a_waiter_of_the_same_client_at_once() {
    for_every_kind(|kind| wakes_at_once(kind, Clone::clone));
}

/// The time to live is 30 s and a waiter asks again each second: a faster grant proves a wake-up.
fn wakes_at_once(kind: &Kind, other: fn(&lockson::Client) -> lockson::Client) {
    let ours = client();
    let theirs = other(&ours);
    let late = median(11, |round| {
        let lock = kind.get_lock(&ours, &kind.fresh());
        let others = kind.get_lock(&theirs, key(lock.name()));
        let guard = lock.lock().unwrap();
        let waits = || kind.await_waiter(RedisServer::shared(), key(lock.name()));
        // By unlocking and by dropping, in turn.
        let late = handed_over(&others, waits, || if round % 2 == 0 { guard.unlock().unwrap() } else { drop(guard) });
        assert!(late <= ms(1_000) + GRACE + SCHEDULING, "{late:?}");
        late
    });
    assert!(late <= kind.usual_wake(), "half of the wake-ups took longer than {late:?}");
}

#[test]
fn the_longest_wait_there_is_has_no_end() {
    for_every_kind(|kind| {
        for wait in [Duration::MAX, Duration::MAX / 2, Duration::from_secs(u64::MAX / 1_000)] {
            let lock = kind.get_lock(&client(), &kind.fresh());
            let guard = lock.lock().unwrap();
            let others = kind.get_lock(&client(), key(lock.name()));
            thread::scope(|scope| {
                let waiter = scope.spawn(move || others.try_lock_for(wait).unwrap().is_some());
                kind.await_waiter(RedisServer::shared(), key(lock.name()));
                guard.unlock().unwrap();
                assert!(joined(waiter));
            });
        }
    });
}

#[test]
fn a_cancelled_wait_ends_at_once_and_holds_nothing() {
    for_every_kind(|kind| {
        // A busy machine may be late now and then, but not always.
        assert!((0..10).any(|_| cancelled_wait(kind) <= ms(250)), "always later");
    });
}

/// How long until all cancelled waiters have ended.
fn cancelled_wait(kind: &Kind) -> Duration {
    let lock = kind.get_lock(&client(), &kind.fresh());
    let guard = lock.lock().unwrap();
    let before = fields(RedisServer::shared(), key(lock.name()));
    let stop = Cancel::new();
    let others = kind.get_lock(&client(), key(lock.name()));
    let cancellable = others.with_cancel(&stop);
    thread::scope(|scope| {
        let waiters = three_waiters(scope, &cancellable);
        let patient = scope.spawn(|| others.try_lock_for(SOON * 2).unwrap().is_some());
        kind.await_waiter(RedisServer::shared(), key(lock.name()));
        let (took, ()) = timed(|| {
            stop.clone().cancel();
            assert_eq!(waiters.map(joined), [ErrorKind::Cancelled; 3]);
        });
        assert!(stop.is_cancelled());
        assert!(!patient.is_finished(), "a waiter without the cancelled handle waits on");
        assert_eq!(fields(RedisServer::shared(), key(lock.name())), before);
        guard.unlock().unwrap();
        assert!(joined(patient));
        assert!(!lock.is_locked().unwrap());
        took
    })
}

#[test]
fn a_used_token_refuses_everything_later() {
    for_every_kind(|kind| {
        let stop = Cancel::new();
        let lock = kind.get_lock(&client(), &kind.fresh()).with_cancel(&stop);
        drop(lock.lock().unwrap());
        let guard = lock.lock().unwrap();
        stop.cancel();
        assert!(guard.is_held(), "a hold is no wait");
        assert_eq!(kind_of(lock.lock()), ErrorKind::Cancelled, "also a re-entry");
        drop(guard);
        for outcome in [lock.lock().map(Some), lock.try_lock(), lock.try_lock_for(ms(100))] {
            assert_eq!(kind_of(outcome), ErrorKind::Cancelled);
        }
        assert!(!lock.is_locked().unwrap());
    });
}

#[test]
fn a_waiter_asks_at_the_moment_a_lease_ends() {
    for_every_kind(|kind| {
        let (ours, theirs) = (client(), client());
        let lease = ms(400);
        // Without the time to live of the holder, a waiter sleeps for a second.
        let took = median(5, |_| {
            let lock = kind.get_lock(&ours, &kind.fresh());
            let others = kind.get_lock(&theirs, lock.name());
            lock.with_lease(lease).lock().unwrap().keep_until_expiry();
            timed(|| others.lock().unwrap().unlock().unwrap()).0
        });
        assert!(took <= lease + kind.usual_wake(), "{took:?}");
    });
}
