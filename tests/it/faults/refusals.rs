//! The outcome of each call when the server answers, but refuses.

use std::thread;
use std::time::Duration;

use lockson::{Client, Error, ErrorKind, Loss};
use lockson_harness::proxy::{Scope, Then, When};
use lockson_harness::{RedisServer, eventually};

use crate::faults::answers::{ACQUIRES, Answers, EVERYTHING, WRITES, WRITES_AND_WAITS};
use crate::servers::{Version, Way, refuses, ways};
use crate::support::faults::{PATIENCE, Rig, SLACK, SOON, ms, timed};

#[test]
fn a_full_memory_refuses_new_locks_and_nothing_else() {
    answers(&ways::OOM).assert_refused("OOM", &ACQUIRES);
}

#[test]
fn a_server_that_cannot_save_takes_no_writes() {
    // The server refuses PING too, and `connect` sends a PING.
    answers(&ways::MISCONF).assert_refused("MISCONF", &[&WRITES[..], &["connect"]].concat());
}

#[test]
fn a_replica_is_left_at_once_and_not_taken_for_a_master_again() {
    answers(&ways::READONLY).assert_refused("READONLY", &EVERYTHING);
}

#[test]
fn a_replica_without_its_master_answers_nothing() {
    answers(&ways::MASTERDOWN).assert_refused("MASTERDOWN", &EVERYTHING);
}

#[test]
fn a_server_without_its_replicas_takes_no_writes() {
    answers(&ways::NOREPLICAS).assert_refused("NOREPLICAS", &WRITES);
}

#[test]
fn a_loading_server_is_waited_for_within_the_bound() {
    answers(&ways::LOADING).assert_refused("LOADING", &EVERYTHING);
}

#[test]
fn a_busy_server_is_waited_for_within_the_bound() {
    answers(&ways::BUSY).assert_refused("BUSY", &EVERYTHING);
}

#[test]
fn a_wait_that_is_long_enough_sees_the_end_of_a_busy_time() {
    let rig = Rig::around(RedisServer::builder().config("lua-time-limit 20").start());
    let client = rig.impatient().connect().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| rig.server.try_query::<()>(&["EVAL", "while true do end", "0"]));
        eventually(SOON, "the lock is busy", || refuses(&rig, "BUSY"));
        let waiter = scope.spawn(|| client.get_lock("free").try_lock_for(SOON).unwrap().is_some());
        rig.proxy.wait_for_since(rig.proxy.mark(), &rig.script("acquire").nth(2), SOON);
        rig.server.run(&["SCRIPT", "KILL"]);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn a_server_that_is_busy_for_ever_costs_the_bound_and_no_more() {
    let rig = Rig::around(RedisServer::builder().config("lua-time-limit 20").start());
    let client = rig.impatient().connect().unwrap();
    let guard = client.get_lock("held").with_lease(PATIENCE * 4).lock().unwrap();
    let writes = "redis.call('SET', 'x', 1) while true do end"; // what wrote cannot be killed
    thread::scope(|scope| {
        scope.spawn(|| rig.server.try_query::<()>(&["EVAL", writes, "0"]));
        eventually(SOON, "the lock is busy", || refuses(&rig, "BUSY"));
        let (took, answer) = timed(|| client.get_lock("wanted").lock());
        assert_eq!(answer.unwrap_err().redis_word(), Some("BUSY"));
        assert!(took < PATIENCE * 3 + SLACK, "{took:?}");
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
        rig.server.kill();
    });
}

#[test]
fn a_replica_is_left_for_the_master_behind_its_name() {
    let rig = Rig::start();
    let successor = RedisServer::start();
    let client = rig.builder().watchdog(Duration::from_secs(4), ms(100)).connect().unwrap();
    let kept = client.get_lock("kept").lock().unwrap();
    let leased = client.get_lock("leased").with_lease(Duration::from_secs(60)).lock().unwrap();
    // Several idle connections, and the watchdog's own.
    thread::scope(|scope| {
        let busy = rig.proxy.rule(rig.script("acquire").times(4), Then::DelayReply(ms(200)));
        let takes: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn({
                    let lock = client.get_lock(format!("other:{number}"));
                    move || lock.lock().unwrap().unlock().unwrap()
                })
            })
            .collect();
        busy.wait_hits(4, SOON);
        takes.into_iter().for_each(|take| take.join().unwrap());
    });
    successor.run(&["REPLICAOF", "127.0.0.1", &rig.server.address().port().to_string()]);
    eventually(SOON, "the server has the lock", || successor.query::<i64>(&["EXISTS", "kept"]) == 1);
    successor.run(&["REPLICAOF", "NO", "ONE"]);
    rig.server.run(&["REPLICAOF", "127.0.0.1", &successor.address().port().to_string()]);
    rig.proxy.retarget(successor.address()); // connections that are open stay where they are
    let taken = client.get_lock("wanted").try_lock_for(SOON).unwrap().expect("the new master grants the lock");
    assert_eq!(successor.query::<i64>(&["EXISTS", "wanted"]), 1);
    leased.extend(Duration::from_secs(90)).unwrap();
    assert_eq!(kept.wait_lost(Duration::from_secs(6)), None, "the hold is renewed there");
    for guard in [taken, kept, leased] {
        guard.unlock().unwrap();
    }
    assert!(successor.keys().is_empty());
}

#[test]
fn a_refusal_that_takes_its_time_is_still_told_as_one() {
    let rig = Rig::start();
    // An attempt waits for at least a third of the patience; the last answer before the end decides.
    let (patience, pause) = (Duration::from_secs(3), ms(800));
    let client = rig.builder().command_timeout(patience).outage_limit(patience).connect().unwrap();
    let guard = client.get_lock("held").lock().unwrap();
    rig.server.run(&["REPLICAOF", "127.0.0.1", "1"]);
    rig.proxy.rule(When::script().always(), Then::DelayReply(pause));
    let error = guard.unlock().unwrap_err();
    assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("READONLY")), "{error}");
    let error = client.get_lock("free").lock().unwrap_err();
    assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("READONLY")), "{error}");
    rig.server.run(&["REPLICAOF", "NO", "ONE"]);
    rig.eventually_no_keys(SOON);
}

#[test]
fn a_user_whose_rights_were_narrowed_is_told_so() {
    answers(&ways::NO_SCRIPTS).assert_refused("NOPERM", &WRITES_AND_WAITS);
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"]);
    let rig = Rig::around(server);
    let client = Client::connect(&format!("redis://app:secret@127.0.0.1:{}", rig.proxy.port())).unwrap();
    // A command inside the scripts, and the key.
    for (narrow, widen) in [("-hset", "+hset"), ("resetkeys", "~*")] {
        rig.server.run(&["ACL", "SETUSER", "app", narrow]);
        let error = client.get_lock("free").try_lock().unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("NOPERM")), "{narrow}: {error}");
        rig.assert_no_keys();
        rig.server.run(&["ACL", "SETUSER", "app", widen]);
    }
}

#[test]
fn a_missing_or_wrong_password_is_told_at_the_door() {
    let server = RedisServer::builder().password("right").start();
    let port = server.port();
    for (url, word) in [
        (format!("redis://127.0.0.1:{port}"), "NOAUTH"),
        (format!("redis://127.0.0.1:{port}/?protocol=resp3"), "NOAUTH"),
        (format!("redis://:wrong@127.0.0.1:{port}"), "WRONGPASS"),
        (format!("redis://nobody:wrong@127.0.0.1:{port}"), "WRONGPASS"),
        (format!("redis://:wrong@127.0.0.1:{port}/?protocol=resp3"), "WRONGPASS"),
    ] {
        let error = Client::connect(&url).unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some(word)), "{error}");
        let lazily = Client::builder(&url).connect_lazily().unwrap();
        let error = lazily.get_lock("wanted").lock().unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some(word)), "{error}");
        assert_eq!(error.lock_name(), Some("wanted"));
    }
}

#[test]
fn a_password_that_changed_is_told_on_the_next_connection() {
    let rig = Rig::around(RedisServer::builder().password("first").start());
    let url = format!("redis://:first@127.0.0.1:{}", rig.proxy.port());
    let client = Client::builder(&url).command_timeout(PATIENCE).connect().unwrap();
    let mut admin = rig.server.connection();
    let () = redis::cmd("CONFIG").arg(&["SET", "requirepass", "second"]).query(&mut admin).unwrap();
    client.get_lock("wanted").lock().unwrap().unlock().unwrap(); // whoever is in stays in
    rig.proxy.cut(Scope::All);
    let error = client.get_lock("wanted").lock().unwrap_err();
    assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGPASS")), "{error}");
    let () = redis::cmd("CONFIG").arg(&["SET", "requirepass", "first"]).query(&mut admin).unwrap();
    client.get_lock("wanted").lock().unwrap().unlock().unwrap();
}

#[test]
fn scripts_the_server_forgot_are_sent_again_unnoticed() {
    let rig = Rig::start();
    let client = rig.builder().watchdog(Duration::from_secs(3), ms(200)).connect().unwrap();
    let lock = client.get_lock("once");
    let forget = || rig.server.run(&["SCRIPT", "FLUSH"]);
    for _ in 0..3 {
        forget();
        let outer = lock.lock().unwrap();
        forget();
        let inner = lock.lock().unwrap();
        rig.assert_held_by("once", outer.owner(), 2);
        forget();
        inner.unlock().unwrap();
        forget();
        let renewal = rig.proxy.wait_for_since(rig.proxy.mark(), &rig.script("renew").nth(3), SOON);
        rig.proxy.wait_fate(&renewal, SOON);
        forget();
        outer.extend(SOON).unwrap();
        rig.assert_held_by("once", outer.owner(), 1);
        forget();
        assert!(lock.force_unlock().unwrap());
        drop(outer);
        rig.assert_no_keys();
    }
}

#[test]
fn a_user_who_may_not_send_scripts_needs_them_loaded() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-eval"]);
    let rig = Rig::around(server);
    let client = Client::connect(&format!("redis://app:secret@127.0.0.1:{}", rig.proxy.port())).unwrap();
    client.get_lock("once").lock().unwrap().unlock().unwrap();
    rig.server.run(&["SCRIPT", "FLUSH"]);
    let error = client.get_lock("once").lock().unwrap_err();
    assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("NOPERM")), "{error}");
}

#[test]
fn a_foreign_value_is_reported_and_never_deleted() {
    let rig = Rig::start();
    let lock = rig.impatient().connect().unwrap().get_lock("data");
    rig.server.run(&["SET", "data", "precious"]);
    let refused = |error: Error| {
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGTYPE")), "{error}");
        assert_eq!(error.lock_name(), Some("data"));
    };
    refused(lock.try_lock().unwrap_err());
    refused(lock.try_lock_for(SOON).unwrap_err());
    refused(lock.lock().unwrap_err());
    refused(lock.force_unlock().unwrap_err());
    refused(lock.holder().unwrap_err());
    assert!(lock.is_locked().unwrap());
    let value: String = rig.server.query(&["GET", "data"]);
    assert_eq!(value, "precious");
}

#[test]
fn a_holder_whose_key_was_overwritten_is_told_that_it_was_taken() {
    for wait_for_renewal in [true, false] {
        let rig = Rig::start();
        let client = rig.builder().watchdog(Duration::from_secs(5), ms(if wait_for_renewal { 200 } else { 2_500 }));
        let lock = client.connect().unwrap().get_lock("data");
        let guard = lock.lock().unwrap();
        rig.server.run(&["SET", "data", "precious"]);
        if wait_for_renewal {
            assert_eq!(guard.wait_lost(SOON), Some(Loss::Taken));
        }
        let error = guard.unlock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost(Loss::Taken), "waited: {wait_for_renewal}");
        let value: String = rig.server.query(&["GET", "data"]);
        assert_eq!(value, "precious");
    }
}

#[test]
fn a_foreign_lock_without_a_ttl_is_asked_for_every_second() {
    let rig = Rig::start();
    let lock = rig.client().get_lock("data");
    for field in [["no-owner", "no-number"], ["no-owner", "9223372036854775807"]] {
        rig.server.run(&["HSET", "data", field[0], field[1]]); // without a time to live
        assert!(lock.try_lock().unwrap().is_none());
        assert_eq!(lock.remaining_time_to_live().unwrap(), Some(Duration::MAX));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(SOON).unwrap().is_some());
            rig.proxy.wait_for_since(rig.proxy.mark(), &rig.script("acquire").nth(2), SOON);
            rig.server.run(&["DEL", "data"]);
            assert!(waiter.join().unwrap());
        });
    }
}

/// The answers of the server that all tests use to each call.
fn answers(way: &Way) -> Answers {
    way.answers(&Version::of_this_machine().expect("redis-server runs here"))
}
