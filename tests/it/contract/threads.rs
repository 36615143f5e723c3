//! Threads: the owner of a hold, and the end of a hold when the owner's thread panics, leaks or ends.

use std::cell::RefCell;
use std::mem;

use crossbeam_channel::{Sender, bounded};

use super::{for_a_lock_of_every_kind, for_every_kind, for_every_reentrant_kind, key};
use crate::support::prelude::*;

#[test]
fn another_thread_cannot_unlock_it() {
    for_a_lock_of_every_kind(|kind, lock| {
        lock.lock().unwrap().leave_to_unlock();
        let before = fields(RedisServer::shared(), key(lock.name()));
        assert_eq!(elsewhere(|| kind_of(lock.unlock())), ErrorKind::NotHeld);
        assert_eq!(kind_of(kind.get_lock(&client(), key(lock.name())).unlock()), ErrorKind::NotHeld);
        assert_eq!(fields(RedisServer::shared(), key(lock.name())), before);
        lock.unlock().unwrap();
        assert_eq!(kind_of(lock.unlock()), ErrorKind::NotHeld, "once is enough");
        assert!(is_free(&lock));
    });
}

#[test]
fn an_owned_guard_moves_and_is_renewed_after_its_thread() {
    for_every_kind(|kind| {
        let lock = kind.get_lock(&brisk_client(), &kind.fresh());
        let guard = lock.owned().lock().unwrap();
        elsewhere(move || {
            assert!(guard.is_held());
            guard.unlock().unwrap();
        });
        assert!(is_free(&lock));
        let guard = elsewhere(|| lock.owned().lock().unwrap());
        assert!(kind.get_lock(&client(), key(lock.name())).try_lock_for(TTL * 5 / 4).unwrap().is_none());
        assert!(guard.is_held(), "the owner's thread has ended");
        elsewhere(move || drop(guard));
        assert!(is_free(&lock));
    });
}

#[test]
fn a_leaked_guard_is_listed_and_renewed_until_its_thread_ends() {
    for_every_kind(|kind| {
        let (notes, ours) = Events::of_client(brisk(RedisServer::shared()));
        let lock = kind.get_lock(&ours, &kind.fresh());
        let others = kind.get_lock(&client(), key(lock.name()));
        let (end, ended) = bounded::<()>(0);
        thread::scope(|scope| {
            let (leaked, leak) = bounded(0);
            let leaker = scope.spawn({
                let lock = &lock;
                move || {
                    mem::forget(lock.lock().unwrap());
                    leaked.send(()).unwrap();
                    let _ = ended.recv();
                }
            });
            leak.recv().unwrap();
            let listed: Vec<_> = ours.held().iter().map(|held| held.name().to_owned()).collect();
            assert_eq!(listed[0], key(lock.name()));
            assert!(others.try_lock_for(TTL * 5 / 4).unwrap().is_none(), "the hold is renewed");
            drop(end);
            joined(leaker);
        });
        let ended = Instant::now();
        assert!(others.try_lock_for(SOON).unwrap().is_some());
        assert!(ended.elapsed() <= TTL + TICK + GRACE + SCHEDULING, "{:?}", ended.elapsed());
        assert!(ours.held().is_empty());
        let told = notes.of(key(lock.name()));
        assert_eq!(told.iter().filter(|what| *what == "abandoned").count(), 1, "{told:?}");
        ours.close(); // the leaked guard would keep the client open
    });
}

#[test]
fn no_thread_inherits_what_another_one_leaked() {
    for_every_kind(|kind| {
        let ours = client();
        let lock = kind.get_lock(&ours, &kind.fresh());
        elsewhere(|| mem::forget(lock.lock().unwrap()));
        for _ in 0..200 {
            elsewhere(|| assert!(!lock.is_held_by_current_thread()));
        }
        assert!((0..20).all(|_| !elsewhere(|| is_free(&lock))));
        assert!(lock.force_unlock().unwrap());
        assert!(is_free(&lock));
        ours.close();
    });
}

#[test]
fn a_guard_among_the_data_of_a_thread_is_given_back_with_it() {
    thread_local!(static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) });
    for_a_lock_of_every_kind(|_, lock| {
        // Created before the library's own data of the thread, and after: destroyed after the library's data, and
        // before.
        for touch_first in [true, false] {
            thread::scope(|scope| {
                scope.spawn(|| {
                    if touch_first {
                        KEPT.with(|kept| assert!(kept.borrow().is_none()));
                    }
                    let guard = lock.lock().unwrap();
                    KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
                });
            });
            eventually(SOON, "the lock is released", || !lock.is_locked().unwrap());
        }
    });
}

#[test]
fn a_destructor_of_thread_data_may_take_locks() {
    thread_local!(static LAST_WISH: RefCell<Option<LastWish>> = const { RefCell::new(None) });
    for_a_lock_of_every_kind(|_, lock| {
        let (told, heard) = unbounded();
        for touch_first in [true, false] {
            let wish = LastWish { lock: lock.clone(), told: told.clone() };
            thread::spawn(move || {
                if touch_first {
                    LAST_WISH.with(|last| assert!(last.borrow().is_none()));
                }
                drop(wish.lock.lock().unwrap());
                LAST_WISH.with(|last| *last.borrow_mut() = Some(wish));
            });
            assert_eq!(heard.recv_timeout(SOON), Ok(true), "touched first: {touch_first}");
            eventually(SOON, "the lock is released", || !lock.is_locked().unwrap());
        }
    });
}

#[test]
fn takes_of_a_destructor_of_thread_data_nest() {
    thread_local!(static NESTED: RefCell<Option<Nested>> = const { RefCell::new(None) });
    for_every_reentrant_kind(|kind| {
        let client = brisk_client();
        let lock = kind.get_lock(&client, &kind.fresh());
        let (told, heard) = unbounded();
        let nested = Nested { lock: lock.clone(), told };
        thread::spawn(move || {
            // Destroyed after the library's own data of the thread, because it was created before.
            NESTED.with(|last| assert!(last.borrow().is_none()));
            drop(nested.lock.lock().unwrap());
            NESTED.with(|last| *last.borrow_mut() = Some(nested));
        });
        assert_eq!(heard.recv_timeout(SOON), Ok(true), "{}", kind.label);
        eventually(SOON, "what an ended thread leaves expires", || !lock.is_locked().unwrap());
    });
}

/// Takes a lock twice while the thread's data is destroyed, and leaves it.
struct Nested {
    lock: Lock,
    told: Sender<bool>,
}

impl Drop for Nested {
    fn drop(&mut self) {
        let outer = self.lock.try_lock().unwrap().unwrap();
        let inner = self.lock.try_lock().unwrap();
        let _ = self.told.send(inner.is_some() && self.lock.is_held_by_current_thread());
        outer.leave_to_unlock();
    }
}

/// Takes and releases a lock while the thread's data is destroyed.
struct LastWish {
    lock: Lock,
    told: Sender<bool>,
}

impl Drop for LastWish {
    fn drop(&mut self) {
        let taken = self.lock.try_lock_for(SOON).is_ok_and(|guard| guard.is_some_and(|guard| guard.unlock().is_ok()));
        let _ = self.told.send(taken);
    }
}

#[test]
fn the_loss_of_what_an_ended_thread_left_to_unlock_is_told() {
    for_every_kind(|kind| {
        let (notes, client) = Events::of_client(brisk(RedisServer::shared()));
        let lock = kind.get_lock(&client, &kind.fresh());
        let (tell, told) = bounded(1);
        elsewhere(|| {
            let guard = lock.lock().unwrap();
            guard.on_lost(move |loss| tell.send(*loss).unwrap());
            guard.leave_to_unlock();
        });
        assert_eq!(told.recv_timeout(TTL + SOON), Ok(Loss::Expired));
        eventually(SOON, "the observer is called", || notes.losses_of(key(lock.name())) == 1);
        assert!(lock.try_lock_for(SOON).unwrap().is_some());
    });
}
