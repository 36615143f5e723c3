//! The end of a client: by `close`, and with its last handle.

use super::{Kind, for_every_kind, for_every_reentrant_kind, key, three_waiters};
use crate::support::prelude::*;

#[test]
fn close_ends_every_wait_with_closed() {
    for_every_kind(|kind| {
        // A busy machine may be late now and then, but not always.
        assert!((0..10).any(|_| closed_wait(kind) <= ms(250)), "always later");
    });
}

/// How long until all waiters of a closed client have ended.
fn closed_wait(kind: &Kind) -> Duration {
    let guard = kind.get_lock(&client(), &kind.fresh()).lock().unwrap();
    let waiting = client();
    let lock = kind.get_lock(&waiting, key(guard.name()));
    thread::scope(|scope| {
        let waiters = three_waiters(scope, &lock);
        kind.await_waiter(RedisServer::shared(), key(guard.name()));
        let (took, ()) = timed(|| {
            waiting.close();
            assert_eq!(waiters.map(joined), [ErrorKind::Closed; 3]);
        });
        assert!(guard.is_held(), "another client's hold");
        took
    })
}

#[test]
fn close_gives_every_hold_back_and_says_that_it_is_lost() {
    for_every_reentrant_kind(|kind| {
        let (notes, ours) = Events::of_client(brisk(RedisServer::shared()));
        let lock = kind.get_lock(&ours, &kind.fresh());
        let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
        let owned = kind.get_lock(&ours, &kind.fresh()).owned().lock().unwrap();
        let (told, heard) = unbounded();
        outer.on_lost(move |loss| told.send(*loss).unwrap());
        let hold = outer.hold().clone();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| hold.wait_lost(SOON));
            let (took, ()) = timed(|| ours.close());
            assert!(took <= GRACE + SCHEDULING, "{took:?}");
            assert_eq!(joined(waiter), Some(Loss::Closed));
        });
        assert_eq!(heard.recv_timeout(SOON), Ok(Loss::Closed));
        assert!(heard.recv_timeout(ms(50)).is_err(), "told once");
        assert!(is_free(&kind.get_lock(&client(), key(lock.name()))), "the lock was released");
        assert!(is_free(&kind.get_lock(&client(), key(owned.name()))));
        assert!(ours.held().is_empty());
        assert_eq!((outer.is_held(), outer.lost()), (false, Some(Loss::Closed)));
        for outcome in [inner.unlock(), outer.unlock(), owned.unlock()] {
            assert_eq!(kind_of(outcome), ErrorKind::Lost(Loss::Closed));
        }
        assert_eq!(notes.of(key(lock.name())).last().map(String::as_str), Some("lost: Closed"));
        assert_eq!(notes.losses_of(key(lock.name())), 1);
    });
}

#[test]
fn a_closed_client_and_its_clones_refuse_everything() {
    for_every_kind(|kind| {
        let client = client();
        let lock = kind.get_lock(&client, &kind.fresh());
        let clone = client.clone();
        client.close();
        clone.close();
        for lock in [lock, kind.get_lock(&clone, &kind.fresh())] {
            let kinds = [
                kind_of(lock.lock()),
                kind_of(lock.try_lock()),
                kind_of(lock.try_lock_for(SOON)),
                kind_of(lock.owned().lock()),
                kind_of(lock.is_locked()),
                kind_of(lock.force_unlock()),
            ];
            assert!(kinds.iter().all(|kind| *kind == ErrorKind::Closed), "{kinds:?}");
            let kinds = [kind_of(lock.holder()), kind_of(lock.remaining_time_to_live())];
            // Several locks have no single answer, open or closed.
            let wanted = if kind.member.is_some() { ErrorKind::Unsupported } else { ErrorKind::Closed };
            assert_eq!(kinds, [wanted; 2]);
            assert_eq!(kind_of(lock.unlock()), ErrorKind::NotHeld);
            assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
        }
    });
}

#[test]
fn a_guard_keeps_its_client_open_and_itself_renewed() {
    for_every_kind(|kind| {
        let client = brisk_client();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.lock().unwrap();
        drop((client, lock));
        let others = kind.get_lock(&crate::support::client(), key(guard.name()));
        assert!(others.try_lock_for(TTL * 5 / 4).unwrap().is_none());
        assert!(guard.is_held());
        guard.unlock().unwrap();
        assert!(is_free(&others));
    });
}

#[test]
fn close_closes_the_connections_and_opens_none_again() {
    for_every_kind(|kind| {
        let label = fresh("close").replace(':', "-");
        let named = || RedisServer::shared().clients_named(&label);
        let events = Events::default();
        let client = Client::builder(&RedisServer::shared().url()).client_name(&label);
        let client = client.observer(events.clone()).connect().unwrap();
        let theirs = kind.get_lock(&crate::support::client(), &kind.fresh()).lock().unwrap();
        let lock = kind.get_lock(&client, key(theirs.name()));
        assert!(lock.try_lock_for(ms(50)).unwrap().is_none(), "the client listens");
        client.close();
        eventually(SOON, "all connections of the client are closed", || named() == 0);
        let closed = Instant::now();
        // As long as a listener takes to come back.
        while closed.elapsed() < ms(500) {
            assert_eq!(named(), 0);
        }
        assert_eq!(events.count_of("not heard"), 0, "an orderly end is no failure");
        drop(lock);
    });
}
