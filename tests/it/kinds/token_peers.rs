//! The token lock beside real lock libraries: `make interop` builds the libraries, `tests/interop/token_peers`
//! describes the commands.

mod peer;

use peer::{Peer, value};

use crate::support::prelude::*;

#[test]
#[ignore = "make interop"]
fn redis_py_and_lockson_exclude_each_other() {
    check("redis-py");
}

#[test]
#[ignore = "make interop"]
fn redsync_and_lockson_exclude_each_other() {
    check("redsync");
}

#[test]
#[ignore = "make interop"]
fn node_redlock_and_lockson_exclude_each_other() {
    check("redlock");
}

#[test]
#[ignore = "make interop"]
fn the_next_node_redlock_and_lockson_exclude_each_other() {
    check("redlock5");
}

#[test]
#[ignore = "make interop"]
fn rslock_and_lockson_exclude_each_other() {
    check("rslock");
}

#[test]
#[ignore = "make interop"]
fn handwritten_jedis_code_and_lockson_exclude_each_other() {
    check("jedis");
}

/// All checks, with both forms of release that every server supports, and with values of Lockson's form and of the
/// library's form. Without scripts there is nothing to renew, and each lock has a lease.
fn check(library: &str) {
    let mut peer = Peer::start(library, &fresh("token"));
    let theirs = peer.sample();
    for form in [ReleaseBy::Script, ReleaseBy::Transaction] {
        let options = TokenOptions::new().with_release_by(form);
        let shape = theirs.clone();
        let alike = options.clone().with_value(move |owner| peer::shaped_like(&shape, owner));
        for (values, options) in [("our values", options), ("values like theirs", alike)] {
            println!("{library}, {form:?}, {values}");
            let by_script = form == ReleaseBy::Script;
            let of = |client: &Client| match client.get_token_lock_with(&peer.name, options.clone()) {
                lock if by_script => lock,
                lock => lock.with_lease(ms(30_000)),
            };
            let (lock, brisk) = (of(&client()), of(&brisk_client()));
            the_one_waits_for_the_other(&lock, &mut peer);
            both_take_turns(&lock, &mut peer);
            if by_script {
                the_watchdog_keeps_them_out(&brisk, &mut peer);
            }
            their_lease_ends_in_time_and_they_cannot_touch_ours(&lock, &mut peer);
            a_forced_release_ends_the_hold_of_the_library(&lock, &mut peer);
            a_take_after_the_lease_is_left_to_the_library(&lock, &mut peer);
            a_take_after_a_deletion_is_left_to_the_library(&lock, &mut peer);
            the_library_accepts_an_adopted_value(&lock, &mut peer);
        }
    }
}

fn the_one_waits_for_the_other(lock: &Lock, peer: &mut Peer) {
    let guard = lock.lock().unwrap();
    peer.expect("try 30000", "busy");
    assert_ours(&guard);
    peer.send("lock 30000");
    assert_eq!(peer.answer_if_any(ms(300)), None, "the library waits");
    guard.unlock().unwrap();
    assert_eq!(peer.answer(), "taken");

    let value = theirs(lock);
    assert!(lock.try_lock().unwrap().is_none());
    assert!(lock.try_lock_for(ms(100)).unwrap().is_none());
    assert!(lock.is_locked().unwrap());
    assert_eq!(lock.holder().unwrap().unwrap().owner(), String::from_utf8_lossy(&value));
    assert!(lock.remaining_time_to_live().unwrap().is_some_and(|left| left > ms(20_000) && left <= ms(30_000)));
    peer.expect("extend 90000", "done");
    assert!(lock.remaining_time_to_live().unwrap().is_some_and(|left| left > ms(80_000)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().and_then(Guard::unlock));
        thread::sleep(ms(100));
        assert!(!waiter.is_finished());
        assert_eq!(theirs(lock), value);
        peer.expect("unlock", "done");
        waiter.join().unwrap().unwrap();
    });
    assert_free(lock);
    peer.expect("try 30000", "taken");
    peer.expect("unlock", "done");
    assert_free(lock);
}

/// Both sides take the lock all the time; each holder checks that the other side is not inside.
fn both_take_turns(lock: &Lock, peer: &mut Peer) {
    let (inside, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let enter = || assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
    let leave = || inside.store(false, Ordering::SeqCst);
    thread::scope(|scope| {
        let ours = scope.spawn(|| {
            let mut turns = 0;
            while !over.load(Ordering::SeqCst) {
                let guard = lock.lock().unwrap();
                enter();
                thread::sleep(ms(2));
                leave();
                guard.unlock().unwrap();
                turns += 1;
                thread::sleep(ms(5));
            }
            turns
        });
        // Also after a failed turn of the library: a scope waits for its threads.
        let _ended = Ended(&over);
        for _ in 0..TURNS {
            peer.expect("lock 30000", "taken");
            enter();
            thread::sleep(ms(2));
            leave();
            peer.expect("unlock", "done");
        }
        over.store(true, Ordering::SeqCst);
        assert!(ours.join().unwrap() > 0);
    });
    assert_free(lock);
}

fn the_watchdog_keeps_them_out(lock: &Lock, peer: &mut Peer) {
    let guard = lock.lock().unwrap();
    peer.send("lock 30000");
    assert_eq!(peer.answer_if_any(TTL * 2), None, "the client renews the lock");
    assert_ours(&guard);
    guard.unlock().unwrap();
    assert_eq!(peer.answer(), "taken");
    peer.expect("unlock", "done");
}

fn their_lease_ends_in_time_and_they_cannot_touch_ours(lock: &Lock, peer: &mut Peer) {
    peer.expect(&format!("try {}", TTL.as_millis()), "taken");
    let left = lock.remaining_time_to_live().unwrap().expect("it ends");
    let (took, guard) = timed(|| lock.lock().unwrap());
    assert!(took + ms(100) > left && took < left + SCHEDULING, "{took:?} for a lease of {left:?}");
    the_library_cannot_touch_the_lock(&guard, peer);
    guard.unlock().unwrap();
    assert_free(lock);
}

/// The library's own clock reveals nothing here, so the library must ask Redis.
fn a_forced_release_ends_the_hold_of_the_library(lock: &Lock, peer: &mut Peer) {
    peer.expect("try 30000", "taken");
    assert!(lock.force_unlock().unwrap());
    let guard = lock.lock().unwrap();
    the_library_cannot_touch_the_lock(&guard, peer);
    guard.unlock().unwrap();
}

fn a_take_after_the_lease_is_left_to_the_library(lock: &Lock, peer: &mut Peer) {
    let guard = lock.with_lease(ms(300)).lock().unwrap();
    peer.expect("lock 30000", "taken");
    let value = theirs(lock);
    assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Expired));
    assert_eq!(theirs(lock), value);
    peer.expect("unlock", "done");
}

/// The client's clock reveals nothing here; only Redis does.
fn a_take_after_a_deletion_is_left_to_the_library(lock: &Lock, peer: &mut Peer) {
    for looks_again in [false, true] {
        let guard = lock.lock().unwrap();
        RedisServer::shared().run(&["DEL", lock.name()]);
        peer.expect("try 30000", "taken");
        let value = theirs(lock);
        if looks_again {
            let outcome = kind_of(guard.extend(ms(60_000)));
            assert!(matches!(outcome, ErrorKind::Lost(Loss::Taken) | ErrorKind::Unsupported), "{outcome:?}");
        }
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Taken));
        assert_eq!(theirs(lock), value);
        assert!(ttl_ms(RedisServer::shared(), lock.name()) <= 30_000, "the client did not raise the time to live");
        peer.expect("unlock", "done");
        assert_free(lock);
    }
}

/// The library accepts Lockson's value, byte for byte, as a value of the library's form.
fn the_library_accepts_an_adopted_value(lock: &Lock, peer: &mut Peer) {
    let guard = lock.lock().unwrap();
    peer.expect(&format!("adopt {}", guard.owner()), "done");
    peer.expect("extend 90000", "done");
    assert!(ttl_ms(RedisServer::shared(), lock.name()) > 80_000);
    assert_ours(&guard);
    peer.expect("unlock", "done");
    assert_free(lock);
    assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Gone));
}

#[track_caller]
fn the_library_cannot_touch_the_lock(guard: &Guard, peer: &mut Peer) {
    let before = ttl_ms(RedisServer::shared(), guard.name());
    peer.expect("extend 90000", "not ours");
    peer.expect("unlock", if peer.tells_of_release { "not ours" } else { "done" });
    assert_ours(guard);
    assert!(ttl_ms(RedisServer::shared(), guard.name()) <= before, "the library did not raise the time to live");
    match guard.extend(ms(60_000)) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        outcome => outcome.unwrap(),
    }
}

#[track_caller]
fn assert_ours(guard: &Guard) {
    assert_eq!(value(guard.name()).as_deref(), Some(guard.owner().as_bytes()));
    assert!(guard.is_held());
}

/// The library's value under the key.
#[track_caller]
fn theirs(lock: &Lock) -> Vec<u8> {
    value(lock.name()).expect("the library holds the lock")
}

#[track_caller]
fn assert_free(lock: &Lock) {
    eventually(SOON, "the lock has no owner", || value(lock.name()).is_none());
}

/// Ends the other thread when this thread is done, or panics.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// How often the peer takes the lock while the other side wants the lock too.
const TURNS: usize = 25;
