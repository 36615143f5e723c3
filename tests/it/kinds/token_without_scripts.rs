//! The token lock of users who may run no scripts: taken with a lease, and released as a whole.

use super::token::{is_lost_to_others, value};
use crate::support::prelude::*;

fn without_lease(client: &Client, name: &str, form: ReleaseBy) -> Lock {
    client.get_token_lock_with(name, TokenOptions::new().with_release_by(form))
}

fn leased(client: &Client, name: &str) -> Lock {
    without_lease(client, name, ReleaseBy::Transaction).with_lease(ms(30_000))
}

#[test]
fn what_needs_a_script_is_refused_before_any_request() {
    let (rig, client) = Rig::start().and(Rig::client);
    let mark = rig.proxy.mark();
    for form in [ReleaseBy::Transaction, ReleaseBy::Server] {
        let endless = without_lease(&client, "job", form);
        let repairing = TokenOptions::new().with_release_by(form).with_repair_missing_ttl(true);
        let repairing = client.get_token_lock_with("job", repairing).with_lease(SOON);
        let multi = Lock::multi([endless.with_lease(SOON)]).with_lease(SOON);
        for (lock, advice) in [
            (&endless, "with_lease()"),
            (&endless.with_max_hold(SOON), "with_lease()"),
            (&repairing, "with_repair_missing_ttl()"),
            (&multi, "ReleaseBy::Script"),
        ] {
            for error in [lock.lock().map(drop).unwrap_err(), lock.owned().try_lock().map(drop).unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::BadInput, "{lock:?}: {error}");
                assert!(error.to_string().contains(advice), "{error}");
            }
        }
    }
    assert!(rig.proxy.fitting_since(mark, &When::any()).is_empty());
}

#[test]
fn nothing_is_a_script() {
    let server = RedisServer::start();
    let [client, other] = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
    let (lock, others) = (leased(&client, "quiet"), leased(&other, "quiet"));
    let guard = lock.lock().unwrap();
    assert_eq!(value(&server, "quiet").as_deref(), Some(guard.owner()));
    assert!((29_000..=30_000).contains(&ttl_ms(&server, "quiet")));
    let holder = lock.holder().unwrap().expect("it is held");
    assert_eq!((holder.owner(), holder.hold_count()), (guard.owner(), 1));
    assert!(others.try_lock().unwrap().is_none() && others.is_locked().unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| others.lock().and_then(Guard::unlock));
        thread::sleep(ms(50));
        assert!(!waiter.is_finished());
        guard.unlock().unwrap();
        joined(waiter).unwrap();
    });
    let _held = others.lock().unwrap();
    assert!(lock.force_unlock().unwrap() && !lock.force_unlock().unwrap());
    for word in ["eval", "evalsha", "script|load", "fcall"] {
        assert_eq!(server.calls_of(word), 0, "{word}");
    }
    assert_eq!((server.calls_of("exec"), server.keys()), (2, vec![]));
}

#[test]
fn a_hold_is_neither_taken_again_nor_extended() {
    let (server, client) = (RedisServer::shared(), client());
    let lock = leased(&client, &fresh("token"));
    let guard = lock.lock().unwrap();
    assert_eq!(kind_of(lock.try_lock()), ErrorKind::AlreadyHeld);
    assert_eq!(kind_of(client.get_token_lock(lock.name()).try_lock()), ErrorKind::OtherKind);
    assert_eq!(kind_of(guard.extend(ms(60_000))), ErrorKind::Unsupported);
    assert!(guard.is_held() && ttl_ms(server, lock.name()) <= 30_000);
    assert!(elsewhere(|| lock.try_lock().unwrap().is_none()), "another thread finds it busy");
    guard.unlock().unwrap();
    assert_eq!(value(server, lock.name()), None);
}

#[test]
fn a_lease_is_not_renewed() {
    let lock = leased(&brisk_client(), &fresh("token")).with_lease(ms(300));
    let guard = lock.lock().unwrap();
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
    assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Expired));
}

#[test]
fn a_loss_is_noticed_and_what_others_hold_is_left_alone() {
    let server = RedisServer::shared();
    let lock = leased(&client(), &fresh("token"));
    is_lost_to_others(server, &lock);
    assert!(lock.try_lock().unwrap().is_none() && lock.force_unlock().unwrap());
    // No transaction is left open.
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(value(server, lock.name()), None);
}

#[test]
fn a_lost_answer_costs_nothing_wherever_it_is_lost() {
    let rig = Rig::start();
    let lock = leased(&rig.client(), "lost");
    lock.lock().unwrap().unlock().unwrap();
    for fault in [Then::CutBeforeRequest, Then::CutRequestAfter(9), Then::CutReplyAfter(0), Then::CutReplyAfter(2)] {
        for word in ["SET", "GET", "PTTL"] {
            let rule = rig.proxy.rule(When::command(word), fault.clone());
            let guard = lock.lock().unwrap();
            assert_eq!(rule.hits(), 1, "{word} {fault:?}");
            assert_eq!(value(&rig.server, "lost").as_deref(), Some(guard.owner()), "{word} {fault:?}");
            assert!(ttl_ms(&rig.server, "lost") > 29_000);
            guard.unlock().unwrap();
        }
        for word in ["WATCH", "GET", "MULTI", "DEL", "EXEC"] {
            let guard = lock.lock().unwrap();
            let mark = rig.proxy.mark();
            let rule = rig.proxy.rule(When::command(word), fault.clone());
            guard.unlock().unwrap_or_else(|error| panic!("{word} {fault:?}: {error}"));
            assert_eq!(rule.hits(), 1, "{word} {fault:?}");
            rig.assert_no_keys();
            // The release starts again, and the lost request cannot arrive late.
            rig.assert_fenced_before_repeat(mark, &When::command("WATCH"));
        }
    }
}

#[test]
fn the_lease_of_a_grant_begins_with_its_last_request() {
    let rig = Rig::start();
    let lock = leased(&rig.client(), "late");
    lock.lock().unwrap().unlock().unwrap();
    let rule = rig.proxy.rule(When::command("PTTL"), Then::HoldReply);
    thread::scope(|scope| {
        let taken = scope.spawn(|| lock.owned().lock().unwrap());
        rule.wait_hit(SOON);
        eventually(SOON, "the copy is granted", || value(&rig.server, "late").is_some());
        let copy = value(&rig.server, "late");
        thread::sleep(ms(600));
        rig.proxy.cut(Scope::All);
        let guard = joined(taken);
        assert_eq!(copy.as_deref(), Some(guard.owner()));
        let left = ttl_ms(&rig.server, "late");
        assert!(guard.hold().remaining() <= ms(left.unsigned_abs()), "{:?} of {left} ms", guard.hold().remaining());
    });
}

#[test]
fn a_change_between_look_and_act_causes_another_look() {
    let rig = Rig::start();
    let lock = leased(&rig.client(), "race");
    for (change, outcome) in [
        (&["SET", "race", "theirs"][..], Err(ErrorKind::Lost(Loss::Taken))),
        (&["DEL", "race"], Err(ErrorKind::Lost(Loss::Gone))),
        (&["PEXPIRE", "race", "20000"], Ok(())),
    ] {
        let guard = lock.owned().lock().unwrap();
        let rule = rig.proxy.rule(When::command("DEL"), Then::HoldRequest);
        thread::scope(|scope| {
            let release = scope.spawn(move || guard.unlock());
            rule.wait_hit(SOON);
            rig.server.run(change);
            rule.release();
            assert_eq!(joined(release).map_err(|error| error.kind()), outcome, "{change:?}");
        });
        let theirs = (change[0] == "SET").then_some("theirs");
        assert_eq!(value(&rig.server, "race").as_deref(), theirs, "{change:?}");
        rig.server.run(&["FLUSHALL"]);
    }
}

#[test]
fn a_missing_right_is_told_by_the_release_which_deletes_nothing() {
    let server = RedisServer::start();
    for word in ["watch", "multi", "del", "exec"] {
        server.run(&["ACL", "SETUSER", word, "on", ">secret", "~*", "&*", "+@all", &format!("-{word}")]);
        let url = server.url().replace("redis://", &format!("redis://{word}:secret@"));
        let client = Client::builder(&url).max_connections(1).connect().unwrap();
        let lock = leased(&client, word);
        let guard = lock.lock().unwrap();
        let owner = guard.owner().to_owned();
        let error = guard.unlock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{word}: {error}");
        assert!(error.to_string().contains("NOPERM"), "{word}: {error}");
        // No transaction is left open on the connection.
        assert_eq!(lock.holder().unwrap().expect("its lease goes on").owner(), owner, "{word}");
        assert!(ttl_ms(&server, word) <= 30_000, "{word}");
    }
}

#[test]
fn a_server_without_the_command_is_told_at_the_release() {
    let rig = Rig::start();
    lacks(&rig, "DELEX");
    lacks(&rig, "DELIFEQ");
    let guard = without_lease(&rig.client(), "own", ReleaseBy::Server).with_lease(SOON).lock().unwrap();
    let owner = guard.owner().to_owned();
    let error = guard.unlock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("neither DELEX (Redis 8.4) nor DELIFEQ (Valkey 9)"), "{error}");
    assert_eq!(value(&rig.server, "own"), Some(owner));
}

fn lacks(rig: &Rig, command: &str) {
    let unknown = format!("-ERR unknown command '{command}'\r\n").into_bytes();
    rig.proxy.rule(When::command(command).always(), Then::AnswerInstead(unknown));
}

#[test]
fn the_servers_own_command_opens_the_lock() {
    let rig = Rig::start();
    lacks(&rig, "DELEX");
    rig.proxy.rule(When::command("DELIFEQ").always(), Then::AnswerInstead(b":1\r\n".to_vec()));
    let guard = without_lease(&rig.client(), "own", ReleaseBy::Server).with_lease(SOON).lock().unwrap();
    let owner = guard.owner().to_owned();
    assert_eq!(value(&rig.server, "own"), Some(owner.clone()));
    guard.unlock().unwrap();
    let sent = rig.proxy.fitting(&When::command("DELIFEQ"));
    assert!(sent.len() == 1 && sent[0].text(0) == "own" && sent[0].text(1) == owner, "{sent:?}");
    assert_eq!((rig.server.calls_of("evalsha"), rig.server.calls_of("exec")), (0, 0));
}
