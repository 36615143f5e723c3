//! At most one holder at a time.

use std::sync::atomic::AtomicU64;

use super::{for_a_lock_of_every_kind, for_every_kind};
use crate::support::prelude::*;

#[test]
fn a_try_that_finds_it_busy_changes_nothing() {
    for_every_kind(|kind| {
        let (server, name) = (RedisServer::shared(), kind.fresh());
        let _guard = kind.get_lock(&client(), &name).with_lease(ms(20_000)).lock().unwrap();
        let before = fields(server, &name);
        let others = kind.get_lock(&client(), &name).with_lease(ms(3_600_000));
        for _ in 0..3 {
            assert!(!is_free(&others));
        }
        assert_eq!(fields(server, &name), before);
        assert!(ttl_ms(server, &name) <= 20_000);
    });
}

#[test]
fn of_many_threads_and_clients_one_is_inside() {
    const ROUNDS: u64 = 40;
    for_every_kind(|kind| {
        let name = kind.fresh();
        let (inside, counter) = (AtomicBool::new(false), AtomicU64::new(0));
        let work = |lock: lockson::Lock| {
            for _ in 0..ROUNDS {
                let guard = lock.lock().unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "another thread is inside");
                let seen = counter.load(Ordering::SeqCst);
                thread::yield_now();
                counter.store(seen + 1, Ordering::SeqCst);
                inside.store(false, Ordering::SeqCst);
                guard.unlock().unwrap();
            }
        };
        thread::scope(|scope| {
            for client in [client(), client(), client()] {
                for _ in 0..3 {
                    let lock = kind.get_lock(&client, &name);
                    scope.spawn(move || work(lock));
                }
            }
        });
        assert_eq!(counter.load(Ordering::SeqCst), 9 * ROUNDS);
    });
}

#[test]
fn clones_of_a_client_are_one_client() {
    for_every_kind(|kind| {
        let client = client();
        let clone = client.clone();
        assert_eq!(client.id(), clone.id());
        let name = kind.fresh();
        let guard = kind.get_lock(&client, &name).lock().unwrap();
        assert!(kind.get_lock(&clone, &name).is_held_by_current_thread());
        assert_eq!(clone.held().len(), guard.hold().members().len());
        drop(client);
        guard.unlock().unwrap();
        assert!(clone.held().is_empty());
    });
}

#[test]
fn two_clients_in_one_thread_are_two_owners() {
    for_every_kind(|kind| {
        let (ours, theirs) = (client(), client());
        assert_ne!(ours.id(), theirs.id());
        let name = kind.fresh();
        let _guard = kind.get_lock(&ours, &name).lock().unwrap();
        let theirs = kind.get_lock(&theirs, &name);
        assert!(theirs.try_lock_for(ms(100)).unwrap().is_none(), "the thread waits in vain for its own lock");
        assert!(!theirs.is_held_by_current_thread());
    });
}

#[test]
fn an_owned_take_is_an_owner_of_its_own() {
    for_a_lock_of_every_kind(|_, lock| {
        let guard = lock.lock().unwrap();
        assert!(lock.owned().try_lock().unwrap().is_none(), "an owned take does not re-enter the thread's hold");
        guard.unlock().unwrap();

        let owned = lock.owned().lock().unwrap();
        assert!(lock.owned().try_lock().unwrap().is_none(), "nor the hold of another owned guard");
        assert!(lock.owned().try_lock_for(ms(50)).unwrap().is_none());
        assert!(!is_free(&lock), "nor does the thread re-enter the owned hold");
        assert!(!lock.is_held_by_current_thread());
        owned.unlock().unwrap();
        assert!(is_free(&lock));
    });
}
