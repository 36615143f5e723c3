//! Tests of the ledger: examples, and random steps against a model of the scripts.
#![cfg(test)]

use std::time::Duration;

use super::*;

const START: Instant = Instant::from_millis(1_000_000);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    START.after(ms(millis))
}

fn lease(millis: u64) -> Lease {
    Lease::new(ms(millis)).unwrap()
}

fn leased(until: u64) -> Promise {
    Promise::Leased { until: at(until) }
}

const ONE: Counts = Counts { exclusive: 1, shared: 0 };
const RENEWED: Promise = Promise::Renewed { until: None };

fn watched() -> (Ledger, GuardNumber) {
    Ledger::granted(lease(30_000), START, lease(30_000), Side::Exclusive, RENEWED)
}

/// Releases a guard of several at once.
fn partial(ledger: &mut Ledger, guard: GuardNumber, now: Instant) -> (Counts, Lease) {
    assert_eq!(ledger.release(guard, now), Release::Partial);
    ledger.remaining(now).unwrap()
}

#[test]
fn no_two_guards_have_one_number() {
    let (mut ledger, first) = watched();
    ledger.last_guard = GuardNumber(u32::MAX - 1);
    let numbers = [(); 3].map(|()| ledger.admit(Side::Exclusive, RENEWED).0);
    assert_eq!((first, numbers), (GuardNumber(1), [u32::MAX, 0, 2]));
}

#[test]
fn only_a_renewal_takes_the_place_of_one_that_failed() {
    let (mut ledger, _) = watched();
    ledger.renewal_failed(at(16_000));
    ledger.look_failed(at(16_500), at(17_000));
    ledger.extended(at(15_000), lease(1_000), None);
    let inner = ledger.reentered(at(15_100), at(15_000), lease(1_000), Side::Exclusive, leased(16_000));
    assert!(inner.is_ok());
    assert_eq!(ledger.retry_at, Some(at(16_000)), "nothing was raised by these");
    ledger.renewed(at(16_000), lease(30_000));
    assert_eq!(ledger.retry_at, None);
}

#[test]
fn a_guard_past_its_longest_hold_is_promised_nothing_new() {
    let promise = Promise::Renewed { until: Some(at(10_000)) };
    let (mut ledger, _) = Ledger::granted(lease(30_000), START, lease(30_000), Side::Exclusive, promise);
    let inner = ledger.reentered(at(5_000), at(5_000), lease(15_000), Side::Exclusive, leased(20_000)).unwrap();
    assert_eq!(partial(&mut ledger, inner, at(15_000)), (ONE, lease(15_000)), "what is left of its last renewal");
}

#[test]
fn an_inner_section_does_not_prolong_a_longest_hold() {
    let promise = Promise::Renewed { until: Some(at(10_000)) };
    let (mut ledger, _) = Ledger::granted(lease(30_000), START, lease(30_000), Side::Exclusive, promise);
    let inner = ledger.reentered(at(5_000), at(5_000), lease(30_000), Side::Exclusive, RENEWED).unwrap();
    let later = ledger.reentered(at(34_000), at(34_000), lease(30_000), Side::Exclusive, RENEWED).unwrap();
    assert_eq!(partial(&mut ledger, later, at(36_000)).0.exclusive, 2);
    assert_eq!(
        partial(&mut ledger, inner, at(36_000)),
        (ONE, lease(4_000)),
        "a watchdog timeout after its longest hold"
    );
    assert_eq!(ledger.look(at(39_949)), Phase::Live);
    assert_eq!(ledger.look(at(39_950)), Phase::Lost(Loss::Expired));
}

#[test]
fn a_part_that_is_kept_past_its_longest_hold_ends_with_it() {
    let promise = Promise::Renewed { until: Some(at(10_000)) };
    let (mut ledger, outer) = Ledger::granted(lease(30_000), START, lease(30_000), Side::Exclusive, promise);
    let _inner = ledger.reentered(at(29_000), at(29_000), lease(30_000), Side::Exclusive, RENEWED).unwrap();
    assert_eq!(ledger.keep(outer, at(35_000)), Some(at(40_000)));

    let (mut ledger, outer) = Ledger::granted(lease(30_000), START, lease(30_000), Side::Exclusive, promise);
    ledger.extended(at(9_000), lease(60_000), None);
    let inner = ledger.reentered(at(11_000), at(11_000), lease(30_000), Side::Exclusive, RENEWED).unwrap();
    assert_eq!(ledger.keep(outer, at(12_000)), Some(at(69_000)), "what extend promised");
    assert_eq!(partial(&mut ledger, inner, at(13_000)), (ONE, lease(56_000)));
}

#[test]
fn a_hold_is_believed_until_its_lease_less_the_margin() {
    let (mut ledger, guard) = Ledger::granted(lease(30_000), START, lease(2_000), Side::Exclusive, leased(2_000));
    assert_eq!(ledger.look(at(1_949)), Phase::Live);
    assert_eq!(ledger.look(at(1_950)), Phase::Lost(Loss::Expired));
    assert_eq!(ledger.look(at(0)), Phase::Lost(Loss::Expired), "a loss is never taken back");
    ledger.renewed(at(2_000), lease(30_000));
    assert_eq!(ledger.release(guard, at(2_000)), Release::Lost(Loss::Expired));
}

#[test]
fn no_request_goes_out_for_a_hold_whose_deadline_has_passed() {
    let (mut ledger, _) = watched();
    assert!(ledger.counts_after_reentry(at(29_699), Side::Exclusive).is_ok());
    // No call has looked at the ledger since.
    assert_eq!(ledger.counts_after_reentry(at(29_700), Side::Exclusive), Err(Loss::Expired));
    let (mut ledger, _) = watched();
    assert_eq!(ledger.renewal(at(29_700)), None);
    let (mut ledger, guard) = watched();
    assert_eq!(ledger.release(guard, at(29_700)), Release::Lost(Loss::Expired));
}

#[test]
fn a_loss_reported_during_a_re_entry_stays_one_loss() {
    let (mut ledger, guard) = watched();
    assert_eq!(ledger.look(at(29_700)), Phase::Lost(Loss::Expired), "the timer has told it");
    let answer = ledger.reentered(at(29_800), at(29_600), lease(30_000), Side::Exclusive, RENEWED);
    assert_eq!(answer, Err(Loss::Expired));
    assert_eq!(ledger.counts(), ONE, "no guard came of it");
    assert_eq!(ledger.release(guard, at(29_900)), Release::Lost(Loss::Expired));
}

#[test]
fn a_finished_inner_lease_of_an_hour_does_not_outlive_its_guard() {
    let (mut ledger, _outer) = watched();
    let inner = ledger.reentered(at(10), at(10), lease(3_600_000), Side::Exclusive, leased(3_600_010)).unwrap();
    assert_eq!(partial(&mut ledger, inner, at(20)), (ONE, lease(30_000)));
    assert_eq!(ledger.end, at(30_020));
}

#[test]
fn guards_dropped_out_of_order_leave_the_others_their_lease() {
    let (mut ledger, outer) = Ledger::granted(lease(30_000), START, lease(5_000), Side::Exclusive, leased(5_000));
    let inner = ledger.reentered(at(100), at(100), lease(1_000), Side::Exclusive, leased(1_100)).unwrap();
    assert_eq!(partial(&mut ledger, outer, at(200)), (ONE, lease(900)));
    assert_eq!(ledger.look(at(1_049)), Phase::Live);
    assert_eq!(ledger.look(at(1_050)), Phase::Lost(Loss::Expired));
    assert_eq!(ledger.release(inner, at(1_060)), Release::Lost(Loss::Expired));
}

#[test]
fn only_a_live_hold_with_a_renewed_guard_is_renewed() {
    let (mut ledger, outer) = watched();
    let inner = ledger.reentered(at(10), at(10), lease(60_000), Side::Exclusive, leased(60_010)).unwrap();
    assert_eq!(ledger.renewal(at(20)), Some(lease(30_000)));
    ledger.release(outer, at(30));
    assert_eq!(ledger.renewal(at(40)), None, "the lease that stays is never renewed");
    ledger.release(inner, at(50));
    assert_eq!(ledger.renewal(at(60)), None);
}

#[test]
fn a_release_under_way_cannot_be_lost() {
    let (mut ledger, guard) = watched();
    assert_eq!(ledger.release(guard, at(10)), Release::Last);
    ledger.step(Phase::Live, Phase::Lost(Loss::Gone));
    assert_eq!(ledger.look(at(40_000)), Phase::Releasing);
    assert_eq!(ledger.renewal(at(20)), None);
    ledger.step(Phase::Releasing, Phase::Done);
    assert_eq!(ledger.look(at(40_000)), Phase::Done);
}

#[test]
fn a_guard_is_released_once() {
    let (mut ledger, outer) = watched();
    let inner = ledger.reentered(at(10), at(10), lease(30_000), Side::Exclusive, RENEWED).unwrap();
    assert_eq!(ledger.release(inner, at(20)), Release::Partial);
    assert_eq!(ledger.release(inner, at(20)), Release::Unknown, "the other guard keeps its hold");
    assert_eq!(ledger.release(outer, at(30)), Release::Last);
    assert_eq!(ledger.release(outer, at(30)), Release::Unknown);
}

#[test]
fn a_release_bounds_renewals_sent_before_its_answer() {
    let (mut ledger, outer) = watched();
    let inner = ledger.reentered(at(10), at(10), lease(3_000), Side::Exclusive, leased(3_010)).unwrap();
    // A renewal is sent, then the release; the reply to the renewal arrives last.
    assert_eq!(partial(&mut ledger, outer, at(100)), (ONE, lease(2_910)));
    ledger.renewed(at(90), lease(30_000));
    assert_eq!(ledger.good_until, lease(2_910).good_until(at(100)));
    ledger.cut_is_over(at(200));
    ledger.renewed(at(150), lease(30_000));
    assert_eq!(ledger.good_until, lease(2_910).good_until(at(150)), "it may have run before the release");
    ledger.renewed(at(201), lease(30_000));
    assert_eq!(ledger.good_until, at(29_901));
    assert_eq!(ledger.release(inner, at(300)), Release::Last);
}

#[test]
fn a_cut_that_was_fenced_bounds_nothing_that_is_sent_later() {
    let (mut ledger, _outer) = watched();
    let inner = ledger.reentered(at(10), at(10), lease(60_000), Side::Exclusive, leased(60_010)).unwrap();
    partial(&mut ledger, inner, at(100));
    ledger.cut_is_over(at(200)); // fenced
    ledger.reentered(at(201), at(200), lease(60_000), Side::Exclusive, leased(60_200)).unwrap();
    assert_eq!(ledger.good_until, lease(60_000).good_until(at(200)));
}

#[test]
fn an_answered_release_ends_its_own_cut_alone() {
    let (mut ledger, _outer) = watched();
    let guards: Vec<_> = [10, 20, 30]
        .map(|ms| ledger.reentered(at(ms), at(ms), lease(60_000), Side::Exclusive, leased(60_010)).unwrap())
        .into();
    partial(&mut ledger, guards[0], at(100));
    ledger.cut_was_answered(at(110));
    ledger.renewed(at(120), lease(90_000));
    assert_eq!(ledger.good_until, lease(90_000).good_until(at(120)));
    // In doubt, and then another one, which is answered.
    partial(&mut ledger, guards[1], at(200));
    partial(&mut ledger, guards[2], at(300));
    ledger.cut_was_answered(at(310));
    ledger.renewed(at(320), lease(90_000));
    assert_eq!(ledger.good_until, lease(30_000).good_until(at(320)), "the first may still run");
    ledger.cut_is_over(at(330));
    ledger.renewed(at(340), lease(90_000));
    assert_eq!(ledger.good_until, lease(90_000).good_until(at(340)));
}

#[test]
fn a_partial_release_writes_what_was_promised_while_it_waited() {
    let (mut ledger, outer) = Ledger::granted(lease(30_000), START, lease(5_000), Side::Exclusive, leased(5_000));
    let inner = ledger.reentered(at(10), at(10), lease(30_000), Side::Exclusive, RENEWED).unwrap();
    assert_eq!(ledger.release(inner, at(100)), Release::Partial);
    ledger.extended(at(90), lease(60_000), None); // answered before the release is sent
    let (counts, written) = ledger.remaining(at(110)).unwrap();
    assert_eq!((counts, written), (ONE, lease(59_980)));
    ledger.cut_is_over(at(120));
    assert_eq!(ledger.good_until, lease(60_000).good_until(at(90)));
    assert_eq!(ledger.release(outer, at(200)), Release::Last);
}

#[test]
fn a_kept_hold_is_written_again_after_the_last_guard() {
    let (mut ledger, outer) = watched();
    let inner = ledger.reentered(at(10), at(10), lease(60_000), Side::Shared, leased(60_010)).unwrap();
    ledger.keep(inner, at(20));
    assert_eq!(ledger.release(outer, at(30)), Release::Partial);
    let reads = Counts { exclusive: 0, shared: 1 };
    assert_eq!(ledger.remaining(at(1_030)), Ok((reads, lease(58_980))));
    assert_eq!(ledger.remaining(at(60_010)), Err(Phase::Done));
}

#[derive(Clone, Debug)]
enum Step {
    /// The reply is late; the timer may check, or the loss may be reported, before it arrives.
    Reenter {
        leased_ms: Option<u64>,
        took_ms: u64,
        looked: bool,
        lost: bool,
    },
    Release {
        which: usize,
    },
    Renew,
    Lose,
    Pass {
        millis: u64,
    },
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    let step = prop_oneof![
        3 => (proptest::option::of(1_u64..100_000), 0_u64..20_000, any::<bool>(), proptest::bool::weighted(0.1))
            .prop_map(|(leased_ms, took_ms, looked, lost)| Step::Reenter { leased_ms, took_ms, looked, lost }),
        3 => (0_usize..6).prop_map(|which| Step::Release { which }),
        2 => Just(Step::Renew),
        1 => Just(Step::Lose),
        4 => (0_u64..20_000).prop_map(|millis| Step::Pass { millis }),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest::proptest! {
    /// Against a server that behaves like the scripts, for every order of steps: a hold that counts as live exists,
    /// the counts agree, and a loss stays a loss.
    #[test]
    fn a_believed_hold_exists_on_the_server(steps in steps()) {
        let mut now = START;
        // The state of the server: the expiry of the key, and its count.
        let (mut key_ends, mut key_count) = (now.after(ms(30_000)), 1);
        let (mut ledger, first) = watched();
        let mut guards = vec![first];
        let mut was_lost = false;
        for step in steps {
            match step {
                Step::Pass { millis } => now = now.after(ms(millis)),
                Step::Lose => {
                    ledger.step(Phase::Live, Phase::Lost(Loss::Gone));
                    key_ends = now;
                }
                Step::Renew => if let Some(lease) = ledger.renewal(now) {
                    key_ends = key_ends.max(now.after(lease.duration()));
                    ledger.renewed(now, lease);
                },
                Step::Reenter { leased_ms, took_ms, looked, lost } => {
                    if guards.is_empty() { continue }
                    let Ok(counts) = ledger.counts_after_reentry(now, Side::Exclusive) else { continue };
                    let (sent, lease) = (now, lease(leased_ms.unwrap_or(30_000)));
                    key_ends = key_ends.max(now.after(ledger.raise(now, lease).endless.duration()));
                    key_count = counts.exclusive;
                    now = now.after(ms(took_ms));
                    if lost {
                        ledger.step(Phase::Live, Phase::Lost(Loss::Gone));
                        key_ends = now;
                    }
                    let is_lost = lost || (looked && ledger.look(now) != Phase::Live);
                    let promise = leased_ms.map_or(RENEWED, |_| Promise::Leased { until: sent.after(lease.duration()) });
                    match ledger.reentered(now, sent, lease, Side::Exclusive, promise) {
                        Ok(guard) => {
                            proptest::prop_assert!(!is_lost, "taken again after its loss was told");
                            guards.push(guard);
                        }
                        Err(_) => proptest::prop_assert_ne!(ledger.phase, Phase::Live),
                    }
                }
                Step::Release { which } => {
                    if guards.is_empty() { continue }
                    let guard = guards.remove(which % guards.len());
                    match ledger.release(guard, now) {
                        Release::Partial => {
                            let (counts, lease) = ledger.remaining(now).unwrap();
                            key_ends = now.after(lease.duration());
                            ledger.cut_is_over(now);
                            key_count = counts.exclusive;
                        }
                        Release::Last => { key_ends = now; ledger.step(Phase::Releasing, Phase::Done); }
                        Release::Lost(_) => {}
                        Release::Unknown => proptest::prop_assert!(false, "a live guard is known"),
                    }
                }
            }
            let phase = ledger.look(now);
            if phase == Phase::Live {
                proptest::prop_assert!(key_ends > now, "believed, but the key is gone");
                proptest::prop_assert!(ledger.good_until < key_ends, "believed longer than the key lives");
                proptest::prop_assert_eq!(key_count, guards.len());
                proptest::prop_assert_eq!(ledger.counts().exclusive, guards.len());
                proptest::prop_assert!(!was_lost);
            }
            was_lost |= matches!(phase, Phase::Lost(_));
        }
    }
}
