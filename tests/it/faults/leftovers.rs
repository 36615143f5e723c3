//! A request that was given up, or cleaned up, neither takes a lock nor releases a later grant.

use std::panic::catch_unwind;

use lockson::Backoff;

use crate::support::faults::{rig_without_fences, without_fences};
use crate::support::prelude::*;

const NAME: &str = "leftover";

#[test]
fn a_leftover_of_a_lost_hold_is_cleared_in_the_background() {
    let rig = rig_without_fences();
    let lock = without_fences(&rig).get_lock(NAME);
    let original = rig.proxy.rule(rig.script("acquire"), Then::HoldRequest);
    let guard = lock.try_lock_for(SOON).unwrap().expect("the repetition is granted");
    rig.server.run(&["DEL", NAME]);
    assert_eq!(kind_of(guard.extend(ms(60_000))), ErrorKind::Lost(Loss::Gone));
    drop(guard);
    original.release();
    assert_leftover_is_cleared(&rig, &original.wait_hit(SOON));
}

#[test]
fn a_leftover_of_a_wait_in_vain_is_cleared_in_the_background() {
    let (rig, held) = rig_without_fences().and(|rig| rig.direct().get_lock(NAME).lock().unwrap());
    let lock = without_fences(&rig).get_lock(NAME);
    let original = rig.proxy.rule(rig.script("acquire"), Then::HoldRequest);
    assert!(lock.try_lock_for(PATIENCE * 4).unwrap().is_none(), "another client holds the lock");
    held.unlock().unwrap();
    original.release();
    assert_leftover_is_cleared(&rig, &original.wait_hit(SOON));
}

#[test]
fn a_leftover_of_a_wait_that_panicked_is_cleared_too() {
    let (rig, held) = rig_without_fences().and(|rig| rig.direct().get_lock(NAME).lock().unwrap());
    let pauses = Backoff::new(|_| panic!("this panic is part of the test"));
    let lock = without_fences(&rig).get_spin_lock_with(NAME, pauses);
    let original = rig.proxy.rule(rig.script("acquire"), Then::HoldRequest);
    assert!(catch_unwind(|| lock.try_lock_for(SOON).map(drop)).is_err(), "another client holds the lock");
    held.unlock().unwrap();
    original.release();
    assert_leftover_is_cleared(&rig, &original.wait_hit(SOON));
}

/// The original takes the lock for no caller, and is cleaned up long before its lease of 30 s is over.
#[track_caller]
fn assert_leftover_is_cleared(rig: &Rig, original: &Request) {
    assert_eq!(
        rig.proxy.wait_fate(original, SOON),
        Fate::Answered(b"*1\r\n:1\r\n".to_vec()),
        "the late request took the lock"
    );
    rig.eventually_no_keys(Duration::from_secs(5));
}
