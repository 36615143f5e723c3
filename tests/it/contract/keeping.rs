//! Holds that outlive their guard: left to the time to live, or to the lock's own `unlock`.

use super::{
    for_a_lock_of_every_kind, for_a_lock_of_every_reentrant_kind, for_every_kind, for_every_reentrant_kind, key, owner,
};
use crate::support::prelude::*;

#[test]
fn a_kept_hold_keeps_its_own_thread_out_too() {
    for_a_lock_of_every_kind(|kind, lock| {
        let started = Instant::now();
        let guard = lock.with_lease(ms(1_500)).lock().unwrap();
        let hold = guard.hold().clone();
        guard.keep_until_expiry();
        assert!(!is_free(&lock), "the thread of the kept hold must wait too");
        assert_eq!((lock.hold_count(), lock.is_held_by_current_thread(), hold.is_held()), (0, false, false));
        assert_eq!(hold.lost(), None, "the hold was given up, not lost");
        assert_eq!(kind_of(lock.unlock()), ErrorKind::NotHeld);
        assert!(lock.is_locked().unwrap());
        assert!(!is_free(&kind.get_lock(&client(), key(lock.name()))));
        let guard = lock.try_lock_for(SOON).unwrap().expect("the time to live ends");
        let after = started.elapsed();
        assert!(after + ms(1) >= ms(1_500), "{after:?}");
        assert_ne!(owner(guard.hold()), owner(&hold), "another hold, so another owner");
    });
}

#[test]
fn a_kept_hold_is_renewed_no_more() {
    for_every_kind(|kind| {
        let client = brisk_client();
        let _renewed = kind.get_lock(&client, &kind.fresh()).lock().unwrap();
        let lock = kind.get_lock(&client, &kind.fresh());
        lock.lock().unwrap().keep_until_expiry();
        assert!(client.held().iter().all(|held| held.name() != key(lock.name())));
        assert!(lock.try_lock_for(SOON).unwrap().is_some());
    });
}

#[test]
fn a_kept_inner_section_outlives_the_outer_release() {
    for_a_lock_of_every_reentrant_kind(|_, lock| {
        let outer = lock.lock().unwrap();
        let started = Instant::now();
        lock.with_lease(ms(800)).lock().unwrap().keep_until_expiry();
        assert!(outer.is_held());
        assert_eq!(lock.hold_count(), 1);
        outer.unlock().unwrap();
        assert!(!is_free(&lock), "no grant comes before the end of the kept hold");
        assert!(lock.try_lock_for(SOON).unwrap().is_some());
        let after = started.elapsed();
        assert!(after + ms(1) >= ms(800), "{after:?}");
    });
}

#[test]
fn a_kept_inner_section_outlives_the_close() {
    for_every_reentrant_kind(|kind| {
        let ours = client();
        let lock = kind.get_lock(&ours, &kind.fresh());
        let outer = lock.lock().unwrap();
        let started = Instant::now();
        lock.with_lease(ms(800)).lock().unwrap().keep_until_expiry();
        ours.close();
        assert_eq!(outer.lost(), Some(Loss::Closed));
        let others = kind.get_lock(&client(), key(lock.name()));
        assert!(!is_free(&others), "no grant comes before the end of the kept hold");
        assert!(others.try_lock_for(SOON).unwrap().is_some());
        let after = started.elapsed();
        assert!(after + ms(1) >= ms(800) && after < ms(800) + SCHEDULING, "{after:?}");
    });
}

#[test]
fn a_kept_inner_section_has_what_extend_gave_it() {
    for_a_lock_of_every_reentrant_kind(|_, lock| {
        let outer = lock.lock().unwrap();
        outer.extend(SOON * 10).unwrap();
        let inner = lock.with_lease(ms(100)).lock().unwrap();
        let started = Instant::now();
        inner.extend(ms(800)).unwrap();
        inner.keep_until_expiry();
        outer.unlock().unwrap();
        assert!(lock.try_lock_for(SOON).unwrap().is_some(), "what the outer section had before is over with it");
        let after = started.elapsed();
        assert!(after + ms(1) >= ms(800), "{after:?}");
    });
}

#[test]
fn a_hold_without_guard_is_left_to_unlock() {
    for_every_kind(|kind| {
        let client = brisk_client();
        let lock = kind.get_lock(&client, &kind.fresh());
        lock.lock().unwrap().leave_to_unlock();
        assert_eq!((lock.hold_count(), client.held()[0].hold_count()), (1, 1));
        let others = kind.get_lock(&crate::support::client(), key(lock.name()));
        assert!(others.try_lock_for(TTL * 5 / 4).unwrap().is_none(), "the hold is renewed");
        // Any handle of the client will do.
        kind.get_lock(&client, key(lock.name())).unlock().unwrap();
        assert!(is_free(&others));
        assert_eq!(kind_of(lock.unlock()), ErrorKind::NotHeld);
    });
}

#[test]
fn manual_holds_nest_with_each_other_and_with_guards() {
    for_a_lock_of_every_reentrant_kind(|_, lock| {
        lock.lock().unwrap().leave_to_unlock();
        let guard = lock.lock().unwrap();
        lock.lock().unwrap().leave_to_unlock();
        lock.unlock().unwrap();
        lock.unlock().unwrap();
        assert_eq!(kind_of(lock.unlock()), ErrorKind::NotHeld, "the remaining hold belongs to the guard");
        assert!(guard.is_held());
        assert_eq!(lock.hold_count(), 1);
        assert!(!elsewhere(|| is_free(&lock)));
        guard.unlock().unwrap();
        assert!(elsewhere(|| is_free(&lock)));
    });
}

#[test]
fn a_lost_manual_hold_bars_its_thread_until_unlock() {
    for_every_kind(|kind| {
        let client = client();
        let lock = kind.get_lock(&client, &kind.fresh());
        lock.with_lease(ms(100)).lock().unwrap().leave_to_unlock();
        eventually(SOON, "the lease ends", || client.held().is_empty());
        for _ in 0..2 {
            assert_eq!(kind_of(lock.try_lock()), ErrorKind::Lost(Loss::Expired));
        }
        let theirs = kind.get_lock(&crate::support::client(), key(lock.name())).try_lock_for(SOON).unwrap().unwrap();
        assert_eq!(kind_of(lock.unlock()), ErrorKind::Lost(Loss::Expired));
        assert_eq!(kind_of(lock.unlock()), ErrorKind::NotHeld);
        assert!(!is_free(&lock), "the new holder was left alone");
        theirs.unlock().unwrap();
        drop(lock.try_lock().unwrap().expect("the loss was given up"));
    });
}

#[test]
fn once_per_interval_one_of_all_who_ask_gets_it() {
    for_a_lock_of_every_kind(|kind, lock| {
        let others = kind.get_lock(&client(), key(lock.name()));
        let interval = ms(1_000);
        for _ in 0..2 {
            let asked = Instant::now();
            assert!(lock.once_per(interval).unwrap());
            assert!(!lock.is_held_by_current_thread(), "no hold is left to release");
            let refused = [lock.once_per(interval).unwrap(), others.once_per(interval).unwrap()];
            assert!(refused == [false, false] || asked.elapsed() >= interval, "{refused:?}");
            drop(others.try_lock_for(SOON).unwrap().expect("the interval ends"));
            assert!(asked.elapsed() + ms(1) >= interval, "{:?}", asked.elapsed());
        }
        assert_eq!(kind_of(lock.once_per(ms(0))), ErrorKind::BadInput);
    });
}
