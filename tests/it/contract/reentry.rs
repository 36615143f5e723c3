//! Re-entry of a held lock.

use super::{KINDS, delete, for_a_lock_of_every_reentrant_kind, for_every_reentrant_kind, key, owner};
use crate::support::prelude::*;

#[test]
fn a_holder_takes_it_again_and_gives_it_back_as_often() {
    for_a_lock_of_every_reentrant_kind(|kind, lock| {
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
fn re_entry_after_a_loss_says_so_and_takes_nothing() {
    for_a_lock_of_every_reentrant_kind(|kind, lock| {
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
fn a_re_entry_finds_out_what_became_of_the_lock() {
    for_every_reentrant_kind(|kind| {
        for loss in [Loss::Gone, Loss::Taken] {
            let lock = kind.get_lock(&client(), &kind.fresh());
            let others = kind.get_lock(&client(), key(lock.name()));
            let guard = lock.lock().unwrap();
            delete(&lock);
            let theirs = (loss == Loss::Taken).then(|| others.lock().unwrap());
            let before = fields(RedisServer::shared(), key(lock.name()));
            assert!(guard.is_held(), "the client does not know of the loss");
            let again = if theirs.is_some() { lock.try_lock() } else { lock.lock().map(Some) };
            assert_eq!(kind_of(again), ErrorKind::Lost(loss));
            assert_eq!(lock.is_locked().unwrap(), theirs.is_some(), "the lock was not taken again");
            assert_eq!(guard.lost(), Some(loss));
            assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(loss));
            assert_eq!(fields(RedisServer::shared(), key(lock.name())), before);
        }
    });
}

#[test]
fn a_holder_of_a_kind_that_is_held_once_is_told_so_at_once() {
    for kind in KINDS.iter().filter(|kind| !kind.reenters) {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let guard = lock.lock().unwrap();
        let before = fields(RedisServer::shared(), lock.name());
        for again in [&lock, &lock.with_lease(ms(60_000)), &lock.with_max_hold(ms(500))] {
            for outcome in [again.lock().map(Some), again.try_lock(), again.try_lock_for(SOON)] {
                let error = outcome.unwrap_err();
                assert_eq!((error.kind(), error.lock_name()), (ErrorKind::AlreadyHeld, Some(lock.name())), "{error}");
            }
        }
        assert_eq!(fields(RedisServer::shared(), lock.name()), before);
        assert!(ttl_ms(RedisServer::shared(), lock.name()) <= 30_000, "no time to live was raised");
        assert!(guard.is_held());
        assert_eq!(kind.member(&client(), key(lock.name())).holder().unwrap().unwrap().hold_count(), 1);
        assert!(!elsewhere(|| is_free(&lock)));
        guard.leave_to_unlock();
        assert_eq!(kind_of(lock.lock()), ErrorKind::AlreadyHeld);
        lock.unlock().unwrap();
        assert!(is_free(&lock));
    }
}

#[test]
fn a_re_entry_after_the_deadline_sends_nothing() {
    for_every_reentrant_kind(|kind| {
        let proxy = Proxy::start(RedisServer::shared().address());
        let lock = kind.get_lock(&Client::connect(&proxy.url()).unwrap(), &kind.fresh());
        let guard = lock.with_lease(ms(300)).lock().unwrap();
        thread::sleep(ms(300)); // no call looks at the hold meanwhile
        let mark = proxy.mark();
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::Lost(Loss::Expired));
        assert_eq!(
            proxy.fitting_since(mark, &When::any().containing(key(lock.name()))).len(),
            0,
            "the request would raise the time to live of an ended hold"
        );
        drop(guard);
    });
}

#[test]
fn a_re_entry_answered_after_the_loss_was_told_is_no_guard() {
    for_every_reentrant_kind(|kind| {
        let proxy = Proxy::start(RedisServer::shared().address());
        let lock = kind.get_lock(&Client::connect(&proxy.url()).unwrap(), &kind.fresh());
        let guard = lock.with_lease(ms(700)).lock().unwrap();
        let hold = guard.hold().clone();
        let (told, heard) = unbounded();
        guard.on_lost(move |loss| told.send(*loss).unwrap());
        let answer = proxy.rule(When::any().containing(key(lock.name())), Then::HoldReply);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(heard.recv_timeout(SOON), Ok(Loss::Expired));
                answer.release();
            });
            assert!(matches!(kind_of(lock.try_lock_for(SOON)), ErrorKind::Lost(_)));
        });
        assert_eq!(answer.hits(), 1);
        assert_eq!(hold.lost(), Some(Loss::Expired));
        drop(guard);
    });
}
