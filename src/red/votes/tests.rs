//! Tests of votes: examples of rounds, and any votes.
#![cfg(test)]

use proptest::prelude::*;

use super::*;

const NOW: Instant = Instant::from_millis(1_000_000);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn granted() -> Vote {
    Vote::Granted { until: NOW.after(ms(1)) }
}

fn too_late() -> Vote {
    Vote::Granted { until: NOW }
}

fn busy(millis: u64) -> Vote {
    Vote::Busy(ms(millis))
}

fn five() -> Votes {
    Votes::new(majority(5))
}

#[track_caller]
fn check(votes: [Vote; 5], verdict: Verdict) {
    assert_eq!(five().verdict(&votes, NOW, NOW, || 0), verdict);
}

const SPLIT: Verdict = Verdict::Split { pause: Duration::from_micros(800) };

#[test]
fn a_grant_that_ended_does_not_count() {
    check([granted(), granted(), too_late(), busy(100), busy(100)], SPLIT);
    check([too_late(); 5], SPLIT);
}

#[test]
fn a_busy_majority_is_waited_for() {
    check([busy(300), Vote::Absent, busy(100), busy(200), Vote::Absent], Verdict::Busy { wait: ms(300) });
}

#[test]
fn callers_that_share_the_votes_pause_at_random() {
    check([granted(), granted(), busy(900), busy(900), busy(900)], SPLIT);
    check([granted(), busy(900), busy(900), busy(900), busy(900)], SPLIT);
    check([granted(), granted(), busy(900), Vote::Absent, Vote::Absent], SPLIT);
}

#[test]
fn a_majority_is_more_than_half() {
    assert_eq!([1, 2, 3, 4, 5, 6].map(majority), [1, 2, 2, 3, 3, 4]);
}

#[test]
fn pauses_double_up_to_their_limit() {
    let mut votes = five();
    let split = [granted(), granted(), busy(900), busy(900), Vote::Absent];
    let mut pauses = |random| {
        let pause = || match votes.clone().verdict(&split, NOW, NOW, || random) {
            Verdict::Split { pause } => pause,
            verdict => panic!("{verdict:?}"),
        };
        let pause = pause();
        votes.verdict(&split, NOW, NOW, || 0);
        pause
    };
    let span = |millis: u64| millis * 1_000_000;
    assert_eq!(pauses(0), ms(8) / 10);
    assert_eq!(pauses(span(16) / 10 * 9), ms(16));
    assert_eq!(pauses(span(32) / 10 * 9 + 1), ms(32) / 10);
    assert_eq!([64, 128, 256, 500, 500].map(|most| pauses(0) == ms(most) / 10), [true; 5]);
    assert_eq!(pauses(span(450)), ms(500));
}

#[test]
fn a_pause_is_longer_than_a_round_on_a_slow_link() {
    let split = [granted(), granted(), busy(900), busy(900), Vote::Absent];
    for (took, least) in [(1, 8), (30, 60), (200, 400), (300, 500)] {
        let verdict = five().verdict(&split, NOW, NOW.after(ms(took)), || 0);
        assert_eq!(verdict, Verdict::Split { pause: ms(least) / 10 }, "{took}");
    }
}

#[test]
fn a_split_that_lasts_is_a_holder_of_a_majority() {
    let mut votes = five();
    let split = [granted(), granted(), busy(900), busy(800), busy(700)];
    for _ in 0..5 {
        assert!(matches!(votes.verdict(&split, NOW, NOW, || 0), Verdict::Split { .. }));
    }
    // Two nodes are free, so the first of the others makes a majority.
    assert_eq!(votes.verdict(&split, NOW, NOW, || 0), Verdict::Busy { wait: ms(700) });
    assert_eq!(votes.verdict(&split, NOW, NOW, || 0), SPLIT, "the pauses begin anew");
}

fn vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        3 => Just(granted()),
        3 => (0_u64..3_000).prop_map(busy),
        1 => Just(too_late()),
        2 => Just(Vote::Absent),
    ]
}

proptest! {
    /// For any votes: a lock is taken by a live majority and by nothing else, each rest is bounded, and a lock counts
    /// as busy when, and only when, enough nodes say so.
    #[test]
    fn any_votes_get_a_fair_verdict(
        rounds in proptest::collection::vec(proptest::collection::vec(vote(), 5), 1..20),
        random: u64,
    ) {
        let mut votes = five();
        for round in rounds {
            let count = |wanted: fn(&Vote) -> bool| round.iter().filter(|vote| wanted(vote)).count();
            let live = count(|vote| *vote == granted());
            let busy = count(|vote| matches!(vote, Vote::Busy(_)));
            let answered = 5 - count(|vote| *vote == Vote::Absent);
            match votes.verdict(&round, NOW, NOW, || random) {
                Verdict::Taken => prop_assert!(live >= 3),
                Verdict::Split { pause } => {
                    prop_assert!(live < 3 && answered >= 3 && !(busy >= 3 && live == 0 && answered == busy));
                    prop_assert!(pause >= ms(8) / 10 && pause <= ms(500));
                }
                Verdict::Busy { wait } => prop_assert!(live < 3 && busy >= 3 && wait <= ms(1_000)),
                Verdict::TooFew { pause } => {
                    prop_assert!(live < 3 && answered < 3);
                    prop_assert!(pause >= ms(8) / 10 && pause <= ms(500));
                }
            }
        }
    }
}
