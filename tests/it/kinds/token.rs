//! The special properties of the token lock: one value under the key, its forms of release, its neighbours.

use std::panic::catch_unwind;
use std::thread;
use std::time::Duration;

use lockson::{Backoff, Client, ErrorKind, Lock, Loss, ReleaseBy, TokenOptions};
use lockson_harness::RedisServer;
use lockson_harness::proxy::{Direction, Scope, Then, When};

use crate::support::faults::{Rig, STANDSTILLS};
use crate::support::{SOON, TTL, brisk, brisk_client, client, elsewhere, fresh, joined, kind_of, ms, timed, ttl_ms};

/// The forms of release that every server supports.
const FORMS: [ReleaseBy; 2] = [ReleaseBy::Script, ReleaseBy::Transaction];

fn by(client: &Client, name: &str, form: ReleaseBy) -> Lock {
    client.get_token_lock_with(name, TokenOptions::new().release_by(form))
}

#[track_caller]
fn value(server: &RedisServer, name: &str) -> Option<String> {
    server.query(&["GET", name])
}

#[test]
fn the_value_is_the_owner_id_with_the_lease() {
    let server = RedisServer::shared();
    for form in FORMS {
        let lock = by(&client(), &fresh("token"), form);
        let guard = lock.with_lease(ms(20_000)).lock().unwrap();
        assert_eq!(value(server, lock.name()).as_deref(), Some(guard.owner()), "{form:?}");
        assert!((19_000..=20_000).contains(&ttl_ms(server, lock.name())), "{form:?}");
        let holder = lock.holder().unwrap().expect("the lock is held");
        assert_eq!((holder.owner(), holder.hold_count()), (guard.owner(), 1));
        assert!(lock.is_locked().unwrap());
        assert!(lock.remaining_time_to_live().unwrap().is_some_and(|left| left <= ms(20_000)));
        guard.unlock().unwrap();
        assert_eq!(value(server, lock.name()), None, "{form:?}");
        assert!(!lock.is_locked().unwrap() && lock.holder().unwrap().is_none());
    }
}

#[test]
fn reentry_is_counted_here_and_only_raises_the_time_to_live() {
    let server = RedisServer::shared();
    for form in FORMS {
        let lock = by(&client(), &fresh("token"), form);
        let outer = lock.with_lease(ms(20_000)).lock().unwrap();
        let shorter = lock.with_lease(ms(5_000)).lock().unwrap();
        assert!(ttl_ms(server, lock.name()) > 19_000, "{form:?}");
        let longer = lock.with_lease(ms(60_000)).lock().unwrap();
        assert!(ttl_ms(server, lock.name()) > 59_000, "{form:?}");
        assert_eq!((lock.hold_count(), value(server, lock.name()).as_deref()), (3, Some(outer.owner())));
        longer.unlock().unwrap();
        assert!((18_000..=20_000).contains(&ttl_ms(server, lock.name())), "{form:?}");
        shorter.unlock().unwrap();
        outer.unlock().unwrap();
        assert_eq!(value(server, lock.name()), None);
    }
}

#[test]
fn the_value_is_what_the_options_make_of_the_owner() {
    let server = RedisServer::shared();
    let client = brisk_client();
    let named = |form| TokenOptions::new().release_by(form).value(|owner| format!("billing/{owner}"));
    for form in FORMS {
        let lock = client.get_token_lock_with(fresh("token"), named(form));
        let (guard, plain) = (lock.lock().unwrap(), by(&client, &fresh("token"), form).lock().unwrap());
        assert!(guard.owner().starts_with(&format!("billing/{}", client.id())), "{}", guard.owner());
        assert_eq!(value(server, lock.name()).as_deref(), Some(guard.owner()));
        // One batch renews values of both shapes.
        thread::sleep(TTL * 2);
        assert!(guard.is_held() && plain.is_held() && lock.lock().is_ok(), "{form:?}");
    }
}

#[test]
fn hand_written_code_and_we_keep_each_other_out() {
    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    let server = RedisServer::shared();
    for form in FORMS {
        let name = fresh("token");
        let lock = by(&client(), &name, form);
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
}

#[test]
fn a_loss_is_noticed_and_what_others_hold_is_left_alone() {
    let server = RedisServer::shared();
    for form in FORMS {
        let lock = by(&brisk_client(), &fresh("token"), form);
        let guard = lock.lock().unwrap();
        server.run(&["DEL", lock.name()]);
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone), "{form:?}");
        drop(guard);
        let guard = lock.lock().unwrap();
        server.run(&["SET", lock.name(), "theirs"]);
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Taken), "{form:?}");
        assert_eq!(value(server, lock.name()).as_deref(), Some("theirs"));
        assert!(lock.force_unlock().unwrap() && !lock.force_unlock().unwrap());
        let guard = lock.lock().unwrap();
        server.run(&["DEL", lock.name()]);
        server.run(&["LPUSH", lock.name(), "no lock"]);
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Taken), "{form:?}");
    }
}

#[test]
fn another_kind_and_another_type_under_the_name_are_refused() {
    let server = RedisServer::shared();
    for form in FORMS {
        let (client, name) = (client(), fresh("token"));
        let lock = by(&client, &name, form);
        let _plain = elsewhere(|| client.get_lock(&name).owned().lock()).unwrap();
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::OtherKind, "{form:?}");
        assert_eq!(kind_of(lock.force_unlock()), ErrorKind::Refused, "{form:?}");
        let lock = by(&client, &fresh("token"), form);
        server.run(&["LPUSH", lock.name(), "no lock"]);
        let error = lock.try_lock().unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGTYPE")), "{form:?}");
        // A call that broke off must not leave a connection inside a transaction.
        by(&client, &fresh("token"), form).lock().unwrap().unlock().unwrap();
    }
}

#[test]
fn a_key_without_time_to_live_is_repaired_only_when_told_to() {
    let server = RedisServer::shared();
    for form in FORMS {
        let (client, name) = (client(), fresh("token"));
        server.run(&["SET", &name, "theirs"]);
        assert!(by(&client, &name, form).with_lease(ms(300)).try_lock().unwrap().is_none());
        assert_eq!(ttl_ms(server, &name), -1, "{form:?}");
        let lock = client.get_token_lock_with(&name, TokenOptions::new().release_by(form).repair_missing_ttl(true));
        let (took, guard) = timed(|| lock.with_lease(ms(300)).lock().unwrap());
        assert!(took >= ms(250) && took < SOON, "{form:?}: {took:?}");
        drop(guard);
    }
}

#[test]
fn a_waiter_sleeps_no_longer_than_the_lock_lives_or_a_second() {
    let server = RedisServer::shared();
    let name = fresh("token");
    let lock =
        client().get_token_lock_with(&name, TokenOptions::new().backoff(Backoff::fixed(Duration::from_secs(60))));
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
fn without_scripts_nothing_is_a_script() {
    let server = RedisServer::start();
    let client = brisk(&server).connect().unwrap();
    let lock = by(&client, "quiet", ReleaseBy::Transaction);
    let other = by(&brisk(&server).connect().unwrap(), "quiet", ReleaseBy::Transaction);
    let (outer, second) = (lock.lock().unwrap(), by(&client, "second", ReleaseBy::Transaction).lock().unwrap());
    let inner = lock.lock().unwrap();
    assert!(other.try_lock_for(TTL * 2).unwrap().is_none());
    assert!(outer.is_held() && second.is_held());
    inner.extend(ms(5_000)).unwrap();
    [inner, outer, second].into_iter().for_each(|guard| guard.unlock().unwrap());
    let _held = other.lock().unwrap();
    assert!(lock.force_unlock().unwrap());
    for word in ["eval", "evalsha", "script|load", "fcall"] {
        assert_eq!(server.calls_of(word), 0, "{word}");
    }
    assert!(server.calls_of("exec") > 4);
}

#[test]
fn without_scripts_a_mute_server_keeps_no_other_lock() {
    let rigs = [Rig::start(), Rig::start()];
    let clients = rigs.each_ref().map(Rig::client);
    for mute in 0..2 {
        let locks = [0, 1].map(|place| by(&clients[place], &format!("both {mute}"), ReleaseBy::Transaction));
        let guard = Lock::multi(locks.clone()).owned().lock().unwrap();
        rigs[mute].proxy.mute(Scope::All, Direction::Both);
        let healthy = by(&rigs[1 - mute].direct(), locks[1 - mute].name(), ReleaseBy::Script);
        thread::scope(|scope| {
            let unlock = scope.spawn(|| guard.unlock());
            assert!(healthy.try_lock_for(SOON).unwrap().is_some());
            assert!(!unlock.is_finished(), "the mute server has not answered");
        });
        rigs[mute].proxy.heal();
    }
}

#[test]
fn without_scripts_a_missing_right_is_told_by_its_word() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-pttl"]);
    let url = server.url().replace("redis://", "redis://app:secret@");
    let client = brisk(&server).connect().unwrap();
    let guard = by(&client, "job", ReleaseBy::Transaction).lock().unwrap();
    let refused = Client::connect(&url).unwrap();
    let (took, outcome) = timed(|| by(&refused, "job", ReleaseBy::Transaction).try_lock_for(SOON));
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("NOPERM")), "{error}");
    assert!(took < SOON, "{took:?}");
    guard.unlock().unwrap();
}

#[test]
fn a_server_without_the_command_is_refused_and_untouched() {
    let server = RedisServer::start();
    let lock = by(&Client::connect(&server.url()).unwrap(), "own", ReleaseBy::Server);
    let error = lock.lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("neither DELEX (Redis 8.4) nor DELIFEQ (Valkey 9)"), "{error}");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn the_servers_own_command_opens_the_lock() {
    let rig = Rig::start();
    rig.proxy.rule(When::command("DELIFEQ").always(), Then::AnswerInstead(b":1\r\n".to_vec()));
    let lock = by(&rig.client(), "own", ReleaseBy::Server);
    let guard = lock.lock().unwrap();
    let owner = guard.owner().to_owned();
    assert_eq!(value(&rig.server, "own"), Some(owner.clone()));
    guard.unlock().unwrap();
    let sent = rig.proxy.fitting(&When::command("DELIFEQ"));
    assert_eq!(sent.len(), 2, "asked whether it is there, and used");
    assert!(sent.iter().all(|request| request.text(0) == "own" && request.text(1) == owner));
    assert_eq!(rig.server.calls_of("evalsha"), 0);
}

#[test]
fn a_lost_answer_costs_nothing_wherever_it_is_lost() {
    let cases: [(ReleaseBy, &[&str], &[&str]); 2] = [
        (ReleaseBy::Script, &["EVALSHA"], &["EVALSHA"]),
        (ReleaseBy::Transaction, &["SET", "GET", "PTTL"], &["WATCH", "GET", "PTTL", "MULTI", "DEL", "EXEC"]),
    ];
    for (form, acquiring, releasing) in cases {
        let rig = Rig::start();
        let lock = by(&rig.client(), "lost", form);
        lock.lock().unwrap().unlock().unwrap();
        for fault in [Then::CutBeforeRequest, Then::CutRequestAfter(9), Then::CutReplyAfter(0), Then::CutReplyAfter(2)]
        {
            for word in acquiring {
                let rule = rig.proxy.rule(When::command(word), fault.clone());
                let guard = lock.lock().unwrap();
                assert_eq!(rule.hits(), 1, "{word} {fault:?}");
                assert_eq!(value(&rig.server, "lost").as_deref(), Some(guard.owner()), "{word} {fault:?}");
                assert!(ttl_ms(&rig.server, "lost") > 29_000);
                guard.unlock().unwrap();
            }
            for word in releasing {
                let guard = lock.lock().unwrap();
                let mark = rig.proxy.mark();
                let rule = rig.proxy.rule(When::command(word), fault.clone());
                guard.unlock().unwrap_or_else(|error| panic!("{form:?} {word} {fault:?}: {error}"));
                assert_eq!(rule.hits(), 1, "{word} {fault:?}");
                rig.assert_no_keys();
                // The release starts again, and the lost request cannot arrive late.
                rig.assert_fenced_before_repeat(mark, &When::command(releasing[0]));
            }
        }
    }
}

#[test]
fn a_change_between_look_and_act_causes_another_look() {
    let rig = Rig::start();
    let lock = by(&rig.client(), "race", ReleaseBy::Transaction);
    let guard = lock.owned().lock().unwrap();
    let rule = rig.proxy.rule(When::command("MULTI"), Then::HoldRequest);
    thread::scope(|scope| {
        let release = scope.spawn(move || guard.unlock());
        rule.wait_hit(SOON);
        rig.server.run(&["SET", "race", "theirs"]);
        rule.release();
        assert_eq!(kind_of(joined(release)), ErrorKind::Lost(Loss::Taken));
    });
    assert_eq!(value(&rig.server, "race").as_deref(), Some("theirs"));
}

#[test]
fn a_value_function_that_panics_harms_no_later_call() {
    let client = client();
    let name = fresh("token");
    let odd = TokenOptions::new().value(|_| panic!("this panic is part of the test"));
    let lock = client.get_token_lock_with(&name, odd);
    assert!(catch_unwind(|| lock.try_lock()).is_err());
    assert!(!lock.is_held_by_current_thread());
    client.get_token_lock(&name).lock().unwrap().unlock().unwrap();
    let (took, ()) = timed(|| client.close());
    assert!(took < ms(500) + STANDSTILLS, "{took:?}");
}
