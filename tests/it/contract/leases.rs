//! The life of a hold: leases, the watchdog, limits.

use super::{delete, for_a_lock_of_every_kind, for_a_lock_of_every_reentrant_kind, for_every_kind, key, owner};
use crate::support::prelude::*;

#[test]
fn a_lease_ends_by_itself_and_not_before() {
    for_every_kind(|kind| {
        let holder = brisk_client();
        // Another hold keeps the watchdog busy.
        let _renewed = kind.get_lock(&holder, &kind.fresh()).lock().unwrap();
        let name = kind.fresh();
        let others = kind.get_lock(&client(), &name);
        let (lease, slack) = (ms(700), ms(1)); // Redis counts in whole ms
        let started = Instant::now();
        let guard = kind.get_lock(&holder, &name).with_lease(lease).lock().unwrap();
        let theirs = others.try_lock_for(SOON).unwrap().unwrap();
        let after = started.elapsed();
        assert!(after + slack >= lease, "granted after {after:?}");
        assert_eq!(guard.lost(), Some(Loss::Expired));
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Expired));
        assert!(theirs.is_held());
        theirs.unlock().unwrap();
    });
}

#[test]
fn the_watchdog_keeps_a_hold_beyond_its_time_to_live() {
    for_every_kind(|kind| {
        let lock = kind.get_lock(&brisk_client(), &kind.fresh());
        let others = kind.get_lock(&client(), key(lock.name()));
        let guard = lock.lock().unwrap();
        let owner = owner(guard.hold()).to_owned();
        let started = Instant::now();
        while started.elapsed() < TTL * 3 / 2 {
            assert!(guard.is_held(), "after {:?}", started.elapsed());
            assert!(others.try_lock_for(TICK).unwrap().is_none(), "after {:?}", started.elapsed());
            assert_eq!(kind.member(&client(), key(others.name())).holder().unwrap().unwrap().owner(), owner);
        }
        guard.unlock().unwrap();
        assert!(is_free(&others));
    });
}

#[test]
fn a_released_hold_is_renewed_no_more() {
    for_every_kind(|kind| {
        let client = brisk_client();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.lock().unwrap();
        let mut server = RedisServer::shared().connection();
        let state: Vec<u8> = redis::cmd("DUMP").arg(key(lock.name())).query(&mut server).unwrap();
        guard.unlock().unwrap();
        // If the released owner were renewed, the restored state would outlast the short time to live.
        let () = redis::cmd("RESTORE").arg(key(lock.name())).arg(400).arg(state).query(&mut server).unwrap();
        assert!(!is_free(&lock));
        assert!(lock.try_lock_for(SOON).unwrap().is_some());
    });
}

#[test]
fn max_hold_ends_the_renewal() {
    for_every_kind(|kind| {
        let lock = kind.get_lock(&brisk_client(), &kind.fresh());
        let most = ms(1_000);
        let started = Instant::now();
        let guard = lock.with_max_hold(most).lock().unwrap();
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
        let lost_after = started.elapsed();
        // Renewed at least once after half of the longest time.
        assert!(lost_after >= TTL + most / 2, "lost after {lost_after:?}");
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Expired));
        assert!(lock.try_lock_for(SOON).unwrap().is_some());
    });
}

#[test]
fn an_owned_handle_has_the_same_modifiers() {
    for_every_kind(|kind| {
        let owned = kind.get_lock(&brisk_client(), &kind.fresh()).owned();
        let leased = owned.with_lease(ms(300)).lock().unwrap();
        assert_eq!(leased.wait_lost(SOON), Some(Loss::Expired));
        drop(leased);
        let limited = owned.with_max_hold(ms(300)).try_lock_for(SOON).unwrap().unwrap();
        assert_eq!(limited.wait_lost(SOON), Some(Loss::Expired));
        drop(limited);
        let held = owned.try_lock_for(SOON).unwrap().unwrap();
        let cancel = Cancel::new();
        cancel.cancel();
        assert_eq!(kind_of(owned.with_cancel(&cancel).lock()), ErrorKind::Cancelled);
        held.unlock().unwrap();
    });
}

#[test]
fn extend_raises_the_time_to_live_and_never_lowers_it() {
    for_a_lock_of_every_kind(|_, lock| {
        let guard = lock.with_lease(ms(1_000)).lock().unwrap();
        guard.extend(ms(20_000)).unwrap();
        assert!(guard.remaining() > ms(19_000));
        assert!(ttl_ms(RedisServer::shared(), key(lock.name())) > 19_000);
        guard.extend(ms(500)).unwrap();
        assert!(guard.remaining() > ms(18_000));
        assert!(ttl_ms(RedisServer::shared(), key(lock.name())) > 18_000);
        // The hold itself can be extended from any thread.
        let hold = guard.hold().clone();
        elsewhere(|| hold.extend(ms(40_000)).unwrap());
        assert!(guard.remaining() > ms(39_000));
        guard.unlock().unwrap();
        assert_eq!(kind_of(hold.extend(ms(1_000))), ErrorKind::NotHeld);
        assert!(!lock.is_locked().unwrap());
    });
}

#[test]
fn extending_finds_a_loss() {
    for_a_lock_of_every_kind(|_, lock| {
        let guard = lock.lock().unwrap();
        delete(&lock);
        assert_eq!(kind_of(guard.extend(ms(1_000))), ErrorKind::Lost(Loss::Gone));
        assert!(!lock.is_locked().unwrap());
        assert_eq!(guard.lost(), Some(Loss::Gone));
        assert_eq!(kind_of(guard.extend(ms(1_000))), ErrorKind::Lost(Loss::Gone));
    });
}

#[test]
fn the_longest_lease_is_a_year() {
    for_a_lock_of_every_kind(|_, lock| {
        let year = ms(365 * 24 * 60 * 60 * 1_000);
        let guard = lock.with_lease(year).lock().unwrap();
        assert!(ttl_ms(RedisServer::shared(), key(lock.name())) > 364 * 24 * 60 * 60 * 1_000);
        assert!(guard.is_held());
        guard.unlock().unwrap();
        assert!(is_free(&lock));
    });
}

#[test]
fn the_shortest_lease_never_leaves_a_lock_behind() {
    for_a_lock_of_every_kind(|_, lock| {
        for _ in 0..20 {
            // The lease is over before the answer, or almost: granted or not, the lock is soon free.
            drop(lock.with_lease(ms(1)).try_lock().unwrap());
        }
        let guard = lock.try_lock_for(SOON).unwrap();
        assert!(guard.is_some());
        thread::scope(|scope| scope.spawn(|| assert!(!is_free(&lock))).join()).unwrap();
    });
}

#[test]
fn an_inner_guard_has_no_part_of_an_earlier_extend() {
    for_a_lock_of_every_reentrant_kind(|_, lock| {
        let outer = lock.lock().unwrap();
        outer.extend(SOON * 10).unwrap();
        let inner = lock.with_lease(ms(300)).lock().unwrap();
        outer.unlock().unwrap();
        let left = inner.remaining();
        assert!(left <= ms(300), "{left:?}");
    });
}
