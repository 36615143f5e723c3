//! Tests of the renewal rounds in virtual time: random plans against the model of a server, and the behaviour with a
//! good server.
#![cfg(test)]

use proptest::prelude::*;

use super::*;
use crate::engine::keeper::watchdog::renewer::model::*;
use crate::time::Lease;

fn acts(horizon_ms: u64) -> impl Strategy<Value = Vec<(u64, Act)>> {
    let leased_ms = || proptest::option::of(100_u64..100_000);
    let which = 0_usize..8;
    let act = prop_oneof![
        4 => leased_ms().prop_map(|leased_ms| Act::Acquire { leased_ms }),
        3 => (which.clone(), leased_ms()).prop_map(|(which, leased_ms)| Act::Reenter { which, leased_ms }),
        4 => (which.clone(), 0_usize..4, 0_u64..2_000, 0_u64..2_000)
            .prop_map(|(which, guard, to_ms, back_ms)| Act::Release { which, guard, to_ms, back_ms }),
        1 => which.clone().prop_map(|which| Act::Delete { which }),
        1 => which.clone().prop_map(|which| Act::Take { which }),
        1 => which.clone().prop_map(|which| Act::Persist { which }),
        2 => which.prop_map(|which| Act::Check { which }),
        1 => prop_oneof![Just(AllHolds::Look), Just(AllHolds::Renew)].prop_map(|all| Act::CheckAll { all }),
    ];
    let watched = Just((0, Act::Acquire { leased_ms: None }));
    (watched, proptest::collection::vec((0..horizon_ms, act), 0..24)).prop_map(|(first, mut acts)| {
        acts.insert(0, first);
        acts
    })
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        4 => (0_u64..1_500, 0_u64..1_500).prop_map(|(to_ms, back_ms)| Fate::Answered { to_ms, back_ms }),
        1 => (1_500_u64..40_000, 0_u64..1_500).prop_map(|(to_ms, back_ms)| Fate::Answered { to_ms, back_ms }),
        3 => Just(Fate::NeverArrives),
        1 => (0_u64..500).prop_map(|after_ms| Fate::Refused { after_ms }),
        1 => (0_usize..8).prop_map(|which| Fate::OneRefused { which }),
        1 => Just(Fate::Moving),
        1 => Just(Fate::Moved),
        1 => Just(Fate::Garbled),
        1 => Just(Fate::NotSent),
    ];
    proptest::collection::vec(fate, 0..60)
}

/// A lease of the watchdog, and the lead of a server clock that its margin covers.
fn any_plan() -> impl Strategy<Value = Plan> {
    let numbers = (300_u64..60_000, 100_u64..5_000, 1_usize..5, 1_usize..4, any::<bool>(), -9_900_i64..9_900);
    numbers.prop_flat_map(|(lease_ms, timeout_ms, batch, slots, hangs_elsewhere, drift)| {
        (acts(5 * lease_ms), fates()).prop_map(move |(acts, fates)| Plan {
            lease_ms,
            timeout_ms,
            batch,
            slots,
            hangs_elsewhere,
            drift,
            acts,
            fates,
            each_ms: 0,
        })
    })
}

/// A plan with one slot, one hold for each request, and two clocks that run alike.
fn simple(lease_ms: u64, timeout_ms: u64, acts: Vec<(u64, Act)>, fates: Vec<Fate>) -> Plan {
    let (batch, slots, hangs_elsewhere, drift) = (1, 1, false, 0);
    Plan { lease_ms, timeout_ms, batch, slots, hangs_elsewhere, drift, acts, fates, each_ms: 0 }
}

/// The time until a failed request about a hold is repeated, for renewals and checks.
fn soon(plan: &Plan) -> Duration {
    (ms(plan.lease_ms) / 30).clamp(ms(500), ms(1_000))
}

/// Runs the rounds of a plan for six leases. Returns the times of the rounds and the holds in each.
fn play(plan: &Plan) -> Vec<(Instant, Vec<usize>)> {
    let _pretence = START.pretend();
    let (interval, timeout) = (ms(plan.lease_ms / 3), ms(plan.timeout_ms));
    let mut world = World::new(plan);
    let mut rounds = Renewer::new(START, interval, plan.batch, timeout);
    let (mut wake, mut next_tick) = (rounds.next_round, START.after(interval));
    let mut played = vec![];
    // Since the last tick: the time that requests to the other server took in vain, and its bound.
    let (mut vain_elsewhere, mut most_elsewhere) = (Duration::ZERO, timeout + ms(50));
    loop {
        world.idle_until(wake);
        let now = Instant::now();
        if now >= START.after(ms(6 * plan.lease_ms)) {
            return played;
        }
        let asked = Asked { all: world.all.take(), holds: world.urgent(), moved: vec![] };
        let tick = now >= next_tick;
        while next_tick <= now {
            next_tick = next_tick.after(interval);
        }
        if tick {
            (vain_elsewhere, most_elsewhere) = (Duration::ZERO, timeout + ms(50));
        }
        let (mut must, mut checks) = (vec![], vec![]);
        for (which, held) in world.held.iter_mut().enumerate() {
            (held.asked, held.confirmed, held.renewed, held.tried) = (false, false, false, false);
            let retry = held.failed.is_some_and(|failed| failed.after(soon(plan)) <= now);
            let named = asked.all.is_some() || asked.holds.iter().any(|hold| hold.number == held.hold.number);
            if held.is_live() && (named || held.is_watched() && (tick || retry)) {
                must.push((which, held.is_watched()));
            }
            if !held.is_watched() || !(tick || retry || asked.all == Some(AllHolds::Renew)) {
                checks.push(which);
            }
        }
        (world.vain, world.asked_until, world.thinned) = (Duration::ZERO, START, false);
        (world.vain_elsewhere, world.is_elsewhere) = (Duration::ZERO, false);
        rounds.round(&mut world, &asked);
        wake = rounds.next_round;
        world.check();
        assert!(wake <= next_tick, "a tick is never slept over");
        vain_elsewhere += world.vain_elsewhere;
        assert!(vain_elsewhere <= most_elsewhere, "a mute server elsewhere costs little more than a time-out a tick");
        most_elsewhere += timeout / 10 + ms(50);
        // Holds without a request in this round were postponed.
        let spent = world.vain >= timeout;
        let is_near_tick = Instant::now().after(interval / 2) > next_tick;
        for (which, held) in world.held.iter_mut().enumerate() {
            let wanted = held.is_live();
            assert!(!held.disowned || !held.is_live(), "what the server calls lost is lost");
            // A release meanwhile sends a request, too.
            let had_its_turn = must.contains(&(which, held.is_watched()));
            // A check whose answer would come after the tick is put off, too.
            let spent = spent || (is_near_tick && checks.contains(&which));
            if had_its_turn && wanted {
                assert!(held.asked || held.confirmed || spent, "{which} had its turn and was left out");
            }
            if held.renewed || (held.confirmed && !held.is_watched()) {
                held.failed = None;
            } else if held.confirmed && !held.tried {
                // A check renews nothing, so a failed renewal is still to be repeated.
            } else if wanted && (had_its_turn || held.asked || (spent && held.failed.is_some())) {
                held.failed = Some(Instant::now());
            }
            if wanted && let Some(failed) = held.failed {
                assert!(wake <= failed.after(soon(plan)), "what failed is tried again soon");
            }
        }
        let asked = world.held.iter().enumerate().filter(|(_, held)| held.asked).map(|(which, _)| which);
        played.push((now, asked.collect()));
    }
}

#[test]
fn a_request_in_vain_is_given_up_for_the_sake_of_the_younger() {
    // The time-out is longer than the lease, so the first hold is lost, but the last one must not be.
    let leased = Act::Acquire { leased_ms: Some(100_000) };
    let acts = [(0, Act::Acquire { leased_ms: None }), (0, leased), (500, Act::Acquire { leased_ms: None })];
    let fates = [Fate::Answered { to_ms: 0, back_ms: 0 }, Fate::NeverArrives];
    for batch in [1, 2] {
        let rounds = play(&Plan { batch, ..simple(1_000, 3_000, acts.to_vec(), fates.to_vec()) });
        assert_eq!(rounds.last().unwrap().1, [2], "in batches of {batch}");
    }
}

#[test]
fn a_look_in_vain_is_given_up_when_renewals_are_due() {
    // The time-out is as long as the lease, so a hold that waited for the check would be lost.
    let acts = vec![(0, Act::Acquire { leased_ms: None }), (900, Act::Check { which: 0 })];
    let fates = vec![Fate::NeverArrives];
    let rounds = play(&Plan { batch: 2, ..simple(3_000, 3_000, acts, fates) });
    assert_eq!(rounds[0], (START.after(ms(900)), vec![0]), "the look");
    assert_eq!(rounds[1], (START.after(ms(1_000)), vec![0]), "the renewal is in time");
    assert_eq!(rounds.last().unwrap().1, [0], "it is held to the end");
}

#[test]
fn a_server_that_a_slot_moves_to_costs_no_other_hold() {
    // The slot of the first hold moves to a server that never answers.
    let acts = (0..6).map(|at| (at, Act::Acquire { leased_ms: None })).collect();
    let at_once = || Fate::Answered { to_ms: 0, back_ms: 0 };
    let tick = || std::iter::once(Fate::Moving).chain((0..6).map(|_| at_once()));
    let retry = || [Fate::Moving, at_once()];
    // The first request takes a second, each later one a tenth of it, with pauses of 300 ms.
    let period = || tick().chain((0..5).flat_map(|_| retry()));
    let fates = period().chain(period()).collect();
    let rounds = play(&Plan { slots: 6, hangs_elsewhere: true, ..simple(9_000, 1_000, acts, fates) });
    assert_eq!(rounds[0].1, [0, 1, 2, 3, 4, 5], "all have their turn at the first tick");
    assert_eq!(rounds.last().unwrap().1, [1, 2, 3, 4, 5], "the others are held to the end");
}

#[test]
fn a_write_that_is_too_long_is_made_shorter() {
    let acts: Vec<_> = (0..1_000).map(|_| (0, Act::Acquire { leased_ms: None })).collect();
    let plan = simple(30_000, 3_000, acts, vec![Fate::Answered { to_ms: 25, back_ms: 25 }; 1_000]);
    let rounds = play(&Plan { batch: 10, each_ms: 10, ..plan });
    assert_eq!(rounds.last().unwrap().1.len(), 1_000, "none is lost at a narrow link");
}

#[test]
fn many_holds_are_kept_behind_each_latency() {
    for (round_trip, timeout) in [(300, 3_000), (800, 3_000), (1_000, 3_000), (260, 1_000), (300, 1_000)] {
        let acts: Vec<_> = (0..1_000).map(|_| (0, Act::Acquire { leased_ms: None })).collect();
        let answered = Fate::Answered { to_ms: round_trip / 2, back_ms: round_trip / 2 };
        let rounds = play(&Plan { batch: 10, ..simple(30_000, timeout, acts, vec![answered; 4_000]) });
        assert_eq!(rounds.last().unwrap().1.len(), 1_000, "{round_trip} ms within {timeout}");
    }
}

#[test]
fn writes_grow_again_after_a_time_out() {
    // A batch has a request for each slot, and only so many of them.
    let acts: Vec<_> = (0..1_000).map(|_| (0, Act::Acquire { leased_ms: None })).collect();
    let mut fates = vec![Fate::Answered { to_ms: 500, back_ms: 500 }; 4_000];
    fates[0] = Fate::NeverArrives;
    let rounds = play(&Plan { batch: 1_000, slots: 1_000, ..simple(15_000, 3_000, acts, fates) });
    assert_eq!(rounds.last().unwrap().1.len(), 1_000);
}

#[test]
fn checks_that_are_put_off_do_not_use_up_the_estimate() {
    let mut rounds = RenewalRounds::new(START, ms(10_000), 100, ms(3_000));
    rounds.wrote(ms(300), 0);
    let check = RenewalTurn { lease: None, good_until: START.after(ms(100_000)) };
    let before_tick = |before: u64| START.after(ms(10_000 - before));
    assert!(rounds.ask_until(before_tick(700), check).is_some());
    for before in [500, 290, 280, 270, 100, 50] {
        assert_eq!(rounds.ask_until(before_tick(before), check), None, "{before} ms before the tick");
    }
}

#[test]
fn a_hold_that_no_answer_can_save_costs_no_other() {
    let answered = Fate::Answered { to_ms: 150, back_ms: 150 };
    for is_known in [true, false] {
        let later = (0..80).map(|number| (10_100 + 100 * number, Act::Acquire { leased_ms: None }));
        let acts = is_known.then_some((0, Act::Acquire { leased_ms: None })).into_iter().chain(later).collect();
        let mut fates = vec![Fate::NeverArrives; 7];
        if is_known {
            fates.insert(0, answered.clone());
        }
        fates.resize(4_000, answered.clone());
        let rounds = play(&Plan { batch: 100, ..simple(30_000, 3_000, acts, fates) });
        assert!(rounds.last().unwrap().1.len() > 50, "after the outage: {}", rounds.last().unwrap().1.len());
    }
}

#[test]
fn one_slow_answer_puts_off_no_check_to_the_tick() {
    let acts = vec![
        (0, Act::Acquire { leased_ms: None }),
        (0, Act::Acquire { leased_ms: Some(100_000) }),
        (15_200, Act::Check { which: 1 }),
    ];
    let rounds = play(&simple(30_000, 3_000, acts, vec![Fate::Answered { to_ms: 1_300, back_ms: 1_300 }]));
    let checked = rounds.iter().find(|(_, asked)| asked.contains(&1)).unwrap();
    assert!(checked.0 < START.after(ms(17_000)), "{:?}", START.until(checked.0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// For any network: a hold that counts as live exists on the server, each loss is reported once and in time, an
    /// ended hold stays ended and is not renewed, a lease is not renewed, a failed request is soon repeated, and a
    /// silent server costs one time-out in each round. The checks are in the model and in `play`.
    #[test]
    fn a_hold_is_believed_while_it_is_there_and_lost_once(plan in any_plan()) {
        play(&plan);
    }

    /// While the server replies, every tick is on the grid and renews every watched hold once, and no hold is lost.
    #[test]
    fn a_server_that_answers_costs_no_hold_and_no_tick(
        lease_ms in 3_000_u64..60_000, batch in 1_usize..5, slots in 1_usize..4, holds in 1_usize..7,
        drift in -9_000_i64..9_000,
        delays in proptest::collection::vec((0_u64..50, 0_u64..50), 0..60),
    ) {
        let acts = (0..holds).map(|_| (0, Act::Acquire { leased_ms: None })).collect();
        let fates = delays.into_iter().map(|(to_ms, back_ms)| Fate::Answered { to_ms, back_ms }).collect();
        let rounds = play(&Plan { batch, slots, drift, ..simple(lease_ms, 3_000, acts, fates) });
        let interval = ms(lease_ms / 3);
        prop_assert!(rounds.len() >= 17);
        let mut tick = START;
        for (at, asked) in rounds {
            tick = tick.after(interval);
            prop_assert_eq!(at, tick);
            prop_assert_eq!(asked, (0..holds).collect::<Vec<_>>());
        }
    }

    /// A server clock that is set forward costs no hold whose key survives until its renewal.
    #[test]
    fn a_clock_that_is_set_forward_costs_only_what_it_ends(
        lease_ms in 3_000_u64..60_000, batch in 1_usize..5, holds in 1_usize..7, at in 0_f64..4.0, by in 0_f64..0.65,
    ) {
        let [at, by_ms] = [at, by].map(|leases| (leases * lease_ms as f64) as u64);
        let acquires = (0..holds).map(|_| (0, Act::Acquire { leased_ms: None }));
        let acts = acquires.chain([(at, Act::Step { by_ms })]).collect();
        let rounds = play(&Plan { batch, ..simple(lease_ms, 3_000, acts, vec![]) });
        prop_assert_eq!(&rounds.last().unwrap().1, &(0..holds).collect::<Vec<_>>(), "all are renewed to the end");
    }

    /// The whole margin, less 1 ms, covers a server clock that runs faster than the local clock.
    #[test]
    fn a_clock_that_runs_fast_by_the_margin_costs_nothing(
        lease_ms in 300_u64..60_000, batch in 1_usize..3, slots in 1_usize..3, holds in 1_usize..7,
        checks in proptest::collection::vec((0_f64..5.0, 0_usize..7), 0..12),
        delays in proptest::collection::vec((0_u64..2, 0_u64..2), 0..60),
    ) {
        let acquires = (0..holds).map(|_| (0, Act::Acquire { leased_ms: None }));
        let check = |(at, which)| ((at * lease_ms as f64) as u64, Act::Check { which });
        let acts = acquires.chain(checks.into_iter().map(check)).collect();
        let fates = delays.into_iter().map(|(to_ms, back_ms)| Fate::Answered { to_ms, back_ms }).collect();
        let covered = Lease::new(ms(lease_ms)).unwrap().margin() - ms(1);
        let drift = (covered.as_micros() * 1_000_000 / (ms(lease_ms) - covered).as_micros()) as i64;
        let rounds = play(&Plan { batch, slots, drift, ..simple(lease_ms, 3_000, acts, fates) });
        prop_assert_eq!(&rounds.last().unwrap().1, &(0..holds).collect::<Vec<_>>(), "all are renewed to the end");
    }
}
