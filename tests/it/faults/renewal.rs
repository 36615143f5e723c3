//! Disturbed renewal: the watchdog renews a hold until its end, and not a moment longer.

use crate::support::prelude::*;

const LEASE: Duration = Duration::from_secs(20);

#[test]
fn a_watched_section_inside_a_leased_one_is_renewed() {
    let rig = Rig::start();
    let client = rig.builder().watchdog(Duration::from_secs(2), ms(200)).connect().unwrap();
    let lock = client.get_lock("nested");
    let outer = lock.with_lease(ms(500)).lock().unwrap();
    let inner = lock.lock().unwrap();
    assert_eq!(inner.wait_lost(Duration::from_secs(3)), None);
    inner.unlock().unwrap();
    drop(outer);
}

#[test]
fn a_lost_renewal_is_sent_again_at_once_and_not_a_tick_later() {
    let rig = Rig::start();
    let client = rig.builder().watchdog(Duration::from_secs(4), Duration::from_secs(2)).connect().unwrap();
    let guard = client.get_lock("kept").lock().unwrap();
    let renewals = rig.script("renew");
    let lost = rig.proxy.rule(renewals.clone(), Then::CutBeforeRequest).wait_hit(SOON);
    let next = rig.proxy.wait_for_since(lost.number + 1, &renewals, SOON);
    let pause = next.at - lost.at;
    assert!(pause < ms(1_500), "{pause:?}");
    guard.unlock().unwrap();
}

#[test]
fn a_loss_that_a_demoted_master_tells_is_no_loss() {
    let rig = Rig::start();
    let empty = RedisServer::builder().config("repl-diskless-sync-delay 0").start();
    let successor = RedisServer::start();
    let client = rig.builder().watchdog(LEASE, ms(300)).command_timeout(SOON).connect().unwrap();
    let guard = client.get_lock("kept").owned().lock().unwrap();
    rig.proxy.wait_for(&rig.script("renew"), SOON); // over the connection that stays
    successor.run(&["HSET", "kept", guard.owner(), "1"]);
    successor.run(&["PEXPIRE", "kept", "20000"]);
    let renewal = rig.proxy.rule(rig.script("renew"), Then::HoldRequest);
    renewal.wait_hit(SOON);
    rig.proxy.retarget(successor.address());
    // The data that the server takes over lacks the key. A script that only reads is not refused with `READONLY`.
    rig.server.run(&["REPLICAOF", "127.0.0.1", &empty.port().to_string()]);
    eventually(SOON, "the replica lacks the key", || rig.server.keys().is_empty());
    renewal.release();
    let is_asked = || successor.calls_of("hexists") > 0;
    eventually(SOON, "the master is asked", || guard.lost().is_some() || is_asked());
    assert_eq!(guard.wait_lost(ms(200)), None, "the master has the key");
    guard.unlock().unwrap();
    assert!(successor.keys().is_empty());
}

#[test]
fn no_hold_is_renewed_after_any_outcome_of_its_release() {
    let rig = Rig::start();
    let client = rig.impatient().watchdog(Duration::from_secs(2), ms(100)).connect().unwrap();
    let other = client.get_lock("other").lock().unwrap(); // keeps the watchdog at work
    for then in [None, Some(Then::SwallowRequest), Some(Then::SwallowReply), Some(Then::CutReplyAfter(0))] {
        let guard = client.get_lock("released").lock().unwrap();
        let mine = rig.script("renew").containing(guard.owner());
        rig.proxy.wait_for(&mine, SOON);
        if let Some(then) = then {
            rig.proxy.rule(rig.release(false), then);
        }
        let _ = guard.unlock();
        let mark = rig.proxy.mark();
        rig.proxy.wait_for_since(mark, &rig.script("renew").nth(6), SOON);
        // One renewal may have been under way during the release.
        let after = rig.proxy.fitting_since(mark, &mine).len();
        assert!(after <= 1, "{after} renewals after the release");
        eventually(SOON, "the lock is open", || !client.get_lock("released").is_locked().unwrap());
    }
    assert!(other.is_held());
}

#[test]
fn a_key_of_a_wrong_type_does_not_stop_its_batch() {
    let kinds: [fn(&Client, &str) -> Lock; 3] = [
        |client, name| client.get_lock(name),
        |client, name| client.get_read_write_lock(name).read(),
        |client, name| client.get_token_lock(name),
    ];
    thread::scope(|scope| kinds.into_iter().for_each(|kind| drop(scope.spawn(move || with_a_wrong_type(kind)))));
}

fn with_a_wrong_type(kind: fn(&Client, &str) -> Lock) {
    let server = RedisServer::start();
    // Only renewals reveal losses: a hold that was lost before would be in no batch.
    server.run(&["ACL", "SETUSER", "default", "-client|tracking"]);
    let rig = Rig::around(server);
    let client = rig.builder().watchdog(Duration::from_secs(2), ms(200)).connect().unwrap();
    let names: Vec<_> = (0..10).map(|number| format!("batch {number}")).collect();
    let guards: Vec<_> = names.iter().map(|name| kind(&client, name).owned().lock().unwrap()).collect();
    // In one script: no renewal comes between the two commands.
    let place = "redis.call('del', KEYS[1]) redis.call('rpush', KEYS[1], 'precious')";
    rig.server.run(&["EVAL", place, "1", &names[3]]);
    rig.server.run(&["DEL", &names[5]]);
    assert_eq!(guards[3].wait_lost(SOON), Some(Loss::Taken));
    assert_eq!(guards[5].wait_lost(SOON), Some(Loss::Gone));
    // All other holds outlive their time to live.
    assert_eq!(guards[0].wait_lost(ms(2_500)), None);
    for (number, guard) in guards.into_iter().enumerate().filter(|(number, _)| ![3, 5].contains(number)) {
        assert!(guard.is_held(), "{number}");
        guard.unlock().unwrap();
    }
    assert!(rig.server.keys().contains(&names[3]));
}

#[test]
fn refused_renewals_are_repeated_with_pauses() {
    let rig = Rig::start();
    let client = rig.builder().watchdog(Duration::from_secs(3), Duration::from_secs(1)).connect().unwrap();
    let guard = client.get_lock("kept").lock().unwrap();
    rig.server.run(&["ACL", "SETUSER", "default", "-pexpire"]);
    let first = rig.proxy.wait_for(&rig.script("renew"), SOON);
    assert_eq!(guard.wait_lost(ms(1_500)), None);
    // Each pause is a tenth of a second: a thirtieth of the lease.
    let repeated = rig.proxy.fitting_since(first.number + 1, &rig.script("renew")).len();
    assert!((4..=20).contains(&repeated), "{repeated} times");
    rig.server.run(&["ACL", "SETUSER", "default", "+pexpire"]);
    rig.proxy.wait_for_since(rig.proxy.mark(), &rig.script("renew"), SOON);
    guard.unlock().unwrap();
}

#[test]
fn a_lost_right_to_one_key_stops_no_other_renewal() {
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).watchdog(Duration::from_secs(2), ms(200)).connect().unwrap();
    let kept: Vec<_> = (0..7).map(|index| client.get_lock(format!("kept:{index}")).lock().unwrap()).collect();
    let lost = client.get_lock("lost").lock().unwrap();
    server.run(&["ACL", "SETUSER", "default", "resetkeys", "~kept:*"]);
    assert_eq!(lost.wait_lost(SOON), Some(Loss::Expired));
    for guard in kept {
        assert_eq!(guard.wait_lost(ms(100)), None, "{}", guard.name());
        guard.unlock().unwrap();
    }
}
