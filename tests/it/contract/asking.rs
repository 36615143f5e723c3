//! Questions to a lock, a hold and a client.

use super::for_every_single_kind;
use crate::support::prelude::*;

#[test]
fn answers_follow_the_lock() {
    for_every_single_kind(|kind| {
        if !kind.reenters {
            return;
        }
        let lock = kind.get_lock(&client(), &kind.fresh());
        let ask = || {
            (
                lock.is_locked().unwrap(),
                lock.is_held_by_current_thread(),
                lock.hold_count(),
                lock.holder().unwrap().is_some(),
                lock.remaining_time_to_live().unwrap().is_some(),
            )
        };
        assert_eq!(ask(), (false, false, 0, false, false));
        let outer = lock.lock().unwrap();
        assert_eq!(ask(), (true, true, 1, true, true));
        let inner = lock.lock().unwrap();
        assert_eq!(ask(), (true, true, 2, true, true));
        drop(outer);
        assert_eq!(ask(), (true, true, 1, true, true));
        drop(inner);
        assert_eq!(ask(), (false, false, 0, false, false));
    });
}

#[test]
fn another_thread_and_another_client_hold_nothing() {
    for_every_single_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let guard = lock.lock().unwrap();
        elsewhere(|| {
            assert_eq!((lock.is_held_by_current_thread(), lock.hold_count()), (false, 0));
            assert!(lock.is_locked().unwrap());
            assert_eq!(lock.holder().unwrap().unwrap().owner(), guard.owner());
        });
        let others = kind.get_lock(&client(), lock.name());
        assert_eq!((others.is_held_by_current_thread(), others.hold_count()), (false, 0));
        assert_eq!(others.holder().unwrap().unwrap().owner(), guard.owner());
    });
}

#[test]
fn the_owner_begins_with_the_client_and_is_new_for_every_hold() {
    for_every_single_kind(|kind| {
        let client = client();
        let lock = kind.get_lock(&client, &kind.fresh());
        let mut seen = vec![];
        for _ in 0..3 {
            let guard = lock.lock().unwrap();
            assert!(guard.owner().starts_with(client.id()), "{} of {}", guard.owner(), client.id());
            assert_eq!(lock.holder().unwrap().unwrap().owner(), guard.owner());
            assert!(!seen.contains(&guard.owner().to_owned()), "{} again", guard.owner());
            seen.push(guard.owner().to_owned());
        }
    });
}

#[test]
fn the_time_to_live_is_what_redis_has() {
    for_every_single_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let guard = lock.lock().unwrap();
        let left = lock.remaining_time_to_live().unwrap().unwrap();
        assert!(left > ms(29_000) && left <= ms(30_000), "{left:?}");
        assert!(guard.remaining() > ms(28_700) && guard.remaining() <= ms(29_700), "{:?}", guard.remaining());
        drop(guard);
        let guard = lock.with_lease(ms(3_600_000)).lock().unwrap();
        let left = lock.remaining_time_to_live().unwrap().unwrap();
        assert!(left > ms(3_599_000) && left <= ms(3_600_000), "{left:?}");
        RedisServer::shared().run(&["PERSIST", lock.name()]);
        assert_eq!(lock.remaining_time_to_live().unwrap(), Some(Duration::MAX));
        guard.unlock().unwrap();
        assert_eq!(lock.remaining_time_to_live().unwrap(), None);
    });
}
