//! Re-entry of a held lock.

use lockson::{ErrorKind, Loss};
use lockson_harness::RedisServer;

use super::{KINDS, delete, for_every_reentrant_kind, is_free, key, owner};
use crate::support::{SOON, brisk_client, client, elsewhere, fields, kind_of, ms};

#[test]
fn a_holder_takes_it_again_and_gives_it_back_as_often() {
    for_every_reentrant_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let others = kind.get_lock(&client(), key(lock.name()));
        let mut guards = vec![];
        for count in 1..=3 {
            guards.push(lock.lock().unwrap());
            assert_eq!(lock.hold_count(), count);
            assert_eq!(
                kind.member(&client(), key(lock.name())).holder().unwrap().unwrap().hold_count(),
                if kind.counted { count } else { 1 }
            );
        }
        for left in (0..3).rev() {
            assert!(!is_free(&others), "the lock is still held {} times", left + 1);
            guards.pop().unwrap().unlock().unwrap();
            assert_eq!(lock.hold_count(), left);
        }
        assert!(is_free(&others));
    });
}

#[test]
fn every_handle_of_the_name_re_enters() {
    for_every_reentrant_kind(|kind| {
        let client = client();
        let name = kind.fresh();
        let outer = kind.get_lock(&client, &name).lock().unwrap();
        let lock = kind.get_lock(&client.clone(), &name);
        let inner = [
            lock.try_lock().unwrap().unwrap(),
            lock.with_lease(ms(5_000)).lock().unwrap(),
            lock.with_max_hold(ms(5_000)).try_lock_for(ms(100)).unwrap().unwrap(),
        ];
        assert!(inner.iter().all(|guard| owner(guard.hold()) == owner(outer.hold())));
        assert_eq!(lock.hold_count(), 4);
    });
}

#[test]
fn another_thread_does_not_get_in_between_two_releases() {
    for_every_reentrant_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let outer = lock.try_lock().unwrap().unwrap();
        let inner = lock.try_lock().unwrap().unwrap();
        inner.unlock().unwrap();
        assert!(!elsewhere(|| is_free(&lock)));
        outer.unlock().unwrap();
        assert!(elsewhere(|| is_free(&lock)));
    });
}

#[test]
fn nested_guards_may_be_dropped_in_any_order() {
    for_every_reentrant_kind(|kind| {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let lock = kind.get_lock(&client(), &kind.fresh());
            let others = kind.get_lock(&client(), key(lock.name()));
            let mut guards: Vec<_> = (0..3).map(|_| Some(lock.lock().unwrap())).collect();
            for (dropped, index) in order.into_iter().enumerate() {
                assert!(!is_free(&others), "{order:?} after {dropped}");
                assert!(guards.iter().flatten().all(|guard| guard.is_held()), "{order:?} after {dropped}");
                guards[index] = None;
                assert_eq!(lock.hold_count(), 2 - dropped as u64);
            }
            assert!(is_free(&others), "{order:?}");
        }
    });
}

#[test]
fn five_hundred_levels_are_given_back_from_the_outside_in() {
    for_every_reentrant_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let others = kind.get_lock(&client(), key(lock.name()));
        let mut guards: Vec<_> = (0..500).map(|_| lock.lock().unwrap()).collect();
        assert_eq!(lock.hold_count(), 500);
        assert_eq!(
            kind.member(&client(), key(lock.name())).holder().unwrap().unwrap().hold_count(),
            if kind.counted { 500 } else { 1 }
        );
        let last = guards.pop();
        drop(guards);
        assert_eq!(kind.member(&client(), key(lock.name())).holder().unwrap().unwrap().hold_count(), 1);
        assert!(!is_free(&others));
        drop(last);
        assert!(is_free(&others));
    });
}

#[test]
fn re_entry_after_a_loss_says_so_and_takes_nothing() {
    for_every_reentrant_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let others = kind.get_lock(&client(), key(lock.name()));
        let guard = lock.with_lease(ms(200)).lock().unwrap();
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
        let theirs = others.try_lock_for(SOON).unwrap().expect("the time to live is over");
        let before = fields(RedisServer::shared(), key(lock.name()));

        assert_eq!(kind_of(lock.lock()), ErrorKind::Lost(Loss::Expired));
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::Lost(Loss::Expired));
        assert_eq!(kind_of(lock.try_lock_for(ms(50))), ErrorKind::Lost(Loss::Expired));
        assert_eq!(kind_of(lock.with_lease(ms(50)).try_lock()), ErrorKind::Lost(Loss::Expired));
        assert_eq!(fields(RedisServer::shared(), key(lock.name())), before);
        assert_eq!(lock.hold_count(), 0);

        // Once the lost guard is gone, the thread is like any other.
        drop(guard);
        assert!(!is_free(&lock));
        theirs.unlock().unwrap();
        assert!(is_free(&lock));
    });
}

#[test]
fn re_entry_finds_out_that_the_lock_is_gone() {
    for_every_reentrant_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let guard = lock.lock().unwrap();
        delete(&lock);
        assert!(guard.is_held(), "the client does not know of the loss");
        assert_eq!(kind_of(lock.lock()), ErrorKind::Lost(Loss::Gone));
        assert!(!lock.is_locked().unwrap(), "the lock was not taken again");
        assert_eq!(guard.lost(), Some(Loss::Gone));
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Gone));
    });
}

#[test]
fn a_re_entry_finds_another_owner() {
    for_every_reentrant_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let others = kind.get_lock(&client(), key(lock.name()));
        let guard = lock.lock().unwrap();
        delete(&lock);
        let theirs = others.lock().unwrap();
        let before = fields(RedisServer::shared(), key(lock.name()));
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::Lost(Loss::Taken));
        assert_eq!(fields(RedisServer::shared(), key(lock.name())), before);
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Taken));
        assert_eq!(fields(RedisServer::shared(), key(lock.name())), before);
        theirs.unlock().unwrap();
    });
}

#[test]
fn every_guard_of_a_lost_hold_says_so() {
    for_every_reentrant_kind(|kind| {
        let lock = kind.get_lock(&brisk_client(), &kind.fresh());
        let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
        delete(&lock);
        assert_eq!(inner.wait_lost(SOON), Some(Loss::Gone));
        assert!(!outer.is_held() && !inner.is_held());
        assert_eq!(kind_of(inner.unlock()), ErrorKind::Lost(Loss::Gone));
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::Lost(Loss::Gone), "the outer guard is there yet");
        assert_eq!(kind_of(outer.unlock()), ErrorKind::Lost(Loss::Gone));
        assert!(is_free(&lock));
    });
}

#[test]
fn a_holder_of_a_kind_that_is_held_once_is_told_so_at_once() {
    for kind in KINDS.iter().filter(|kind| !kind.reenters) {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let guard = lock.lock().unwrap();
        for outcome in [lock.lock().map(Some), lock.try_lock(), lock.try_lock_for(SOON)] {
            assert_eq!(kind_of(outcome), ErrorKind::AlreadyHeld, "{}", kind.label);
        }
        assert!(guard.is_held());
        assert_eq!(kind.member(&client(), key(lock.name())).holder().unwrap().unwrap().hold_count(), 1);
        assert!(!elsewhere(|| is_free(&lock)));
        guard.unlock().unwrap();
        assert!(is_free(&lock));
    }
}
