//! Permits are taken and given back once, wherever the network breaks, also where nothing can be fenced.

use lockson::ExpiringPermits;

use crate::faults::exactly_once::{at_every_byte, faults, lengths};
use crate::support::faults::{fences, rig_without_fences, without_fences};
use crate::support::prelude::*;

const ACQUIRE: &str = include_str!("../../../../lua/permits/acquire.lua");
const RELEASE: &str = include_str!("../../../../lua/permits/release.lua");
const RENEW: &str = include_str!("../../../../lua/permits/renew.lua");
const UPDATE_LEASE: &str = include_str!("../../../../lua/permits/update_lease.lua");
const NAME: &str = "once";

/// Free permits, and taken permits, as they stand in Redis.
fn state(rig: &Rig) -> (i64, i64) {
    (rig.server.query(&["GET", NAME]), rig.server.query(&["ZCARD", "{once}:timeout"]))
}

#[test]
fn a_take_cut_at_any_byte_takes_its_permits_once() {
    let (rig, calls) = Rig::start().and(|rig| rig.client().get_permit_expirable_semaphore(NAME));
    calls.set_permits(5).unwrap();
    let take = |()| {
        let permits = calls.try_acquire(2).unwrap().expect("all are free");
        assert_eq!(state(&rig), (3, 2));
        assert!(permits.is_held());
        permits.release().unwrap();
        assert_eq!(state(&rig), (5, 0));
    };
    at_every_byte(&rig, &rig.script_of(ACQUIRE), || (), take);
    let release = |permits: ExpiringPermits| {
        permits.release().unwrap();
        assert_eq!(state(&rig), (5, 0));
    };
    at_every_byte(&rig, &rig.script_of(RELEASE), || calls.acquire(2).unwrap(), release);
    let extend = |permits: ExpiringPermits| {
        permits.extend(ms(60_000)).unwrap();
        assert_eq!(state(&rig), (3, 2));
        let left = calls.remaining_time_to_live(&permits.ids()[1]).unwrap().unwrap();
        assert!(left > ms(50_000) && left <= ms(60_000), "{left:?}");
        permits.release().unwrap();
    };
    at_every_byte(&rig, &rig.script_of(RENEW), || calls.acquire(2).unwrap(), extend);
}

#[test]
fn without_fences_the_sum_of_permits_stays_right() {
    let rig = rig_without_fences();
    let client = without_fences(&rig);
    let calls = client.get_permit_expirable_semaphore(NAME);
    calls.set_permits(5).unwrap();
    for script in [ACQUIRE, RELEASE] {
        let when = rig.script_of(script);
        drop(calls.acquire(2).unwrap());
        let (request, reply) = lengths(&rig, &when);
        for then in faults(request, reply).into_iter().step_by(3) {
            let rule = rig.proxy.rule(when.clone(), then.clone());
            let permits = calls.try_acquire_for(2, SOON).unwrap().expect("all are free");
            drop(permits);
            rule.wait_hit(SOON);
            rule.remove();
            eventually(SOON, "all permits are back", || state(&rig) == (5, 0));
        }
    }
}

#[test]
fn a_late_copy_of_a_take_brings_no_permit_back() {
    let (rig, calls) = Rig::start().and(|rig| rig.client().get_permit_expirable_semaphore(NAME));
    calls.set_permits(6).unwrap();
    let mark = rig.proxy.mark();
    let permits = calls.acquire(3).unwrap();
    let take = rig.proxy.wait_for_since(mark, &rig.script_of(ACQUIRE), SOON);
    calls.release_by_id(&permits.ids()[..1]).unwrap();
    rig.proxy.wait_fate(&rig.proxy.send_copy_anew(&take), SOON);
    assert_eq!(state(&rig), (4, 2));
    drop(permits);
    eventually(SOON, "the others are back", || state(&rig) == (6, 0));
}

/// Numbers, releases by id: their effect comes once, and the answer is that of the one run.
#[test]
fn numbers_and_releases_by_id_cut_at_any_byte_count_once() {
    let (rig, calls) = Rig::start().and(|rig| rig.client().get_permit_expirable_semaphore(NAME));
    let direct = rig.direct().get_permit_expirable_semaphore(NAME);
    assert!(direct.set_permits_once(5).unwrap());
    at_every_byte(
        &rig,
        &rig.script_of(include_str!("../../../../lua/semaphore/release.lua")),
        || (),
        |()| {
            calls.add_permits(3).unwrap();
            assert_eq!(state(&rig), (8, 0));
            direct.add_permits(-3).unwrap();
        },
    );
    let set = rig.script_of(include_str!("../../../../lua/permits/set.lua"));
    at_every_byte(
        &rig,
        &set,
        || rig.server.run(&["DEL", NAME]),
        |()| {
            assert!(calls.set_permits_once(5).unwrap(), "the one run made the semaphore");
            assert_eq!(state(&rig), (5, 0));
        },
    );
    at_every_byte(
        &rig,
        &rig.script_of(include_str!("../../../../lua/permits/release_by_id.lua")),
        || direct.acquire(2).unwrap(),
        |permits| {
            calls.release_by_id(&permits.ids()).unwrap();
            assert_eq!(state(&rig), (5, 0));
            permits.keep_until_expiry();
        },
    );
}

#[test]
fn a_late_original_changes_no_lease_and_deletes_nothing() {
    let deletion = include_str!("../../../../lua/once/delete.lua");
    for script in [UPDATE_LEASE, deletion] {
        let rig = rig_without_fences();
        let client = without_fences(&rig);
        let calls = client.get_permit_expirable_semaphore(NAME);
        let direct = rig.direct().get_permit_expirable_semaphore(NAME);
        direct.set_permits(5).unwrap();
        let permit = direct.with_lease(ms(600_000)).acquire(1).unwrap();
        let id = permit.ids()[0].clone();
        let held = rig.proxy.rule(rig.script_of(script), Then::HoldRequest);
        let is_update = script == UPDATE_LEASE;
        let outcome = if is_update { calls.update_lease(&id, ms(60_000)) } else { calls.delete() };
        let original = held.wait_hit(SOON);
        assert!(outcome.unwrap(), "the repetition had the effect");
        let later = rig.client().get_permit_expirable_semaphore(NAME);
        if is_update {
            assert!(later.update_lease(&id, ms(300_000)).unwrap());
        } else {
            later.set_permits(7).unwrap();
        }
        held.release();
        rig.proxy.wait_fate(&original, SOON);
        if is_update {
            assert!(later.remaining_time_to_live(&id).unwrap() > Some(ms(200_000)));
        } else {
            assert_eq!(state(&rig), (7, 0));
        }
    }
}

#[test]
fn a_late_original_of_an_addition_changes_nothing() {
    let rig = rig_without_fences();
    let client = without_fences(&rig);
    let calls = client.get_permit_expirable_semaphore(NAME);
    calls.set_permits(5).unwrap();
    let held = rig.proxy.rule(rig.script_of(include_str!("../../../../lua/semaphore/release.lua")), Then::HoldRequest);
    let outcome = calls.add_permits(3);
    let original = held.wait_hit(SOON);
    let before = if outcome.is_ok() { 8 } else { 5 };
    eventually(SOON, "the request is over", || {
        rig.server.query::<Vec<String>>(&["KEYS", "lockson_once*"]).iter().any(|key| {
            let stored: Option<String> = rig.server.query(&["GET", key]);
            stored.is_some_and(|stored| !stored.starts_with("1 "))
        })
    });
    held.release();
    rig.proxy.wait_fate(&original, SOON);
    assert_eq!(state(&rig), (before, 0), "{outcome:?}");
}

/// The request of a caller that gave up arrives late: the cleanup of the background takes back what it took.
#[test]
fn a_late_original_that_cannot_be_fenced_is_taken_back() {
    let rig = rig_without_fences();
    let client = without_fences(&rig);
    let calls = client.get_permit_expirable_semaphore(NAME);
    calls.set_permits(5).unwrap();
    let held = rig.proxy.rule(rig.script_of(ACQUIRE), Then::HoldRequest);
    let taken = calls.try_acquire(2);
    let original = held.wait_hit(SOON);
    held.release();
    rig.proxy.wait_fate(&original, SOON);
    drop(taken);
    eventually(SOON, "all permits are back", || state(&rig) == (5, 0));
}

/// Where clocks may differ, permits live for longer than their lease.
#[test]
fn permits_of_an_outage_are_given_back_after_their_lease() {
    let rig = Rig::start();
    let client = rig.impatient().peer_clock_skew(ms(60_000)).connect().unwrap();
    let calls = client.get_permit_expirable_semaphore(NAME);
    calls.set_permits(5).unwrap();
    let mute = rig.proxy.rule(rig.script_of(ACQUIRE).times(1), Then::SwallowReply);
    let deaf = rig.proxy.rule(fences().times(99), Then::SwallowRequest);
    let lease = ms(1_000);
    assert_eq!(kind_of(calls.with_lease(lease).try_acquire(2)), ErrorKind::Unknown);
    assert_eq!((mute.hits(), state(&rig)), (1, (3, 2)));
    thread::sleep(lease + ms(1_500));
    deaf.remove();
    eventually(SOON, "all permits are back", || state(&rig) == (5, 0));
}
