//! Permits that end before they are given back: the holder is told, and no permit is invented.

use lockson::ExpiringPermits;

use super::{free, taken, taken_key};
use crate::support::prelude::*;

/// The ways to lose permits.
const ENDS: [(&str, &[&str]); 4] = [
    ("flushed", &["FLUSHALL"]),
    ("deleted", &["DEL", "calls", "{calls}:timeout"]),
    ("the set deleted", &["DEL", "{calls}:timeout"]),
    ("expired", &["PEXPIRE", "{calls}:timeout", "1"]),
];

/// A client whose holds live much longer than a test waits: an end of permits is no expiry of the hold.
fn patient(server: &RedisServer) -> Client {
    Client::builder(&server.url()).watchdog(LEASE, TICK).connect().unwrap()
}

const LEASE: Duration = Duration::from_secs(60);

#[test]
fn lost_permits_are_told_and_not_invented() {
    at_once(ENDS, |(what, words)| {
        for leased in [false, true] {
            let server = RedisServer::start();
            let client = patient(&server);
            let calls = client.get_permit_expirable_semaphore("calls");
            calls.set_permits(5).unwrap();
            let handle = if leased { calls.with_lease(LEASE) } else { calls.clone() };
            let (one, two) = (handle.acquire(1).unwrap(), handle.acquire(2).unwrap());
            eventually(SOON, "the permits are watched", || server.tracked_keys() > 0);
            let counter = free(&server, "calls");
            server.run(words);
            for permits in [&one, &two] {
                assert_eq!(permits.wait_lost(SOON), Some(Loss::Gone), "{what}, leased: {leased}");
            }
            let counter = if server.query::<bool>(&["EXISTS", "calls"]) { counter } else { None };
            assert!(one.release().is_err() && two.release().is_err());
            assert_eq!((free(&server, "calls"), taken(&server, "calls").len()), (counter, 0), "{what}");
        }
    });
}

/// The release itself finds that one of the permits had ended.
#[test]
fn a_release_of_permits_of_which_one_ended_is_lost() {
    let server = RedisServer::start();
    let calls = patient(&server).get_permit_expirable_semaphore("calls");
    calls.set_permits(5).unwrap();
    let three = calls.with_lease(LEASE).acquire(3).unwrap();
    server.run(&["ZREMRANGEBYRANK", &taken_key("calls"), "0", "0"]);
    assert_eq!(kind_of(three.release()), ErrorKind::Lost(Loss::Gone));
    assert_eq!((free(&server, "calls"), taken(&server, "calls").len()), (Some(4), 0));
}

/// A hold that began after the deletion was sent may be of the semaphore that was made anew.
#[test]
fn a_deletion_tells_no_loss_to_later_holders() {
    let (rig, calls) = Rig::start().and(|rig| rig.client().get_permit_expirable_semaphore("calls"));
    calls.set_permits(1).unwrap();
    let delete = rig.script_of(include_str!("../../../../lua/once/delete.lua"));
    let held = rig.proxy.rule(delete, Then::HoldReply);
    thread::scope(|scope| {
        let deletes = scope.spawn(|| calls.delete());
        held.wait_hit(SOON);
        eventually(SOON, "the old one is gone", || free(&rig.server, "calls").is_none());
        calls.set_permits(2).unwrap();
        let later = calls.acquire(1).unwrap();
        held.release();
        assert!(joined(deletes).unwrap());
        assert_eq!(later.lost(), None);
        later.release().unwrap();
    });
}

/// One of several permits was given back by another client: the holder has fewer than it took.
#[test]
fn a_hold_that_lost_one_permit_is_lost_and_gives_back_the_rest() {
    at_once([false, true], |leased| {
        let server = RedisServer::start();
        let client = patient(&server);
        let calls = client.get_permit_expirable_semaphore("calls");
        calls.set_permits(5).unwrap();
        let handle = if leased { calls.with_lease(LEASE) } else { calls.clone() };
        let three = handle.acquire(3).unwrap();
        eventually(SOON, "the hold is watched", || server.tracked_keys() > 0);
        let others = Client::connect(&server.url()).unwrap().get_permit_expirable_semaphore("calls");
        others.release_by_id(&three.ids()[1..2]).unwrap();
        assert_eq!(three.wait_lost(SOON), Some(Loss::Gone));
        assert_eq!(calls.available().unwrap(), 3);
        drop(three);
        eventually(SOON, "the rest is given back", || calls.available().unwrap() == 5);
        assert_eq!(calls.acquired().unwrap(), 0);
    });
}

/// Its guard would have given back the others, and finds a closed client.
#[test]
fn a_close_gives_back_the_rest_of_lost_permits() {
    let server = RedisServer::start();
    let client = patient(&server);
    let calls = client.get_permit_expirable_semaphore("calls");
    calls.set_permits(5).unwrap();
    let three = calls.with_lease(LEASE).acquire(3).unwrap();
    let others = Client::connect(&server.url()).unwrap().get_permit_expirable_semaphore("calls");
    others.release_by_id(&three.ids()[1..2]).unwrap();
    assert_eq!(three.wait_lost(SOON), Some(Loss::Gone));
    client.close();
    assert_eq!((others.available().unwrap(), others.acquired().unwrap()), (5, 0));
    assert_eq!(kind_of(three.release()), ErrorKind::Lost(Loss::Gone));
}

#[test]
fn four_thousand_kept_permits_are_all_renewed_in_time() {
    const PERMITS: usize = 4_000;
    // A machine that stands still for some seconds loses no permits.
    let ttl = TTL * 10;
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).watchdog(ttl, ttl / 4).connect().unwrap();
    let names = ["a", "b", "c", "d"];
    let mut all: Vec<ExpiringPermits> = vec![];
    for name in names {
        let calls = client.get_permit_expirable_semaphore(name);
        calls.set_permits(1_000).unwrap();
        all.extend((0..PERMITS / names.len()).map(|_| calls.acquire(1).unwrap()));
    }
    let until = Instant::now() + ttl * 5 / 4;
    let mut least = Duration::MAX;
    while Instant::now() < until {
        least = least.min(all.iter().map(|permits| permits.remaining()).min().unwrap());
        thread::sleep(TICK);
    }
    assert!(all.iter().all(|permits| permits.is_held()), "{least:?} at least");
    assert!(!least.is_zero());
    for name in names {
        assert_eq!(server.query::<usize>(&["ZCARD", &taken_key(name)]), 1_000);
    }
    let losses: Vec<Loss> = all.into_iter().filter_map(|permits| permits.lost()).collect();
    assert_eq!(losses, [], "while the others were given back");
    for name in names {
        let calls = client.get_permit_expirable_semaphore(name);
        // A drop that takes long leaves its release to the background.
        eventually(SOON, "all permits are given back", || {
            (calls.available().unwrap(), calls.acquired().unwrap()) == (1_000, 0)
        });
    }
}
