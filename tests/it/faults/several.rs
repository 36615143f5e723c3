//! Several locks at once: connections that break, answers that never come, copies that arrive late.

use super::exactly_once::{at_every_byte, faults, in_each_silence, lengths};
use crate::support::faults::{fences, rig_without_fences, without_fences};
use crate::support::prelude::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn multi(client: &Client) -> Lock {
    Lock::multi(NAMES.map(|name| client.get_lock(name)))
}

/// Checks that each lock is held once, by the owner of its own hold.
#[track_caller]
fn assert_held_once(rig: &Rig, guard: &lockson::Guard) {
    assert!(guard.is_held());
    for member in guard.hold().members() {
        rig.assert_held_by(member.name(), member.owner(), 1);
        assert!((29_000..=30_000).contains(&rig.time_to_live(member.name())));
    }
}

#[test]
fn a_late_original_of_one_lock_leaves_nothing_after_the_release() {
    let rig = rig_without_fences();
    let (client, theirs) = (without_fences(&rig), rig.direct());
    let busy = theirs.get_lock("a").owned().lock().unwrap();
    // The second lock is asked for alone, when the first one is granted.
    let alone = rig.script("acquire").that(|request| request.text(2) == "b");
    let rule = rig.proxy.rule(alone, Then::HoldRequest);
    let guard = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let multi = Lock::multi(["a", "b"].map(|name| client.get_lock(name)));
            multi.owned().try_lock_for(SOON).unwrap().expect("the locks are free")
        });
        eventually(SOON, "the client waits for the busy lock", || crate::support::listeners(&rig.server, "a") == 1);
        busy.unlock().unwrap();
        joined(waiter)
    });
    let original = rule.wait_hit(SOON);
    guard.unlock().unwrap();
    rule.release();
    assert!(matches!(rig.proxy.wait_fate(&original, SOON), Fate::Answered(_)), "the late request took the lock");
    // The lease of the late grant would be 30 s.
    rig.eventually_no_keys(Duration::from_secs(3));
}

#[test]
fn a_bundle_cut_at_any_byte_is_taken_once() {
    let (rig, client) = Rig::start().and(Rig::client);
    let multi = multi(&client);
    at_every_byte(
        &rig,
        &rig.script("acquire_all"),
        || (),
        |()| {
            let guard = multi.try_lock().unwrap().expect("no other client wants the locks");
            assert_held_once(&rig, &guard);
            assert_eq!(client.held().len(), NAMES.len());
            guard.unlock().unwrap();
            rig.assert_no_keys();
        },
    );
    assert_quiet(&rig);
}

#[test]
fn a_bundle_release_cut_at_any_byte_opens_each_lock_once() {
    let (rig, client) = Rig::start().and(Rig::client);
    let multi = multi(&client);
    let points = at_every_byte(
        &rig,
        &rig.script("release_all"),
        || multi.lock().unwrap(),
        |guard| {
            guard.unlock().unwrap();
            assert!(client.held().is_empty());
            rig.assert_no_keys();
        },
    );
    assert_eq!(rig.server.calls_of("publish"), points * NAMES.len() as u64, "each release is announced once");
    assert_quiet(&rig);
}

#[test]
fn requests_in_a_row_cut_at_any_byte_are_taken_once() {
    let (rig, client) = Rig::start().and(Rig::client);
    let multi = Lock::multi([client.get_fair_lock("a"), client.get_lock("b"), client.get_fenced_lock("c").into()]);
    let fair = rig.script_of(include_str!("../../../lua/fair/acquire.lua"));
    let fenced = rig.script_of(include_str!("../../../lua/fenced/acquire.lua"));
    for verb in [fair, rig.script("acquire"), fenced, rig.script("release")] {
        let take = || {
            let guard = multi.try_lock().unwrap().expect("no other client wants the locks");
            for member in guard.hold().members() {
                rig.assert_held_by(member.name(), member.owner(), 1);
            }
            guard.unlock().unwrap();
            let keys = rig.server.keys();
            assert!(keys.iter().all(|key| key.starts_with("redisson_lock_token")), "{keys:?}");
        };
        take();
        let (request, reply) = lengths(&rig, &verb);
        for then in faults(request, reply) {
            let rule = rig.proxy.rule(verb.clone(), then.clone());
            take();
            assert_eq!(rule.hits(), 1, "{then:?}");
        }
    }
    assert_quiet(&rig);
}

/// Checks that the background sends nothing any more, once it has done what is left.
#[track_caller]
fn assert_quiet(rig: &Rig) {
    eventually(SOON, "the background sends nothing for longer than its pauses", || {
        let mark = rig.proxy.mark();
        thread::sleep(ms(1_200));
        rig.proxy.fitting_since(mark, &When::any()).iter().all(|request| request.command == "PING")
    });
}

#[test]
fn without_fences_a_cut_bundle_is_held_once_or_not_at_all() {
    let rig = rig_without_fences();
    let multi = multi(&without_fences(&rig));
    let (acquire, release) = (rig.script("acquire_all"), rig.script("release_all"));
    multi.lock().unwrap().unlock().unwrap();
    for verb in [acquire, release] {
        let (request, reply) = lengths(&rig, &verb);
        for then in faults(request, reply).into_iter().step_by(3) {
            let rule = rig.proxy.rule(verb.clone(), then.clone());
            let guard = multi.try_lock_for(SOON).unwrap_or_else(|error| panic!("{then:?}: {error}")).unwrap();
            assert_held_once(&rig, &guard);
            guard.unlock().unwrap_or_else(|error| panic!("{then:?}: {error}"));
            rule.wait_hit(SOON);
            rig.eventually_no_keys(SOON);
        }
    }
}

#[test]
fn a_bundle_in_doubt_is_cleared_for_every_owner() {
    in_each_silence(|rig, then| {
        let multi = multi(&rig.impatient().connect().unwrap());
        multi.lock().unwrap().unlock().unwrap();
        let acquire = rig.script("acquire_all");
        let deaf = rig.proxy.rule(fences().times(99), Then::SwallowRequest);
        let rule = rig.proxy.rule(acquire.clone(), then.clone());
        assert!(multi.try_lock().unwrap_err().is_in_doubt(), "{then:?}");
        deaf.remove();
        let original = rule.wait_hit(SOON);
        eventually(SOON, "the original is fenced", || rig.fence_of(&original).is_some());
        rig.proxy.heal();
        rig.proxy.wait_fate(&original, SOON);
        rig.eventually_no_keys(SOON);
    });
}

#[test]
fn a_grant_in_vain_without_its_reply_is_given_back() {
    let rig = Rig::start();
    let multi = multi(&rig.client());
    multi.lock().unwrap().unlock().unwrap();
    let acquire = rig.script("acquire_all");
    // The first copy takes all, and its reply is lost. Another owner has one of the locks before the second copy runs.
    let lost = rig.proxy.rule(acquire.clone(), Then::CutReplyAfter(0));
    let second = rig.proxy.rule(acquire.nth(2), Then::HoldRequest);
    thread::scope(|scope| {
        let taken = scope.spawn(|| elsewhere(|| multi.try_lock().map(|guard| guard.is_some())));
        lost.wait_hit(SOON);
        second.wait_hit(SOON);
        let direct = rig.direct();
        assert!(direct.get_lock("b").force_unlock().unwrap());
        let theirs = direct.get_lock("b").lock().unwrap();
        second.release();
        assert!(!joined(taken).unwrap(), "another owner has one of the locks");
        for name in ["a", "c"] {
            eventually(SOON, "the lock is given back", || is_free(&direct.get_lock(name)));
        }
        theirs.unlock().unwrap();
    });
    rig.assert_no_keys();
    assert_quiet(&rig);
}

#[test]
fn a_release_in_doubt_is_repeated_for_every_lock() {
    in_each_silence(|rig, then| {
        let multi = multi(&rig.impatient().connect().unwrap());
        let release = rig.script("release_all");
        let guard = multi.lock().unwrap();
        let deaf = rig.proxy.rule(fences().times(99), Then::SwallowRequest);
        let rule = rig.proxy.rule(release.clone(), then.clone());
        let error = guard.unlock().unwrap_err();
        assert!(error.to_string().contains("3 of 3 locks"), "{then:?}: {error}");
        assert_eq!(multi.hold_count(), 0);
        deaf.remove();
        rig.eventually_no_keys(SOON);
        rig.proxy.heal();
        rig.proxy.wait_fate(&rule.wait_hit(SOON), SOON);
        rig.assert_no_keys();
        thread::sleep(Duration::from_millis(100));
        rig.assert_no_keys();
    });
}

/// Each answer takes nearly as long as an attempt waits for it.
#[test]
fn a_slow_server_delays_a_multi_lock_no_longer_than_a_lock() {
    let (rig, client) = Rig::start().and(|rig| rig.builder().command_timeout(ms(1_000)).connect().unwrap());
    let locks: Vec<Lock> = (0..8).map(|number| client.get_lock(format!("slow:{number}"))).collect();
    let (held, missing) = locks.split_at(6);
    let guards: Vec<_> = held.iter().map(|lock| lock.lock().unwrap()).collect();
    let rule = rig.proxy.rule(When::script().always(), Then::DelayReply(ms(300)));
    let (took, outcome) = timed(|| Lock::multi(locks.iter().cloned()).try_lock());
    let error = outcome.unwrap_err();
    assert!(took < ms(1_050) + SCHEDULING, "{took:?}: {error}");
    rule.remove();
    for guard in guards {
        let counted_once = || rig.fields(guard.name()).values().eq(["1"]);
        eventually(SOON, "the background writes the counts back", counted_once);
        guard.unlock().unwrap();
    }
    assert!(missing.iter().all(is_free));
}

#[test]
fn a_turn_that_does_not_come_delays_no_other_release() {
    let (rig, well, notes) = (Rig::start(), RedisServer::start(), Events::default());
    let settings = |builder: ClientBuilder| builder.command_timeout(ms(2_000)).drop_timeout(PATIENCE);
    let silent = settings(rig.builder()).connect().unwrap();
    let answering = settings(Client::builder(&well.url())).observer(notes.clone()).connect().unwrap();
    let lock = silent.get_lock("a");
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    let guard = Lock::multi([lock, answering.get_lock("b")]).lock().unwrap();
    let release = rig.script("release");
    let rule = rig.proxy.rule(release.clone().always(), Then::SwallowReply);
    drop(inner);
    // The background has the turn from here on, for as long as a command may take.
    rig.proxy.wait_for_since(rig.proxy.mark(), &release, SOON);
    let (took, ()) = timed(|| drop(guard));
    assert!(took < PATIENCE + SCHEDULING, "{took:?}");
    assert_eq!(notes.of("b").last().map(String::as_str), Some("released"));
    rule.remove();
    eventually(SOON, "the background writes the count", || rig.fields("a").values().eq(["1"]));
    outer.unlock().unwrap();
    rig.eventually_no_keys(SOON);
}
