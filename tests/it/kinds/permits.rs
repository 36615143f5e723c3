//! Expiring permits: the promises that Redisson's tests check, and those of this crate alone.

mod counts;
mod doubt;
mod loss;
mod rights;

use lockson::{ExpiringPermits, LockKind, PermitExpirableSemaphore};

use crate::support::prelude::*;

/// A semaphore with this many permits.
fn semaphore(permits: u32) -> PermitExpirableSemaphore {
    let semaphore = client().get_permit_expirable_semaphore(fresh("permits"));
    assert!(semaphore.set_permits_once(permits).unwrap());
    semaphore
}

/// The sorted set of taken permits: ids as hexadecimal digits, with the times at which they expire.
#[track_caller]
fn taken(server: &RedisServer, name: &str) -> Vec<(String, f64)> {
    let all: Vec<(Vec<u8>, f64)> = server.query(&["ZRANGE", &taken_key(name), "0", "-1", "WITHSCORES"]);
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
    all.iter().map(|(id, ends)| (hex(id), *ends)).collect()
}

fn taken_key(name: &str) -> String {
    if name.contains('{') { format!("{name}:timeout") } else { format!("{{{name}}}:timeout") }
}

#[track_caller]
fn free(server: &RedisServer, name: &str) -> Option<i64> {
    server.query(&["GET", name])
}

/// The text of each id, in order.
fn texts(permits: &ExpiringPermits) -> Vec<String> {
    let mut ids: Vec<String> = permits.ids().iter().map(ToString::to_string).collect();
    ids.sort();
    ids
}

#[test]
fn the_state_is_redissons() {
    for name in ["calls", "{tag}:calls", "a{b}c"] {
        let server = RedisServer::start();
        let calls = Client::connect(&server.url()).unwrap().get_permit_expirable_semaphore(name);
        assert!(calls.set_permits_once(5).unwrap());
        let kept = calls.acquire(1).unwrap();
        let leased = calls.with_lease(ms(60_000)).acquire(2).unwrap();
        assert_eq!(free(&server, name), Some(2));
        let (seconds, micros): (f64, f64) = server.query(&["TIME"]);
        let now = seconds * 1_000.0 + micros / 1_000.0;
        let state = taken(&server, name);
        assert_eq!(state.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), [texts(&kept), texts(&leased)].concat());
        assert!(state.iter().all(|(id, _)| id.len() == 32));
        let left = |index: usize| state[index].1 - now;
        assert!((25_000.0..=30_000.0).contains(&left(0)), "{} ms", left(0));
        assert!((55_000.0..=60_000.0).contains(&left(1)) && (left(1) - left(2)).abs() < 1.0);
        kept.release().unwrap();
        leased.release().unwrap();
        assert_eq!((free(&server, name), taken(&server, name).len()), (Some(5), 0));
        let mut keys = server.keys();
        keys.retain(|key| !key.starts_with("lockson_once"));
        assert_eq!(keys, [name]);
    }
}

#[test]
fn permits_are_taken_all_or_none() {
    let calls = semaphore(10);
    let (four, five) = (calls.try_acquire(4).unwrap().unwrap(), calls.try_acquire(5).unwrap().unwrap());
    assert_eq!((four.ids().len(), five.ids().len(), calls.available().unwrap()), (4, 5, 1));
    assert!(calls.try_acquire(2).unwrap().is_none());
    assert_eq!(calls.available().unwrap(), 1);
    let one = calls.acquire(1).unwrap();
    assert!(calls.try_acquire_for(1, ms(50)).unwrap().is_none());
    drop((four, five, one));
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap(), calls.permits().unwrap()), (10, 0, 10));
}

#[test]
fn impossible_numbers_and_times_are_refused() {
    let calls = semaphore(1);
    for many in [0, 1_001, u32::MAX] {
        let takes = [calls.acquire(many).map(Some), calls.try_acquire(many), calls.try_acquire_for(many, SOON)];
        assert_eq!(takes.map(kind_of), [ErrorKind::BadInput; 3]);
    }
    for calls in [calls.with_lease(Duration::ZERO), calls.with_max_hold(Duration::ZERO)] {
        assert_eq!(kind_of(calls.try_acquire(1)), ErrorKind::BadInput);
    }
    let both = calls.with_lease(ms(1_000)).with_max_hold(ms(1_000));
    assert_eq!(kind_of(both.try_acquire(1)), ErrorKind::BadInput);
    assert_eq!(kind_of(client().get_permit_expirable_semaphore("").available()), ErrorKind::BadInput);
}

#[test]
fn a_thread_takes_as_many_holds_as_it_wants() {
    let calls = semaphore(2);
    let (one, two) = (calls.acquire(1).unwrap(), calls.acquire(1).unwrap());
    assert_ne!(one.ids(), two.ids());
    thread::spawn(move || drop(one)).join().unwrap();
    assert_eq!(calls.available().unwrap(), 1);
    assert!(two.is_held());
}

#[test]
fn a_leased_permit_returns_by_itself() {
    let calls = semaphore(1);
    let lost = calls.with_lease(ms(400)).acquire(1).unwrap();
    let id = lost.ids()[0].clone();
    let (took, permit) = timed(|| calls.acquire(1).unwrap());
    assert!(took >= ms(300) && took < ms(400) + SCHEDULING, "{took:?}");
    assert_eq!(lost.lost(), Some(Loss::Expired));
    assert_eq!(kind_of(calls.release_by_id(std::slice::from_ref(&id))), ErrorKind::NotHeld);
    assert_eq!(kind_of(lost.release()), ErrorKind::Lost(Loss::Expired));
    assert!(permit.is_held());
    thread::sleep(ms(100)); // the lost hold is cleaned up in the background, and takes nothing from anybody
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap()), (0, 1));
}

#[test]
fn a_permit_without_a_lease_is_renewed() {
    let calls = brisk_client().get_permit_expirable_semaphore(fresh("permits"));
    calls.set_permits(3).unwrap();
    let (one, two) = (calls.acquire(1).unwrap(), calls.acquire(2).unwrap());
    thread::sleep(TTL * 5 / 4);
    assert!(one.is_held() && two.is_held(), "longer than their time to live");
    assert_eq!(calls.acquired().unwrap(), 3);
    one.release().unwrap();
    two.release().unwrap();
    assert_eq!(calls.available().unwrap(), 3);
}

#[test]
fn a_name_of_another_kind_is_told() {
    let (client, name) = (client(), fresh("permits"));
    let calls = client.get_permit_expirable_semaphore(&name);
    let guard = client.get_lock(&name).lock().unwrap();
    assert_eq!(kind_of(calls.try_acquire(1)), ErrorKind::OtherKind);
    guard.unlock().unwrap();
    let guard = client.get_token_lock(&name).lock().unwrap();
    assert_eq!(kind_of(calls.try_acquire(1)), ErrorKind::OtherKind);
    guard.unlock().unwrap();
}

/// A client of Redisson takes expired permits back by its own clock, which may be ahead.
#[test]
fn permits_are_taken_for_longer_than_believed_by_the_skew() {
    let (server, name) = (RedisServer::shared(), fresh("permits"));
    let skewed = Client::builder(&server.url()).peer_clock_skew(ms(20_000)).connect().unwrap();
    let calls = skewed.get_permit_expirable_semaphore(&name);
    calls.set_permits(2).unwrap();
    let permit = calls.with_lease(ms(10_000)).acquire(1).unwrap();
    let left = || calls.remaining_time_to_live(&permit.ids()[0]).unwrap().unwrap();
    assert!(left() > ms(29_000) && permit.remaining() <= ms(10_000), "{:?}", left());
    permit.extend(ms(30_000)).unwrap();
    assert!(left() > ms(49_000) && permit.remaining() <= ms(30_000), "{:?}", left());
}

#[test]
fn permits_are_listed_and_shown() {
    let client = client();
    let calls = client.get_permit_expirable_semaphore(fresh("permits"));
    calls.set_permits(2).unwrap();
    let permits = calls.acquire(2).unwrap();
    let held = client.held();
    assert_eq!((held[0].kind(), held[0].name(), held[0].is_renewed()), (LockKind::Permit, calls.name(), true));
    assert_eq!(LockKind::Permit.to_string(), "permit");
    let id = texts(&permits)[0].clone();
    assert!(permits.hold().owner().starts_with(&id[..28]), "the owner leads to the ids");
    assert_eq!(format!("{:?}", permits.ids()[0]), format!("PermitId({id})"));
    for bad in ["", "123", "xy", "12 4", "é1"] {
        assert_eq!(kind_of(bad.parse::<lockson::PermitId>()), ErrorKind::BadInput, "{bad}");
    }
}

#[test]
fn the_set_of_permits_lives_no_longer_than_the_semaphore() {
    let (server, calls) = (RedisServer::shared(), semaphore(1));
    server.run(&["PEXPIRE", calls.name(), "60000"]);
    let permit = calls.acquire(1).unwrap();
    assert!((50_000..=60_000).contains(&ttl_ms(server, &taken_key(calls.name()))));
    assert!((50_000..=60_000).contains(&ttl_ms(server, calls.name())), "a take leaves the time to live alone");
    permit.release().unwrap();
    calls.add_permits(1).unwrap();
    calls.set_permits(7).unwrap();
    assert!((50_000..=60_000).contains(&ttl_ms(server, calls.name())), "so do the others");
}
