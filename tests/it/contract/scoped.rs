//! Work under a lock whose guard is only borrowed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lockson::Result;

use super::{delete, for_a_lock_of_every_kind, for_a_lock_of_every_reentrant_kind, for_every_kind, key, owner};
use crate::support::prelude::*;

type Form = fn(&Lock, &mut dyn FnMut() -> u32) -> Result<Option<u32>>;

/// Every form of running, with the work's outcome.
const FORMS: [Form; 3] = [
    |lock, work| lock.run(|_| work()).map(Some),
    |lock, work| lock.try_run(|_| work()),
    |lock, work| lock.try_run_for(SOON, |_| work()),
];

#[test]
fn work_runs_once_under_the_lock_and_its_outcome_comes_back() {
    for_a_lock_of_every_kind(|_, lock| {
        for form in FORMS {
            let mut runs = 0;
            let outcome = form(&lock, &mut || {
                runs += 1;
                assert_eq!((lock.is_held_by_current_thread(), elsewhere(|| is_free(&lock))), (true, false));
                42
            });
            assert_eq!((outcome.unwrap(), runs), (Some(42), 1));
            assert!(!lock.is_locked().unwrap(), "it is given back at once");
        }
        let owner = lock.run(|guard| owner(guard.hold()).to_owned()).unwrap();
        assert!(!owner.is_empty());
    });
}

#[test]
fn bounded_work_does_not_run_while_another_holds_the_lock() {
    for_a_lock_of_every_kind(|kind, lock| {
        let guard = kind.get_lock(&client(), key(lock.name())).lock().unwrap();
        assert_eq!(lock.try_run(|_| panic!("it must not run")).unwrap(), None::<()>);
        assert_eq!(lock.try_run_for(ms(50), |_| panic!("it must not run")).unwrap(), None::<()>);
        guard.unlock().unwrap();
        assert_eq!(lock.try_run(|_| 1).unwrap(), Some(1));
    });
}

#[test]
fn work_whose_lock_was_lost_is_told_so() {
    for_a_lock_of_every_kind(|_, lock| {
        for form in FORMS {
            let mut reached = false;
            let told = form(&lock, &mut || {
                delete(&lock);
                reached = true;
                42
            });
            assert!(matches!(kind_of(told), ErrorKind::Lost(Loss::Gone)) && reached);
        }
        let (outcome, told) = lock.lock().unwrap().run(|_| {
            delete(&lock);
            42
        });
        assert_eq!((outcome, kind_of(told)), (42, ErrorKind::Lost(Loss::Gone)), "the guard keeps the outcome");
        let (outcome, told) = lock.owned().lock().unwrap().run(|guard| guard.is_held());
        assert!(outcome && told.is_ok() && !lock.is_locked().unwrap());
        let expired = lock.with_lease(ms(60)).run(|guard| guard.wait_lost(SOON));
        assert_eq!(kind_of(expired), ErrorKind::Lost(Loss::Expired));
    });
}

#[test]
fn a_panic_of_the_work_gives_the_lock_back() {
    for_a_lock_of_every_kind(|_, lock| {
        for form in FORMS {
            let mut work = || -> u32 { panic!("this panic is part of the test") };
            assert!(catch_unwind(AssertUnwindSafe(|| form(&lock, &mut work).map(drop))).is_err());
            assert!(!lock.is_locked().unwrap());
        }
    });
}

#[test]
fn a_release_without_an_answer_keeps_the_outcome() {
    for_every_kind(|kind| {
        let proxy = Proxy::start(RedisServer::shared().address());
        let events = Events::default();
        let settings = Client::builder(&proxy.url()).command_timeout(ms(1_500)).observer(events.clone());
        let lock = kind.get_lock(&settings.connect().unwrap(), &kind.fresh());
        let outcome = lock.run(|_| {
            proxy.mute(Scope::All, Direction::Both);
            "done"
        });
        assert_eq!(outcome.unwrap(), "done");
        let members = if kind.member.is_some() { 3 } else { 1 };
        assert_eq!(events.count_of("release failed"), members);
        proxy.unmute();
        eventually(SOON, "the lock is given back in the background", || !lock.is_locked().unwrap_or(true));
    });
}

#[test]
fn work_that_was_protected_to_its_end_outlives_its_client() {
    let proxy = Proxy::start(RedisServer::shared().address());
    let settings = Client::builder(&proxy.url()).command_timeout(ms(5_000)).drop_timeout(ms(100));
    let client = settings.connect().unwrap();
    let lock = client.get_lock(fresh("plain"));
    let outcome = std::thread::scope(|scope| {
        let release = lock.run(|_| {
            let mark = proxy.mark();
            proxy.mute(Scope::All, Direction::Replies);
            scope.spawn({
                let (proxy, client) = (&proxy, client.clone());
                move || {
                    proxy.wait_for_since(mark, &When::script(), SOON);
                    client.close();
                }
            });
            "done"
        });
        proxy.unmute();
        release
    });
    assert_eq!(outcome.unwrap(), "done");
}

#[test]
fn work_may_take_the_lock_again_and_leave_an_inner_hold() {
    for_a_lock_of_every_reentrant_kind(|_, lock| {
        let deep = lock.run(|_| lock.run(|_| lock.try_run(|_| lock.hold_count()))).unwrap().unwrap().unwrap();
        assert_eq!(deep, Some(3));
        lock.run(|_| lock.lock().map(lockson::Guard::leave_to_unlock)).unwrap().unwrap();
        assert_eq!(lock.hold_count(), 1, "the hold that was left");
        lock.unlock().unwrap();
        assert!(!lock.is_locked().unwrap());
    });
}

#[test]
fn work_does_not_outlive_its_client() {
    for_every_kind(|kind| {
        let client = client();
        let lock = kind.get_lock(&client, &kind.fresh());
        assert_eq!(kind_of(lock.run(|_| client.close())), ErrorKind::Lost(Loss::Closed));
        assert_eq!(kind_of(lock.run(|_| panic!("it must not run"))), ErrorKind::Closed);
        assert_eq!(kind_of(lock.try_run_for(Duration::MAX, |_| panic!("it must not run"))), ErrorKind::Closed);
    });
}
