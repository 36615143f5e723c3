//! Tests of the rounds: examples, and any answers in any order.
#![cfg(test)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

struct Caller(Rounds);

impl Caller {
    fn new(parts: usize) -> Self {
        Self(Rounds::new(parts))
    }

    #[track_caller]
    fn is_told(&mut self, step: Step) {
        assert_eq!(self.0.next(|| 0), step);
    }

    fn granted(&mut self, parts: &[usize]) {
        parts.iter().for_each(|part| self.0.granted(*part));
    }

    fn busy(&mut self, parts: &[usize]) {
        parts.iter().for_each(|part| self.0.busy(*part));
    }

    #[track_caller]
    fn gives_back(&mut self) {
        self.is_told(GIVE_BACK);
        self.0.given_back();
    }

    /// Gets the blocker and is refused `busy` in the same round.
    #[track_caller]
    fn gets_only(&mut self, blocker: usize, busy: usize) {
        self.is_told(Step::Wait(blocker));
        self.granted(&[blocker]);
        self.is_told(Step::AskRest);
        self.busy(&[busy]);
    }

    /// Gets the blocker after this time, and is refused `busy` in the same round.
    #[track_caller]
    fn waits(&mut self, blocker: usize, time: Duration, busy: usize) {
        self.0.waited(blocker, time);
        self.gets_only(blocker, busy);
    }

    /// Waits for the part with others in hand, for this time at most, and gives all back.
    #[track_caller]
    fn waits_holding_in_vain(&mut self, part: usize, most: Duration) {
        self.is_told(Step::WaitHolding(part, most));
        self.busy(&[part]);
        self.gives_back();
    }

    /// Two parts, of which the one or the other is busy, until the caller may hold while it waits.
    #[track_caller]
    fn loses_four_rounds(&mut self) {
        self.is_told(Step::AskRest);
        self.granted(&[1]);
        self.busy(&[0]);
        self.gives_back();
        for round in 1..4 {
            self.gets_only((round + 1) % 2, round % 2);
            self.gives_back();
        }
    }
}

const GIVE_BACK: Step = Step::GiveBack { pause: Duration::ZERO };

#[test]
fn callers_of_the_same_busy_parts_meet_at_the_first() {
    let mut caller = Caller::new(3);
    caller.is_told(Step::AskRest);
    caller.busy(&[2, 1]);
    caller.granted(&[0]);
    caller.gives_back();
    caller.is_told(Step::Wait(1));
}

#[test]
fn pauses_grow_with_the_rounds_up_to_a_limit() {
    let mut rounds = Rounds::new(2);
    rounds.next(|| 0);
    for round in 0..20 {
        rounds.busy(1);
        // The largest random pause, and one more, which is none.
        let longest = PAUSE * round.min(4);
        let pause = |random| match rounds.clone().next(|| random) {
            Step::GiveBack { pause } => pause,
            step => panic!("{step:?}"),
        };
        let largest = u64::try_from(longest.as_nanos()).unwrap();
        assert_eq!(pause(largest), longest);
        assert_eq!(pause(largest + 1), Duration::ZERO);
        rounds.next(|| 0);
        rounds.given_back();
        let Step::Wait(part) = rounds.next(|| 0) else { panic!("a part is waited for") };
        rounds.granted(part);
        assert_eq!(rounds.next(|| 0), Step::AskRest);
        rounds.passed(part);
    }
}

#[test]
fn after_four_rounds_in_vain_parts_are_held_for_a_while() {
    let mut caller = Caller::new(2);
    caller.loses_four_rounds();
    for _ in 0..4 {
        for (held, missing) in [(0, 1), (1, 0)] {
            caller.gets_only(held, missing);
            caller.waits_holding_in_vain(missing, ms(100));
        }
    }
    caller.gets_only(0, 1);
    caller.is_told(Step::WaitHolding(1, ms(100)));
    caller.granted(&[1]);
    caller.is_told(Step::Check);
}

#[test]
fn the_slowest_part_is_waited_for_with_empty_hands() {
    for (fast, slow) in [(0, 1), (1, 0)] {
        let mut caller = Caller::new(2);
        caller.is_told(Step::AskRest);
        caller.granted(&[slow]);
        caller.busy(&[fast]);
        caller.gives_back();
        caller.waits(fast, ms(120), slow);
        // A quarter of the wait.
        caller.waits_holding_in_vain(slow, ms(30));
        caller.waits(slow, ms(60_000), fast);
        caller.is_told(Step::WaitHolding(fast, ms(250)));
        caller.granted(&[fast]);
        caller.is_told(Step::Check);
    }
}

#[test]
fn a_part_held_for_long_is_waited_for_without_its_neighbour() {
    let mut caller = Caller::new(2);
    caller.loses_four_rounds();
    caller.gets_only(0, 1);
    caller.is_told(Step::WaitHolding(1, ms(100)));
    for _ in 0..100 {
        caller.busy(&[1]);
        if matches!(caller.0.next(|| 0), Step::GiveBack { .. }) {
            caller.0.given_back();
        }
        caller.is_told(Step::Wait(1));
    }
}

#[test]
fn of_two_slow_parts_one_is_held_until_the_other_comes() {
    for queue in [ms(1_600), ms(60_000)] {
        let mut caller = Caller::new(2);
        caller.is_told(Step::AskRest);
        caller.busy(&[0, 1]);
        caller.gives_back();
        caller.waits(0, queue, 1);
        caller.waits_holding_in_vain(1, ms(250));
        // Two callers that waited for each other's part would go on for ever; in this order nobody waits for this one.
        caller.waits(1, queue * 2 / 3, 0);
        caller.waits_holding_in_vain(0, ms(250));
        caller.waits(0, queue, 1);
        caller.is_told(Step::WaitHolding(1, queue * 2 / 3 * 2));
    }
}

/// The first part is never waited for longer with the second in hand, so the second is, in the end.
#[test]
fn of_a_slow_part_and_a_slower_one_the_first_is_held() {
    let mut caller = Caller::new(2);
    caller.is_told(Step::AskRest);
    caller.busy(&[0, 1]);
    caller.gives_back();
    for _ in 0..2 {
        caller.waits(0, ms(2_000), 1);
        caller.waits_holding_in_vain(1, ms(250));
        caller.waits(1, ms(10_000), 0);
        caller.waits_holding_in_vain(0, ms(250));
    }
    caller.waits(0, ms(2_000), 1);
    caller.is_told(Step::WaitHolding(1, ms(20_000)));
}

/// Nobody has waited for the second part for longer, so it is not waited for longer with the first one in hand.
#[test]
fn a_part_that_came_at_once_is_not_waited_for_longer() {
    let mut caller = Caller::new(3);
    caller.is_told(Step::AskRest);
    caller.busy(&[0, 1]);
    caller.granted(&[2]);
    caller.gives_back();
    caller.waits(0, ms(1_000), 1);
    caller.granted(&[2]);
    caller.waits_holding_in_vain(1, ms(250));
    caller.waits(1, ms(400), 0);
    caller.granted(&[2]);
    caller.waits_holding_in_vain(0, ms(100));
    for _ in 0..100 {
        caller.waits(0, ms(1_000), 1);
        caller.busy(&[2]);
        let Step::WaitHolding(1, most) = caller.0.next(|| 0) else { panic!("the second part is waited for") };
        assert!(most <= ms(800), "twice the last wait: {most:?}");
        caller.granted(&[1]);
        caller.is_told(Step::AskRest);
        caller.busy(&[2]);
        let Step::WaitHolding(2, _) = caller.0.next(|| 0) else { panic!("the third part is waited for") };
        caller.busy(&[2]);
        caller.gives_back();
        caller.waits(2, ms(200), 0);
        caller.granted(&[1]);
        caller.waits_holding_in_vain(0, ms(100));
    }
}

#[test]
fn a_much_slower_part_is_not_waited_for_with_a_fast_one_in_hand() {
    let mut caller = Caller::new(2);
    caller.is_told(Step::AskRest);
    caller.busy(&[0]);
    caller.granted(&[1]);
    caller.gives_back();
    caller.waits(0, ms(10_000), 1);
    caller.waits_holding_in_vain(1, ms(250));
    caller.waits(1, ms(400), 0);
    caller.is_told(Step::WaitHolding(0, ms(100)));
}

#[test]
fn missing_parts_share_the_time_of_a_round() {
    let mut caller = Caller::new(5);
    caller.loses_four_rounds();
    caller.gets_only(0, 1);
    caller.busy(&[2, 3, 4]);
    caller.is_told(Step::WaitHolding(1, ms(25)));
    caller.granted(&[1]);
    caller.is_told(Step::AskRest);
    caller.granted(&[2]);
    caller.busy(&[3, 4]);
    caller.is_told(Step::WaitHolding(3, Duration::from_micros(37_500)));
    caller.granted(&[3]);
    caller.is_told(Step::AskRest);
    caller.busy(&[4]);
    caller.waits_holding_in_vain(4, Duration::from_micros(37_500));
    caller.is_told(Step::Wait(4));
}

/// An answer about one part.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Granted,
    Busy,
    Passed,
    Nothing,
}

fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let answer = prop_oneof![
        6 => Just(Answer::Granted),
        4 => Just(Answer::Busy),
        1 => Just(Answer::Passed),
        1 => Just(Answer::Nothing),
    ];
    proptest::collection::vec(answer, 0..300)
}

/// The surroundings of a caller, with all that the caller may rely on.
struct Surroundings {
    rounds: Rounds,
    parts: usize,
    granted: BTreeSet<usize>,
    busy: BTreeSet<usize>,
    gave_back: u32,
    /// The time that this round waited with empty hands.
    waited: Duration,
}

impl Surroundings {
    fn hear(&mut self, part: usize, answer: Answer) {
        self.busy.remove(&part);
        match answer {
            Answer::Granted => {
                self.rounds.granted(part);
                self.granted.insert(part);
            }
            Answer::Busy => {
                self.rounds.busy(part);
                self.busy.insert(part);
            }
            Answer::Passed => self.rounds.passed(part),
            Answer::Nothing => {}
        }
    }

    /// Takes one step and checks that the step is allowed. Returns whether the take is complete.
    fn step(&mut self, random: u64, answers: &mut impl Iterator<Item = Answer>) -> bool {
        let mut answer = || answers.next().unwrap_or(Answer::Granted);
        match self.rounds.next(|| random) {
            Step::AskRest => {
                assert!(self.granted.len() < self.parts, "nothing is left to ask for");
                self.busy.clear();
                for part in (0..self.parts).filter(|part| !self.granted.contains(part)).collect::<Vec<_>>() {
                    self.hear(part, answer());
                }
            }
            Step::GiveBack { pause } => {
                assert!(pause <= PAUSE * self.gave_back.min(4), "{pause:?} after {} rounds", self.gave_back);
                self.gave_back += 1;
                self.granted.clear();
                self.waited = Duration::ZERO;
                self.rounds.given_back();
            }
            Step::Wait(part) => {
                assert!(self.granted.is_empty(), "sleeps holding a part");
                self.waited = ms(random.rotate_left(self.gave_back) % 400);
                self.rounds.waited(part, self.waited);
                let begins_in_order = self.gave_back >= 4 && part == 0;
                assert!(begins_in_order || self.busy.contains(&part), "waits for a part that was not busy");
                // A wait ends with the part or in vain; without an answer the caller gives up.
                self.hear(part, if matches!(answer(), Answer::Granted) { Answer::Granted } else { Answer::Busy });
            }
            Step::WaitHolding(part, most) => {
                assert!((self.gave_back >= 4 || self.waited >= ms(100)) && !self.granted.is_empty());
                assert_eq!((0..self.parts).find(|part| !self.granted.contains(part)), Some(part));
                // Callers that wait for each other hold their parts for a moment.
                let is_in_order = self.granted.iter().all(|held| *held < part);
                assert!(is_in_order || most <= ms(250), "{most:?} with {:?} in hand", self.granted);
                self.hear(part, if matches!(answer(), Answer::Granted) { Answer::Granted } else { Answer::Busy });
            }
            Step::Check => {
                assert_eq!(self.granted.len(), self.parts, "a part is missing");
                match answer() {
                    Answer::Granted => return true,
                    _ => {
                        let part = *self.granted.first().unwrap();
                        self.granted.remove(&part);
                        self.rounds.passed(part);
                    }
                }
            }
        }
        false
    }
}

proptest! {
    /// For any answers: a caller that sleeps holds nothing, except late and for a bounded time. As soon as all parts
    /// are free, a few steps complete the take.
    #[test]
    fn any_answers_lead_to_allowed_steps(parts in 1_usize..6, random: u64, answers in answers()) {
        let (granted, busy) = (BTreeSet::new(), BTreeSet::new());
        let rounds = Rounds::new(parts);
        let mut it = Surroundings { rounds, parts, granted, busy, gave_back: 0, waited: Duration::ZERO };
        let mut answers = answers.into_iter().peekable();
        while answers.peek().is_some() {
            if it.step(random, &mut answers) {
                return Ok(());
            }
        }
        let steps = (1..).find(|_| it.step(random, &mut std::iter::empty()));
        prop_assert!(steps.is_some_and(|steps| steps <= 4), "{steps:?} steps with all parts free");
    }
}

#[test]
fn a_silent_part_is_waited_for_with_empty_hands() {
    let mut caller = Caller::new(2);
    caller.loses_four_rounds();
    // From here on the caller may hold parts while it waits, but not for a server that does not answer.
    caller.is_told(Step::Wait(0));
    caller.granted(&[0]);
    caller.is_told(Step::AskRest);
    caller.0.silent(1);
    caller.gives_back();
    caller.is_told(Step::Wait(1));
    caller.granted(&[1]);
    caller.is_told(Step::AskRest);
    caller.busy(&[0]);
    caller.is_told(Step::WaitHolding(0, ms(100)));
    caller.0.silent(0);
    caller.gives_back();
    caller.is_told(Step::Wait(0));
}
