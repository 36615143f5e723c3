//! Tests of counted queues: examples.
#![cfg(test)]

use super::*;

const CHANNEL: &str = "c";

/// A queue with a waiter for each wish; a waiter is its index.
fn queue(wishes: &[u32]) -> (CountedQueues<&'static str, usize>, Vec<u64>) {
    let mut queues = CountedQueues::default();
    let numbers = wishes.iter().enumerate().map(|(index, wish)| queues.join(&CHANNEL, *wish, index).0).collect();
    (queues, numbers)
}

fn may_ask(queues: &CountedQueues<&'static str, usize>, numbers: &[u64]) -> Vec<bool> {
    numbers.iter().map(|number| queues.may_ask(&CHANNEL, *number)).collect()
}

#[test]
fn only_smaller_wishes_ask_beside_the_first() {
    let (queues, numbers) = queue(&[3, 3, 2, 5, 2, 1, 1]);
    assert_eq!(may_ask(&queues, &numbers), [true, false, true, false, false, true, false]);
    assert_eq!(queues.hint(&CHANNEL), [0, 2, 5]);
}

#[test]
fn a_count_rings_in_order_those_whose_wish_fits() {
    let (mut queues, numbers) = queue(&[2, 4, 1, 1, 1]);
    assert_eq!(queues.free(&CHANNEL, 1), [2], "the waiter for 2 does not swallow the count");
    assert_eq!(queues.free(&CHANNEL, 4), [0, 3], "the rung waiter has its part of the count already");
    assert_eq!(may_ask(&queues, &numbers), [true, false, true, true, false]);
    assert!(queues.free(&CHANNEL, 0).is_empty() && queues.free(&CHANNEL, -5).is_empty());
    assert!(queues.free(&"another", 9).is_empty());
}

#[test]
fn a_waiter_that_leaves_unasked_passes_its_ring_on() {
    let (mut queues, numbers) = queue(&[1, 1, 1]);
    assert_eq!(queues.free(&CHANNEL, 1), [0]);
    assert_eq!(queues.leave(&CHANNEL, numbers[0], None), [1, 1], "rung, and first");
    assert!(queues.may_ask(&CHANNEL, numbers[1]));
    queues.asks(&CHANNEL, numbers[1]);
    assert_eq!(queues.leave(&CHANNEL, numbers[1], Some(0)), Vec::<usize>::new(), "it took the only permit");
    assert!(queues.may_ask(&CHANNEL, numbers[2]), "the first asks from time to time");
}

#[test]
fn a_lost_answer_passes_the_ring_on() {
    let (mut queues, numbers) = queue(&[1, 1]);
    queues.asks(&CHANNEL, numbers[0]);
    assert_eq!(queues.leave(&CHANNEL, numbers[0], None), [1, 1]);
}

#[test]
fn what_a_grant_leaves_is_for_the_next() {
    let (mut queues, numbers) = queue(&[1, 2, 1, 1]);
    queues.asks(&CHANNEL, numbers[0]);
    assert_eq!(queues.leave(&CHANNEL, numbers[0], Some(3)), [1, 2]);
    queues.asks(&CHANNEL, numbers[1]);
    assert_eq!(queues.answered(&CHANNEL, numbers[1], 1), Vec::<usize>::new(), "the rung waiter has it");
    for number in &numbers[1..] {
        drop(queues.leave(&CHANNEL, *number, Some(0)));
    }
    assert!(queues.is_empty());
}
