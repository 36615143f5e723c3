//! The ways to lose a hold, and the effect of a loss on other callers.

use super::{delete, for_a_lock_of_every_kind, for_every_kind, key, owner};
use crate::support::prelude::*;

#[test]
fn a_deleted_lock_is_lost_at_the_next_renewal() {
    for_every_kind(|kind| {
        let client = brisk_client();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.lock().unwrap();
        delete(&lock);
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
        assert_eq!((guard.is_held(), guard.remaining().is_zero(), lock.hold_count()), (false, true, 0));
        eventually(SOON, "each member is lost", || client.held().is_empty());
        assert!(!lock.is_locked().unwrap(), "no renewal restores the lock");
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Gone));
        assert!(is_free(&lock));
    });
}

#[test]
fn a_wrong_type_is_a_loss_to_holders_and_an_error_to_others() {
    for_every_kind(|kind| {
        let server = RedisServer::shared();
        // A renewal tells the first holder of the loss, and the release the second holder.
        for (client, is_renewed) in [(brisk_client(), true), (client(), false)] {
            let lock = kind.get_lock(&client, &kind.fresh());
            let guard = lock.lock().unwrap();
            let place = "redis.call('del', KEYS[1]) redis.call('rpush', KEYS[1], 'precious')";
            server.run(&["EVAL", place, "1", key(lock.name())]);
            if is_renewed {
                assert_eq!(guard.wait_lost(SOON), Some(Loss::Taken));
            }
            assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Taken), "renewed: {is_renewed}");
            let is_refused = |error: Error| {
                assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGTYPE")));
                assert_eq!(error.lock_name(), Some(key(lock.name())));
            };
            for outcome in [lock.lock().map(Some), lock.try_lock(), lock.try_lock_for(ms(100))] {
                is_refused(outcome.unwrap_err());
            }
            // The scripts of the other kinds ask for the value in other ways.
            if kind.counted && kind.label != "write" && kind.member.is_none() {
                is_refused(lock.force_unlock().unwrap_err());
                is_refused(lock.holder().unwrap_err());
                is_refused(lock.is_locked().unwrap_err());
            }
            let left: Vec<String> = server.query(&["LRANGE", key(lock.name()), "0", "-1"]);
            assert_eq!(left, ["precious"]);
        }
    });
}

#[test]
fn an_unlock_finds_an_unknown_loss() {
    for_every_kind(|kind| {
        let client = client();
        for loss in [Loss::Gone, Loss::Taken] {
            let lock = kind.get_lock(&client, &kind.fresh());
            let guard = lock.lock().unwrap();
            if loss == Loss::Taken {
                // In one step, because a watched holder learns of a deletion at once.
                let theirs = kind.get_lock(&crate::support::client(), &kind.fresh()).lock().unwrap();
                RedisServer::shared().run(&["RENAME", key(theirs.name()), key(lock.name())]);
            } else {
                delete(&lock);
            }
            assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(loss));
            assert_eq!(loss == Loss::Taken, lock.is_locked().unwrap(), "the new holder is left alone");
            delete(&lock);
        }
    });
}

#[test]
fn a_drop_after_a_loss_leaves_the_new_holder_alone() {
    for_a_lock_of_every_kind(|kind, lock| {
        let guard = lock.with_lease(ms(150)).lock().unwrap();
        let others = kind.get_lock(&client(), key(lock.name()));
        let theirs = others.try_lock_for(SOON).unwrap().unwrap();
        drop(guard);
        assert_eq!(kind.member(&client(), key(others.name())).holder().unwrap().unwrap().owner(), owner(theirs.hold()));
        assert!(theirs.is_held());
        theirs.unlock().unwrap();
    });
}

#[test]
fn force_unlock_opens_the_lock_and_its_holder_learns_of_it() {
    for_every_kind(|kind| {
        let lock = kind.get_lock(&brisk_client(), &kind.fresh());
        let guard = lock.lock().unwrap();
        let others = kind.get_lock(&client(), key(lock.name()));
        assert!(others.force_unlock().unwrap());
        assert!(!others.force_unlock().unwrap(), "the lock has no owner");
        let theirs = others.try_lock().unwrap().expect("the lock is open");
        assert!(matches!(guard.wait_lost(SOON), Some(Loss::Gone | Loss::Taken)));
        assert!(matches!(kind_of(guard.unlock()), ErrorKind::Lost(_)));
        assert!(theirs.is_held());
        theirs.unlock().unwrap();
        assert!(!lock.is_locked().unwrap());
    });
}

#[test]
fn force_unlock_tells_holders_of_its_own_client_at_once() {
    for_a_lock_of_every_kind(|_, lock| {
        let guard = lock.lock().unwrap();
        assert!(elsewhere(|| lock.force_unlock().unwrap()));
        assert_eq!((guard.lost(), lock.hold_count()), (Some(Loss::Gone), 0));
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::Lost(Loss::Gone));
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Gone));
    });
}

#[test]
fn force_unlock_lets_a_waiter_in_at_once() {
    for_every_kind(|kind| {
        let (ours, theirs) = (client(), client());
        let took = median(9, |_| {
            let lock = kind.get_lock(&ours, &kind.fresh());
            let others = kind.get_lock(&theirs, key(lock.name()));
            let _guard = lock.lock().unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| others.try_lock_for(SOON).unwrap().is_some());
                kind.await_waiter(RedisServer::shared(), key(lock.name()));
                let (took, got) = timed(|| lock.force_unlock().unwrap() && joined(waiter));
                assert!(got);
                took
            })
        });
        assert!(took <= kind.usual_wake(), "{took:?}");
    });
}

#[test]
fn a_listening_process_learns_of_a_force_unlock_at_once() {
    for_every_kind(|kind| {
        let Some(_) = kind.channel else { return };
        // The next renewal is ten seconds away, the deadline longer.
        let ours = client();
        let watched = kind.get_lock(&ours, &kind.fresh());
        let leased = kind.get_lock(&ours, &kind.fresh()).with_lease(ms(60_000));
        for lock in [watched, leased] {
            let guard = lock.lock().unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| lock.try_lock_for(SOON).unwrap().is_some());
                kind.await_waiter(RedisServer::shared(), key(lock.name()));
                assert!(kind.get_lock(&client(), key(lock.name())).force_unlock().unwrap());
                assert!(joined(waiter), "the waiter is granted the lock");
                let what = format!("the old holder is told: {lock:?}");
                eventually(ms(2_000), &what, || !guard.is_held());
            });
            assert!(matches!(kind_of(guard.unlock()), ErrorKind::Lost(_)));
        }
    });
}
