//! The special properties of the token lock: one value under the key, its options, its neighbours.

use std::panic::catch_unwind;

use lockson::Backoff;

use crate::support::prelude::*;

#[track_caller]
pub(super) fn value(server: &RedisServer, name: &str) -> Option<String> {
    server.query(&["GET", name])
}

/// Takes the lock twice: the key is deleted, and then it is another owner's, whose value stays.
#[track_caller]
pub(super) fn is_lost_to_others(server: &RedisServer, lock: &Lock) {
    let guard = lock.lock().unwrap();
    server.run(&["DEL", lock.name()]);
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
    drop(guard);
    let guard = lock.lock().unwrap();
    server.run(&["SET", lock.name(), "theirs"]);
    assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Taken));
    assert_eq!(value(server, lock.name()).as_deref(), Some("theirs"));
}

#[test]
fn the_value_is_the_owner_id_with_the_lease() {
    let server = RedisServer::shared();
    let lock = client().get_token_lock(fresh("token"));
    let guard = lock.with_lease(ms(20_000)).lock().unwrap();
    assert_eq!(value(server, lock.name()).as_deref(), Some(guard.owner()));
    assert!((19_000..=20_000).contains(&ttl_ms(server, lock.name())));
    let holder = lock.holder().unwrap().expect("the lock is held");
    assert_eq!((holder.owner(), holder.hold_count()), (guard.owner(), 1));
    assert!(lock.is_locked().unwrap());
    assert!(lock.remaining_time_to_live().unwrap().is_some_and(|left| left <= ms(20_000)));
    guard.unlock().unwrap();
    assert_eq!(value(server, lock.name()), None);
    assert!(!lock.is_locked().unwrap() && lock.holder().unwrap().is_none());
}

#[test]
fn the_value_is_what_the_options_make_of_the_owner() {
    let server = RedisServer::shared();
    let client = brisk_client();
    let named = TokenOptions::new().with_value(|owner| format!("billing/{owner}"));
    let lock = client.get_token_lock_with(fresh("token"), named);
    let (guard, plain) = (lock.lock().unwrap(), client.get_token_lock(fresh("token")).lock().unwrap());
    assert!(guard.owner().starts_with(&format!("billing/{}", client.id())), "{}", guard.owner());
    assert_eq!(value(server, lock.name()).as_deref(), Some(guard.owner()));
    // One batch renews values of both shapes.
    thread::sleep(TTL * 2);
    assert!(guard.is_held() && plain.is_held() && lock.lock().is_ok());
}

#[test]
fn hand_written_code_and_we_keep_each_other_out() {
    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    let server = RedisServer::shared();
    let name = fresh("token");
    let lock = client().get_token_lock(&name);
    let take = || server.query::<Option<String>>(&["SET", &name, "theirs", "NX", "PX", "30000"]).is_some();
    let give = || server.query::<i64>(&["EVAL", RELEASE, "1", &name, "theirs"]) == 1;

    assert!(take());
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(lock.holder().unwrap().unwrap().owner(), "theirs");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().and_then(lockson::Guard::unlock));
        thread::sleep(ms(50));
        assert!(!waiter.is_finished() && give());
        waiter.join().unwrap().unwrap();
    });

    let guard = lock.lock().unwrap();
    assert!(!take() && !give());
    guard.unlock().unwrap();
    assert!(take() && give());
}

#[test]
fn another_kind_and_another_type_under_the_name_are_refused() {
    let (server, client) = (RedisServer::shared(), client());
    for form in [ReleaseBy::Script, ReleaseBy::Transaction] {
        let make = |name| client.get_token_lock_with(name, TokenOptions::new().with_release_by(form)).with_lease(SOON);
        let lock = make(fresh("token"));
        let _plain = elsewhere(|| client.get_lock(lock.name()).owned().lock()).unwrap();
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::OtherKind, "{form:?}");
        assert_eq!(kind_of(lock.force_unlock()), ErrorKind::Refused, "{form:?}");
        let lock = make(fresh("token"));
        server.run(&["LPUSH", lock.name(), "no lock"]);
        let error = lock.try_lock().unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGTYPE")), "{form:?}");
    }
}

#[test]
fn a_key_without_time_to_live_is_repaired_only_when_told_to() {
    let server = RedisServer::shared();
    let (client, name) = (client(), fresh("token"));
    server.run(&["SET", &name, "theirs"]);
    assert!(client.get_token_lock(&name).with_lease(ms(300)).try_lock().unwrap().is_none());
    assert_eq!(ttl_ms(server, &name), -1);
    let lock = client.get_token_lock_with(&name, TokenOptions::new().with_repair_missing_ttl(true));
    let (took, guard) = timed(|| lock.with_lease(ms(300)).lock().unwrap());
    assert!(took >= ms(250) && took < SOON, "{took:?}");
    drop(guard);
}

#[test]
fn a_waiter_sleeps_no_longer_than_the_lock_lives_or_a_second() {
    let server = RedisServer::shared();
    let name = fresh("token");
    let lock =
        client().get_token_lock_with(&name, TokenOptions::new().with_backoff(Backoff::fixed(Duration::from_secs(60))));
    server.run(&["SET", &name, "theirs", "PX", "300"]);
    let (took, guard) = timed(|| lock.lock().unwrap());
    assert!(took < ms(900) + STANDSTILLS, "{took:?}");
    drop(guard);
    server.run(&["SET", &name, "theirs", "PX", "30000"]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| timed(|| lock.lock().map(drop)).0);
        thread::sleep(ms(100));
        server.run(&["DEL", &name]);
        assert!(waiter.join().unwrap() < ms(1_900));
    });
}

#[test]
fn a_value_function_that_panics_harms_no_later_call() {
    let client = client();
    let name = fresh("token");
    let odd = TokenOptions::new().with_value(|_| panic!("this panic is part of the test"));
    let lock = client.get_token_lock_with(&name, odd);
    assert!(catch_unwind(|| lock.try_lock()).is_err());
    assert!(!lock.is_held_by_current_thread());
    client.get_token_lock(&name).lock().unwrap().unlock().unwrap();
    let (took, ()) = timed(|| client.close());
    assert!(took < ms(500) + STANDSTILLS, "{took:?}");
}
