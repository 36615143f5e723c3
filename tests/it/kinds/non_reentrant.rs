//! The special property of non-reentrant locks: the holder cannot take the lock again.

use std::thread;

use lockson::{Client, ErrorKind, Lock, Loss};
use lockson_harness::{RedisServer, eventually};

use crate::support::{
    SCHEDULING, SOON, brisk_client, client, elsewhere, fields, fresh, joined, kind_of, ms, timed, ttl_ms,
};

type Kind = fn(&Client, &str) -> Lock;

const KINDS: [Kind; 2] =
    [|client, name| client.get_non_reentrant_lock(name), |client, name| client.get_non_reentrant_fair_lock(name)];
const REENTRANT_KINDS: [Kind; 2] = [|client, name| client.get_lock(name), |client, name| client.get_fair_lock(name)];

#[test]
fn a_second_take_by_the_holder_is_an_error_at_once() {
    let server = RedisServer::shared();
    for kind in KINDS {
        let (client, name) = (client(), fresh("once"));
        let lock = kind(&client, &name);
        let guard = lock.lock().unwrap();
        let before = fields(server, &name);
        // Through the same handle, a changed copy, and another handle of the same name.
        for lock in [&lock, &lock.with_lease(ms(60_000)), &lock.with_max_hold(ms(500)), &kind(&client.clone(), &name)] {
            for again in [
                timed(|| lock.lock().map(Some)),
                timed(|| lock.try_lock()),
                timed(|| lock.try_lock_for(SOON)),
                timed(|| lock.try_lock_for(std::time::Duration::ZERO)),
            ] {
                let error = again.1.unwrap_err();
                assert_eq!((error.kind(), error.lock_name()), (ErrorKind::AlreadyHeld, Some(&*name)), "{error}");
                assert!(again.0 <= SCHEDULING, "{:?}", again.0);
            }
            assert!(lock.is_held_by_current_thread() && lock.hold_count() == 1);
        }
        assert_eq!(fields(server, &name), before);
        assert!(ttl_ms(server, &name) <= 30_000, "no time to live was raised");
        assert!(guard.is_held());
        guard.unlock().unwrap();
        assert!(!lock.is_locked().unwrap(), "one release frees the lock");
        assert!(lock.try_lock().unwrap().is_some(), "and then the lock can be taken again");
    }
}

#[test]
fn a_refused_take_leaves_nothing_in_the_queue() {
    let server = RedisServer::shared();
    let name = fresh("once");
    let lock = client().get_non_reentrant_fair_lock(&name);
    let guard = lock.lock().unwrap();
    assert_eq!(kind_of(lock.lock()), ErrorKind::AlreadyHeld);
    assert_eq!(kind_of(lock.try_lock_for(ms(100))), ErrorKind::AlreadyHeld);
    for key in [format!("redisson_lock_queue:{{{name}}}"), format!("redisson_lock_timeout:{{{name}}}")] {
        assert_eq!(server.query::<i64>(&["EXISTS", &key]), 0, "{key}");
    }
    guard.unlock().unwrap();
    assert!(lock.try_lock().unwrap().is_some());
}

#[test]
fn every_other_thread_waits_for_it() {
    for kind in KINDS {
        let (client, name) = (client(), fresh("once"));
        for others in [client.clone(), crate::support::client()] {
            let lock = kind(&others, &name);
            let guard = kind(&client, &name).lock().unwrap();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let guard = lock.lock().unwrap();
                    assert_eq!(kind_of(lock.try_lock()), ErrorKind::AlreadyHeld, "the other owner holds the lock now");
                    guard.unlock().unwrap();
                });
                let start = crate::support::channel(&name);
                let listens = || RedisServer::shared().channels().iter().any(|channel| channel.starts_with(&start));
                eventually(SOON, "it waits", listens);
                assert!(elsewhere(|| lock.try_lock().unwrap().is_none()));
                assert!(!waiter.is_finished());
                guard.unlock().unwrap();
                joined(waiter);
            });
            assert!(!lock.is_locked().unwrap());
        }
    }
}

#[test]
fn an_owned_take_waits_as_another_owner() {
    for kind in KINDS {
        let lock = kind(&client(), &fresh("once"));
        let guard = lock.lock().unwrap();
        assert!(lock.owned().try_lock().unwrap().is_none());
        assert!(lock.owned().try_lock_for(ms(50)).unwrap().is_none());
        guard.unlock().unwrap();
        let owned = lock.owned().lock().unwrap();
        assert!(lock.owned().try_lock().unwrap().is_none());
        assert!(lock.try_lock().unwrap().is_none(), "the thread does not hold the owned guard's lock");
        owned.unlock().unwrap();
        assert!(lock.try_lock().unwrap().is_some());
    }
}

#[test]
fn a_holder_that_lost_it_is_told_that_and_not_that_it_holds_it() {
    for kind in KINDS {
        let lock = kind(&brisk_client(), &fresh("once"));
        let guard = lock.lock().unwrap();
        RedisServer::shared().run(&["DEL", lock.name()]);
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::Lost(Loss::Gone));
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Gone));
        lock.lock().unwrap().unlock().unwrap();
    }
}

#[test]
fn a_hold_of_another_kind_by_the_same_thread_is_a_hold() {
    for (kind, plain) in KINDS.into_iter().zip(REENTRANT_KINDS) {
        let (client, name) = (client(), fresh("once"));
        let outer = plain(&client, &name).lock().unwrap();
        assert_eq!(
            kind_of(kind(&client, &name).lock()),
            ErrorKind::AlreadyHeld,
            "the thread would wait for its own lock"
        );
        outer.unlock().unwrap();
        let outer = kind(&client, &name).lock().unwrap();
        // A reentrant handle re-enters the hold of a non-reentrant handle, as with Redisson.
        let inner = plain(&client, &name).lock().unwrap();
        assert_eq!(inner.owner(), outer.owner());
        drop((outer, inner));
        assert!(!plain(&client, &name).is_locked().unwrap());
    }
}

#[test]
fn a_hold_left_to_unlock_counts_as_one() {
    for kind in KINDS {
        let lock = kind(&client(), &fresh("once"));
        lock.lock().unwrap().leave_to_unlock();
        assert_eq!(kind_of(lock.lock()), ErrorKind::AlreadyHeld);
        lock.unlock().unwrap();
        assert_eq!(kind_of(lock.unlock()), ErrorKind::NotHeld);
        assert!(lock.try_lock().unwrap().is_some());
    }
}
