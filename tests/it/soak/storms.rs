//! Faults, kills and crowds, over and over, each time by another seed.

use crate::campaign::Campaign;
use crate::faults::processes::kills;
use crate::faults::storms::chaos;
use crate::kinds::fair::crowds::no_waiter_is_overtaken;
use crate::support::prelude::*;

#[test]
#[ignore = "make soak"]
fn storm_of_every_fault() {
    let mut campaign = Campaign::start("seconds of chaos", 60, 8);
    let mut taken = 0;
    while campaign.goes_on() {
        taken += chaos(campaign.random().below(u64::MAX), ms(6_000));
        campaign.passed(6);
    }
    campaign.end(format!("{taken} locks taken, never two inside, every call in time"));
}

#[test]
#[ignore = "make soak"]
fn storm_of_kills() {
    let mut campaign = Campaign::start("holders killed", 30, 5);
    while campaign.goes_on() {
        kills(5);
        campaign.passed(5);
    }
    campaign.end("no overlap and no lost update");
}

#[test]
#[ignore = "make soak"]
fn storm_of_fair_waiters() {
    const GRANTS: u64 = 10_000;
    let mut campaign = Campaign::start("grants of a fair lock among waiters that give up and die", 100_000, 6);
    while campaign.goes_on() {
        no_waiter_is_overtaken(GRANTS);
        campaign.passed(GRANTS);
    }
    campaign.end("nobody overtaken");
}

#[test]
#[ignore = "make soak"]
fn cuts_at_random_bytes() {
    let mut campaign = Campaign::start("requests of random nestings, half of them cut at a random byte", 10_000, 4);
    let (rig, client) = Rig::start().and(|rig| rig.builder().connect().unwrap());
    let lock = client.get_lock("nested");
    while campaign.goes_on() {
        let mut random = campaign.random();
        let mut guards: Vec<Guard> = vec![];
        for step in 0..STEPS {
            cut_something(&rig, &mut random);
            match random.below(5) {
                0 if !guards.is_empty() => guards[0].extend(ms(20_000 + random.below(20_000))).unwrap(),
                1 | 2 if !guards.is_empty() => {
                    let which = random.below(guards.len() as u64);
                    guards.swap_remove(which as usize).unlock().unwrap();
                }
                _ => {
                    let lock = if random.below(2) == 0 { lock.clone() } else { lock.with_lease(ms(40_000)) };
                    guards.push(lock.try_lock().unwrap().expect("no other client wants the lock"));
                }
            }
            rig.proxy.heal();
            assert_eq!(lock.hold_count() as usize, guards.len(), "step {step}");
            match guards.first() {
                Some(guard) => rig.assert_held_by("nested", guard.owner(), guards.len() as u64),
                None => rig.assert_no_keys(),
            }
        }
        guards.into_iter().for_each(|guard| guard.unlock().unwrap());
        rig.assert_no_keys();
        campaign.passed(STEPS);
    }
    campaign.end("each request had its effect once");
}

/// Cuts one of the next requests at a random byte, before or after its execution, or nothing.
fn cut_something(rig: &Rig, random: &mut Random) -> bool {
    let byte = usize::try_from(random.below(400)).unwrap();
    rig.proxy.cut_by_reset(random.below(2) == 0);
    let then = match random.below(4) {
        0 => Then::CutRequestAfter(byte),
        1 => Then::CutReplyAfter(byte % 12),
        _ => return false,
    };
    drop(rig.proxy.rule(When::script(), then));
    true
}

const STEPS: u64 = 50;
