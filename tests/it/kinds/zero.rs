//! Zero as a lease, a limit, an interval or a number: refused before any request, by every kind alike.

use std::time::Duration;

use lockson::{Client, ErrorKind, Lock, RedLock, ReleaseBy, TokenOptions};

use crate::support::{SOON, at_once, kind_of};

/// Every kind that takes a lease.
const KINDS: [fn(&Client) -> Lock; 14] = [
    |client| client.get_lock("zero"),
    |client| client.get_non_reentrant_lock("zero"),
    |client| client.get_fair_lock("zero"),
    |client| client.get_non_reentrant_fair_lock("zero"),
    |client| client.get_spin_lock("zero"),
    |client| client.get_fenced_lock("zero").into(),
    |client| client.get_read_write_lock("zero").read(),
    |client| client.get_read_write_lock("zero").write(),
    |client| client.get_token_lock("zero"),
    |client| client.get_token_lock_with("zero", TokenOptions::new().with_release_by(ReleaseBy::Transaction)),
    |client| client.get_group_lock("zero", ["1", "2"]),
    |client| Lock::multi([client.get_lock("zero"), client.get_fair_lock("other")]),
    |client| Lock::multi([client.get_lock("zero").with_max_hold(Duration::ZERO), client.get_lock("other")]),
    |client| RedLock::new([client.get_lock("zero")]).into(),
];

/// A client of a server that is not there: a request would be `Connection`.
fn client_of_nothing() -> Client {
    let limit = Duration::from_millis(100);
    Client::builder("redis://127.0.0.1:1").command_timeout(limit).outage_limit(limit).connect_lazily().unwrap()
}

#[test]
fn zero_is_bad_input_for_every_kind_before_any_request() {
    let client = client_of_nothing();
    at_once(KINDS, |kind| {
        let lock = kind(&client);
        for lock in [lock.with_lease(Duration::ZERO), lock.with_max_hold(Duration::ZERO)] {
            let kinds = [
                kind_of(lock.lock()),
                kind_of(lock.try_lock()),
                kind_of(lock.try_lock_for(SOON)),
                kind_of(lock.owned().lock()),
                kind_of(lock.run(|_| panic!("it must not run"))),
            ];
            assert_eq!(kinds, [ErrorKind::BadInput; 5], "{lock:?}");
        }
        assert_eq!(kind_of(lock.once_per(Duration::ZERO)), ErrorKind::BadInput, "{lock:?}");
    });
}

#[test]
fn no_permits_are_bad_input_for_both_semaphores() {
    let client = client_of_nothing();
    let (plain, expiring) = (client.get_semaphore("zero"), client.get_permit_expirable_semaphore("zero"));
    let (leased, limited) = (expiring.with_lease(Duration::ZERO), expiring.with_max_hold(Duration::ZERO));
    let kinds = [
        kind_of(plain.acquire(0)),
        kind_of(plain.try_acquire(0)),
        kind_of(plain.try_acquire_for(0, SOON)),
        kind_of(expiring.acquire(0)),
        kind_of(expiring.try_acquire(0)),
        kind_of(expiring.try_acquire_for(0, SOON)),
        kind_of(leased.acquire(1)),
        kind_of(limited.acquire(1)),
    ];
    assert_eq!(kinds, [ErrorKind::BadInput; 8]);
}
