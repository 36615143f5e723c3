//! The special property of non-reentrant locks: the holder cannot take the lock again.

use crate::support::prelude::*;

type Kind = fn(&Client, &str) -> Lock;

const KINDS: [Kind; 2] =
    [|client, name| client.get_non_reentrant_lock(name), |client, name| client.get_non_reentrant_fair_lock(name)];
const REENTRANT_KINDS: [Kind; 2] = [|client, name| client.get_lock(name), |client, name| client.get_fair_lock(name)];

#[test]
fn a_refused_take_leaves_nothing_in_the_queue() {
    let server = RedisServer::shared();
    let name = fresh("once");
    let lock = client().get_non_reentrant_fair_lock(&name);
    let guard = lock.lock().unwrap();
    assert_eq!(kind_of(lock.lock()), ErrorKind::AlreadyHeld);
    assert_eq!(kind_of(lock.try_lock_for(ms(100))), ErrorKind::AlreadyHeld);
    for key in [format!("redisson_lock_queue:{{{name}}}"), format!("redisson_lock_timeout:{{{name}}}")] {
        assert_eq!(server.query::<i64>(&["EXISTS", &key]), 0, "{key}");
    }
    guard.unlock().unwrap();
    assert!(lock.try_lock().unwrap().is_some());
}

#[test]
fn a_hold_of_another_kind_by_the_same_thread_is_a_hold() {
    for (kind, plain) in KINDS.into_iter().zip(REENTRANT_KINDS) {
        let (client, name) = (client(), fresh("once"));
        let outer = plain(&client, &name).lock().unwrap();
        assert_eq!(
            kind_of(kind(&client, &name).lock()),
            ErrorKind::AlreadyHeld,
            "the thread would wait for its own lock"
        );
        outer.unlock().unwrap();
        let outer = kind(&client, &name).lock().unwrap();
        // A reentrant handle re-enters the hold of a non-reentrant handle, as with Redisson.
        let inner = plain(&client, &name).lock().unwrap();
        assert_eq!(inner.owner(), outer.owner());
        drop((outer, inner));
        assert!(!plain(&client, &name).is_locked().unwrap());
    }
}
