//! Tests of counted queues: examples, and random steps against a counter in Redis.
#![cfg(test)]

use proptest::prelude::*;

use super::*;

const CHANNEL: &str = "c";

/// A queue with a waiter for each wish; a waiter is its index.
fn queue(wishes: &[u32]) -> (CountedQueues<usize>, Vec<u64>) {
    let mut queues = CountedQueues::default();
    let numbers = wishes.iter().enumerate().map(|(index, wish)| queues.join(CHANNEL, *wish, index)).collect();
    (queues, numbers)
}

fn may_ask(queues: &CountedQueues<usize>, numbers: &[u64]) -> Vec<bool> {
    numbers.iter().map(|number| queues.may_ask(CHANNEL, *number)).collect()
}

#[test]
fn only_smaller_wishes_ask_beside_the_first() {
    let (queues, numbers) = queue(&[3, 3, 2, 5, 2, 1, 1]);
    assert_eq!(may_ask(&queues, &numbers), [true, false, true, false, false, true, false]);
    assert_eq!(queues.hint(CHANNEL), [0, 2, 5]);
}

#[test]
fn a_count_rings_in_order_those_whose_wish_fits() {
    let (mut queues, numbers) = queue(&[2, 4, 1, 1, 1]);
    assert_eq!(queues.free(CHANNEL, 1), [2], "the waiter for 2 does not swallow the count");
    assert_eq!(queues.free(CHANNEL, 4), [0, 3], "the rung waiter has its part of the count already");
    assert_eq!(may_ask(&queues, &numbers), [true, false, true, true, false]);
    assert!(queues.free(CHANNEL, 0).is_empty() && queues.free(CHANNEL, -5).is_empty());
    assert!(queues.free("another", 9).is_empty());
}

#[test]
fn a_waiter_that_leaves_unasked_passes_its_ring_on() {
    let (mut queues, numbers) = queue(&[1, 1, 1]);
    assert_eq!(queues.free(CHANNEL, 1), [0]);
    assert_eq!(queues.leave(CHANNEL, numbers[0], None), [1, 1], "rung, and first");
    assert!(queues.may_ask(CHANNEL, numbers[1]));
    queues.asks(CHANNEL, numbers[1]);
    assert_eq!(queues.leave(CHANNEL, numbers[1], Some(0)), Vec::<usize>::new(), "it took the only permit");
    assert!(queues.may_ask(CHANNEL, numbers[2]), "the first asks from time to time");
}

#[test]
fn a_lost_answer_passes_the_ring_on() {
    let (mut queues, numbers) = queue(&[1, 1]);
    queues.asks(CHANNEL, numbers[0]);
    assert_eq!(queues.leave(CHANNEL, numbers[0], None), [1, 1]);
}

#[test]
fn what_a_grant_leaves_is_for_the_next() {
    let (mut queues, numbers) = queue(&[1, 2, 1, 1]);
    queues.asks(CHANNEL, numbers[0]);
    assert_eq!(queues.leave(CHANNEL, numbers[0], Some(3)), [1, 2]);
    queues.asks(CHANNEL, numbers[1]);
    assert_eq!(queues.answered(CHANNEL, numbers[1], 1), Vec::<usize>::new(), "the rung waiter has it");
    for number in &numbers[1..] {
        drop(queues.leave(CHANNEL, *number, Some(0)));
    }
    assert!(queues.queues.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Join(u32),
    GiveUp(usize),
    /// A woken waiter asks, if it may.
    Wake(usize),
    /// The server runs a request.
    Serve(usize),
    /// An answer arrives.
    Answer(usize),
    /// Another process gives permits back, or takes some.
    Release(i64),
    Steal(i64),
    /// The oldest message arrives.
    Hear,
}

struct Waiter {
    number: u64,
    id: usize,
    wish: u32,
    woken: bool,
    /// The request: sent, or answered with what is free and whether it was granted.
    asked: Option<Option<(bool, i64)>>,
}

#[derive(Default)]
struct Model {
    queues: CountedQueues<usize>,
    free: i64,
    messages: VecDeque<i64>,
    waiters: Vec<Waiter>,
    joined: usize,
    granted: Vec<(usize, u32)>,
    questions: usize,
}

impl Model {
    fn step(&mut self, step: Step) {
        let pick = |which: usize, model: &Self, fits: &dyn Fn(&Waiter) -> bool| {
            let fitting: Vec<usize> = (0..model.waiters.len()).filter(|&at| fits(&model.waiters[at])).collect();
            (!fitting.is_empty()).then(|| fitting[which % fitting.len()])
        };
        match step {
            Step::Join(wish) => {
                let id = self.joined;
                self.joined += 1;
                let number = self.queues.join(CHANNEL, wish, id);
                self.waiters.push(Waiter { number, id, wish, woken: true, asked: None });
            }
            Step::GiveUp(which) => {
                if let Some(at) = pick(which, self, &|waiter| waiter.asked.is_none()) {
                    let waiter = self.waiters.remove(at);
                    let wakes = self.queues.leave(CHANNEL, waiter.number, None);
                    self.wake(&wakes);
                }
            }
            Step::Wake(which) => {
                if let Some(at) = pick(which, self, &|waiter| waiter.woken && waiter.asked.is_none()) {
                    self.waiters[at].woken = false;
                    if self.queues.may_ask(CHANNEL, self.waiters[at].number) {
                        self.queues.asks(CHANNEL, self.waiters[at].number);
                        self.waiters[at].asked = Some(None);
                        self.questions += 1;
                    }
                }
            }
            Step::Serve(which) => {
                if let Some(at) = pick(which, self, &|waiter| waiter.asked == Some(None)) {
                    let granted = self.free >= i64::from(self.waiters[at].wish);
                    if granted {
                        self.free -= i64::from(self.waiters[at].wish);
                    }
                    self.waiters[at].asked = Some(Some((granted, self.free)));
                }
            }
            Step::Answer(which) => {
                if let Some(at) = pick(which, self, &|waiter| matches!(waiter.asked, Some(Some(_)))) {
                    self.answer(at);
                }
            }
            Step::Release(permits) => {
                self.free += permits;
                self.messages.push_back(self.free);
            }
            Step::Steal(permits) => self.free -= permits.min(self.free).max(0),
            Step::Hear => {
                if let Some(free) = self.messages.pop_front() {
                    let wakes = self.queues.free(CHANNEL, free);
                    self.wake(&wakes);
                }
            }
        }
    }

    fn answer(&mut self, at: usize) {
        let Some(Some((granted, free))) = self.waiters[at].asked.take() else { return };
        let (number, id, wish) = (self.waiters[at].number, self.waiters[at].id, self.waiters[at].wish);
        let wakes = if granted {
            self.granted.push((id, wish));
            self.waiters.remove(at);
            self.queues.leave(CHANNEL, number, Some(free))
        } else {
            self.queues.answered(CHANNEL, number, free)
        };
        self.wake(&wakes);
    }

    fn wake(&mut self, ids: &[usize]) {
        for waiter in &mut self.waiters {
            waiter.woken |= ids.contains(&waiter.id);
        }
    }

    /// Everything under way comes to its end.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            let before = (self.questions, self.waiters.len(), self.messages.len());
            for which in 0..self.waiters.len() + 1 {
                [Step::Hear, Step::Wake(which), Step::Serve(which), Step::Answer(which)]
                    .into_iter()
                    .for_each(|step| self.step(step));
            }
            let is_quiet =
                self.messages.is_empty() && self.waiters.iter().all(|waiter| !waiter.woken && waiter.asked.is_none());
            if is_quiet && before == (self.questions, self.waiters.len(), self.messages.len()) {
                return;
            }
        }
        panic!("the waiters never rest");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0_usize..8;
    proptest::collection::vec(
        prop_oneof![
            3 => (1_u32..4).prop_map(Step::Join),
            1 => which.clone().prop_map(Step::GiveUp),
            4 => which.clone().prop_map(Step::Wake),
            4 => which.clone().prop_map(Step::Serve),
            4 => which.prop_map(Step::Answer),
            3 => (-1_i64..4).prop_map(Step::Release),
            1 => (1_i64..3).prop_map(Step::Steal),
            3 => Just(Step::Hear),
        ],
        1..80,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Without any question by the clock, no waiter sleeps beside permits that suffice for it.
    #[test]
    fn no_waiter_sleeps_beside_a_permit(steps in steps()) {
        let mut model = Model::default();
        for step in steps {
            model.step(step);
        }
        model.settle();
        for waiter in &model.waiters {
            prop_assert!(i64::from(waiter.wish) > model.free, "{} wants {} of {}", waiter.id, waiter.wish, model.free);
        }
        let left = model.waiters.len();
        prop_assert_eq!(model.queues.queues.values().map(VecDeque::len).sum::<usize>(), left);
    }

    /// With one permit that goes from hand to hand, a release costs one question, and the order is kept.
    #[test]
    fn one_permit_costs_one_question_a_release(waiters in 1_usize..20) {
        let mut model = Model::default();
        (0..waiters).for_each(|_| model.step(Step::Join(1)));
        model.settle();
        let before = model.questions;
        for _ in 0..waiters {
            model.step(Step::Release(1));
            model.settle();
        }
        prop_assert_eq!(model.questions - before, waiters);
        prop_assert!(model.granted.iter().map(|(id, _)| *id).eq(0..waiters));
    }
}
