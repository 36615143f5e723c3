//! Tests of the scripts for several locks on a server: their writes, replies and messages.
#![cfg(test)]

use std::time::Duration;

use lockson_harness::RedisServer;

use super::*;
use crate::script::bundle::PartState;
use crate::script::tests::{changes_nothing, heard, run, run_at, url_of_user};

/// The locks of one test.
struct Locks {
    names: Vec<LockName>,
    owners: Vec<OwnerId>,
    channels: Vec<String>,
    lease: Lease,
}

impl Locks {
    fn of(names: &[&str]) -> Self {
        Self::owned_by("me", names)
    }

    fn owned_by(client: &str, names: &[&str]) -> Self {
        let names: Vec<_> = names.iter().map(|name| LockName::new(name).unwrap()).collect();
        let owners = (1..=names.len()).map(|hold| OwnerId::encoded(format!("{client}:1.{hold}"))).collect();
        let channels = names.iter().map(|name| name.channel().text()).collect();
        Self { names, owners, channels, lease: Lease::new(LEASE).unwrap() }
    }

    fn acquire(&self) -> Call<BundleAttempt> {
        let part = |(name, owner)| AcquireArgs { name, owner, lease: self.lease, waits: true };
        PLAIN.acquire_all(&self.names.iter().zip(&self.owners).map(part).collect::<Vec<_>>())
    }

    fn release(&self) -> Call<Vec<Released>> {
        let channels = self.channels.iter().map(|channel| Joined::of(channel));
        let parts = self.names.iter().zip(&self.owners).zip(channels);
        let part = |((name, owner), channel)| BundleRelease { name, owner, channel };
        PLAIN.release_all(&parts.map(part).collect::<Vec<_>>())
    }
}

pub(super) fn acquire(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    PLAIN.acquire(&AcquireArgs { name, owner, lease, waits: true })
}

const PLAIN: Plain = Plain { reentrant: true };
const LEASE: Duration = Duration::from_secs(30);
const BUSY: fn(&PartState) -> bool =
    |state| matches!(state, PartState::Told(Attempt::Busy { ttl_ms: 29_000..=30_000 }));

#[test]
fn a_repeated_request_that_lost_a_part_changes_nothing() {
    let server = RedisServer::start();
    let locks = Locks::of(&["a", "b"]);
    run(&server, &locks.acquire());
    server.run(&["DEL", "b"]);
    run(&server, &Locks::owned_by("other", &["b"]).acquire());
    let answer = changes_nothing(&server, &locks.acquire());
    let BundleAttempt::Refused(states) = answer else { panic!("{answer:?}") };
    assert!(states[0] == PartState::Ours && BUSY(&states[1]), "{states:?}");
}

#[test]
fn a_user_without_a_right_takes_nothing() {
    let server = RedisServer::start();
    let locks = Locks::of(&["a", "b", "c"]);
    for (denied, is_needed) in
        [("exists", true), ("hset", true), ("pexpire", true), ("hdel", true), ("hexists", false), ("pttl", false)]
    {
        let url = url_of_user(&server, &["~*", "+@all", &format!("-{denied}")]);
        let answer = run_at(&url, &locks.acquire());
        let wanted = if is_needed { Err("NOPERM".to_owned()) } else { Ok(BundleAttempt::Granted { token: None }) };
        assert_eq!(answer, wanted, "without {denied}");
        assert_eq!(server.keys().is_empty(), is_needed, "without {denied}");
        server.run(&["FLUSHALL"]);
    }
}

#[test]
fn a_refusal_at_a_later_lock_undoes_the_earlier_ones() {
    let server = RedisServer::start();
    let locks = Locks::of(&["app:1", "app:2", "other"]);
    for denied in ["hset", "pexpire", "hdel"] {
        // The right is limited to some keys.
        let url = url_of_user(
            &server,
            &["~*", "+@all", &format!("-{denied}"), &format!("(+{denied} +evalsha +eval ~app:*)")],
        );
        assert_eq!(run_at(&url, &locks.acquire()), Err("NOPERM".to_owned()), "without {denied}");
        assert_eq!(server.keys(), [""; 0], "without {denied}");
    }
}

#[test]
fn a_refused_repetition_takes_no_further_lock() {
    let server = RedisServer::start();
    run(&server, &Locks::of(&["a"]).acquire());
    let url = url_of_user(&server, &["~*", "+@all", "-pttl"]);
    assert_eq!(run_at(&url, &Locks::of(&["a", "b"]).acquire()), Err("NOPERM".to_owned()));
    assert_eq!(server.keys(), ["a"]);
}

#[test]
fn a_full_memory_refuses_new_locks_and_no_others() {
    let server = RedisServer::start();
    let (locks, held) = (Locks::of(&["a", "b"]), Locks::owned_by("other", &["c", "d"]));
    run(&server, &held.acquire());
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(run_at(&server.url(), &locks.acquire()), Err("OOM".to_owned()));
    let mixed = Locks::owned_by("other", &["c", "d", "e"]);
    assert_eq!(run_at(&server.url(), &mixed.acquire()), Err("OOM".to_owned()));
    assert_eq!(server.keys(), ["c", "d"]);
    assert_eq!(run(&server, &held.acquire()), BundleAttempt::Granted { token: None });
    assert_eq!(run(&server, &held.release()), [Ok(Some(0)), Ok(Some(0))]);
}

#[test]
fn each_release_answers_and_publishes_for_itself() {
    let server = RedisServer::start();
    let mut locks = Locks::of(&["held", "gone", "taken", "text", "silent", "shared", "heard"]);
    locks.channels[4] = String::new();
    locks.channels[5] = locks.channels[6].clone();
    run(&server, &locks.acquire());
    server.run(&["HSET", "shared", "another field", "1"]);
    server.run(&["DEL", "gone", "taken", "text"]);
    run(&server, &acquire(&locks.names[2], &OwnerId::encoded("other:1.1"), locks.lease));
    server.run(&["SET", "text", "x"]);
    let (gone, taken) = (Err(Loss::Gone), Err(Loss::Taken));
    let done = |receivers| Ok(Some(receivers));
    let (released, messages) = heard(&server, &locks.channels[6], || run(&server, &locks.release()));
    assert_eq!(released, [done(0), gone, taken, taken, done(0), done(0), done(1)]);
    assert_eq!(server.keys(), ["shared", "taken", "text"]);
    assert_eq!(messages, [(locks.channels[6].clone(), "0".to_owned())], "one message for each release");
}

#[test]
fn a_release_goes_on_after_a_refusal() {
    let server = RedisServer::start();
    let locks = Locks::of(&["a", "app:1", "app:2"]);
    run(&server, &locks.acquire());
    let url = url_of_user(&server, &["~*", "+@all", "-hdel", "(+hdel +evalsha +eval ~app:*)"]);
    assert_eq!(run_at(&url, &locks.release()), Err("NOPERM".to_owned()));
    assert_eq!(server.keys(), ["a"], "the others are released");
    let url = url_of_user(&server, &["~*", "+@all", "-publish"]);
    run(&server, &locks.acquire());
    assert_eq!(run_at(&url, &locks.release()), Ok(vec![Ok(None); 3]), "released without a message");
}

#[test]
fn a_bundle_publishes_as_single_releases_do() {
    let server = RedisServer::start();
    let locks = Locks::of(&["a", "{b}c"]);
    run(&server, &locks.acquire());
    let (_, together) = heard(&server, "*", || run(&server, &locks.release()));
    run(&server, &locks.acquire());
    let owned = locks.names.iter().zip(&locks.owners);
    let release = |(name, owner)| run(&server, &PLAIN.release(name, owner, None)).unwrap();
    assert_eq!(heard(&server, "*", || owned.map(release).collect::<Vec<_>>()), (vec![Some(1); 2], together));
}

#[test]
fn replies_of_unknown_shape_are_no_answer() {
    let read = |reply: &str| BundleAttempt::read(&redis::parse_redis_value(reply.as_bytes()).unwrap());
    assert_eq!(read("*1\r\n:1\r\n"), Some(BundleAttempt::Granted { token: None }));
    for odd in ["*0\r\n", "*1\r\n:2\r\n", "*2\r\n:1\r\n:1\r\n", "*2\r\n:0\r\n:-5\r\n", "*2\r\n:0\r\n+x\r\n", ":1\r\n"] {
        assert_eq!(read(odd), None, "{odd}");
    }
}
