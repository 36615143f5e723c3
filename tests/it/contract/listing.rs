//! The listings of a client: holds and waiters.

use lockson::LockKind;

use super::{for_every_kind, for_every_single_kind};
use crate::support::prelude::*;

#[test]
fn held_tells_kind_age_token_and_keeper() {
    for_every_single_kind(|kind| {
        let client = client();
        let (renewed, leased) = (kind.get_lock(&client, &kind.fresh()), kind.get_lock(&client, &kind.fresh()));
        let (kept, owned) = (renewed.lock().unwrap(), leased.with_lease(SOON).owned().lock().unwrap());
        std::thread::sleep(ms(30));
        let held = client.held();
        assert_eq!(held.len(), 2, "{held:?}");
        for (held, hold) in held.iter().zip([kept.hold(), owned.hold()]) {
            assert_eq!((held.name(), held.owner(), held.hold_count()), (hold.name(), hold.owner(), 1));
            assert_eq!(held.kind().to_string(), kind.label);
            assert_eq!(held.token(), hold.token());
            assert!(held.held_for() >= ms(30) && held.held_for() < SOON, "{held:?}");
            assert!(held.remaining() > Duration::ZERO && held.remaining() < ms(30_000), "{held:?}");
        }
        assert_eq!([held[0].is_renewed(), held[1].is_renewed()], [true, false]);
        if kind.reenters {
            let _again = renewed.lock().unwrap();
            assert_eq!(client.held()[0].hold_count(), 2);
        }
        kept.unlock().unwrap();
        owned.unlock().unwrap();
        assert_eq!(client.held(), []);
    });
}

#[test]
fn held_tells_which_side_of_a_read_write_lock() {
    let client = client();
    let lock = client.get_read_write_lock(crate::support::fresh("sides"));
    let writing = lock.write().lock().unwrap();
    let reading = lock.read().lock().unwrap();
    assert_eq!(client.held()[0].kind(), LockKind::Write);
    writing.unlock().unwrap();
    assert_eq!(client.held()[0].kind(), LockKind::Read);
    reading.unlock().unwrap();
    assert_eq!(client.held(), []);
}

#[test]
fn a_hold_past_its_longest_is_not_renewed() {
    let client = client();
    let guard = client.get_lock(crate::support::fresh("longest")).with_max_hold(ms(50)).lock().unwrap();
    eventually(SOON, "the hold is no longer renewed", || !client.held()[0].is_renewed());
    guard.unlock().unwrap();
}

#[test]
fn a_waiter_is_listed_and_told_until_it_has_the_lock() {
    for_every_single_kind(|kind| {
        let (events, name) = (Events::default(), kind.fresh());
        let waiting = brisk(RedisServer::shared()).observer(events.clone()).connect().unwrap();
        let guard = kind.get_lock(&client(), &name).lock().unwrap();
        std::thread::scope(|scope| {
            let lock = kind.get_lock(&waiting, &name);
            let waiter = std::thread::Builder::new().name("the waiter".into());
            let waiter = waiter.spawn_scoped(scope, move || drop(lock.lock().unwrap())).unwrap();
            eventually(SOON, "it waits", || !waiting.waiting().is_empty());
            let listed = waiting.waiting();
            let [one] = &listed[..] else { panic!("{listed:?}") };
            assert_eq!((one.name(), one.thread_name()), (&*name, Some("the waiter")));
            assert_eq!(one.kind().to_string(), kind.label);
            assert!(one.waited() < SOON);
            assert!(one.owner().contains(&format!("{}:{}.", waiting.id(), one.thread())), "{one:?}");
            guard.unlock().unwrap();
            joined(waiter);
        });
        assert_eq!(waiting.waiting(), []);
        assert_eq!(events.of(&name), ["waiting", "acquired", "released"]);
    });
}

#[test]
fn a_wait_in_vain_is_told_with_its_reason() {
    for_every_kind(|kind| {
        let (events, name) = (Events::default(), kind.fresh());
        let waiting = brisk(RedisServer::shared()).observer(events.clone()).connect().unwrap();
        let guard = kind.get_lock(&client(), &name).lock().unwrap();
        let lock = kind.get_lock(&waiting, &name);
        // On a busy machine the wait may be over with the first answer, before any sleep.
        let mut wait = ms(25);
        eventually(SOON, "a wait sleeps", || {
            wait *= 2;
            assert!(lock.try_lock_for(wait).unwrap().is_none());
            !events.of(&name).is_empty()
        });
        assert_eq!(events.of(&name), ["waiting", "gave up"]);

        let until = |lock: &Lock, end: &dyn Fn()| {
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| kind_of(lock.lock()));
                eventually(SOON, "it waits", || !waiting.waiting().is_empty());
                end();
                joined(waiter)
            })
        };
        let cancel = Cancel::new();
        assert_eq!(until(&lock.with_cancel(&cancel), &|| cancel.cancel()), ErrorKind::Cancelled);
        assert_eq!(events.of(&name)[2..], ["waiting", "gave up: Cancelled"]);
        assert_eq!(until(&lock, &|| waiting.close()), ErrorKind::Closed);
        assert_eq!(events.of(&name)[4..], ["waiting", "gave up: Closed"]);
        assert_eq!(waiting.waiting(), []);
        guard.unlock().unwrap();
    });
}

#[test]
fn a_call_that_does_not_sleep_tells_no_wait() {
    for_every_kind(|kind| {
        let (events, name) = (Events::default(), kind.fresh());
        let client: Client = brisk(RedisServer::shared()).observer(events.clone()).connect().unwrap();
        let lock = kind.get_lock(&client, &name);
        let guard = lock.lock().unwrap();
        elsewhere(|| assert!(lock.try_lock().unwrap().is_none()));
        guard.unlock().unwrap();
        assert_eq!(events.of(&name), ["acquired", "released"]);
    });
}
