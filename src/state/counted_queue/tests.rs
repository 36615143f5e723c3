//! Tests of counted queues: examples.
#![cfg(test)]

use super::*;

const CHANNEL: &str = "c";

/// A queue with a waiter for each wish; a waiter is its index.
fn queue(wishes: &[u32]) -> (CountedQueues<&'static str, usize>, Vec<u64>) {
    let mut queues = CountedQueues::default();
    let numbers = wishes.iter().enumerate().map(|(index, wish)| queues.join(&CHANNEL, *wish, index, false)).collect();
    (queues, numbers)
}

fn may_ask(queues: &CountedQueues<&'static str, usize>, numbers: &[u64]) -> Vec<bool> {
    numbers.iter().map(|number| queues.may_ask(&CHANNEL, *number)).collect()
}

#[test]
fn only_smaller_wishes_ask_beside_the_first() {
    let (mut queues, numbers) = queue(&[3, 3, 2, 5, 2, 1, 1]);
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
fn a_hint_since_the_question_outweighs_its_answer() {
    for comes_late in [false, true] {
        let (mut queues, numbers) = queue(&[1, 1]);
        if !comes_late {
            assert_eq!(queues.hint(&CHANNEL), [0]);
        }
        queues.asks(&CHANNEL, numbers[0]);
        if comes_late {
            assert_eq!(queues.hint(&CHANNEL), [0]);
        }
        assert_eq!(queues.leave(&CHANNEL, numbers[0], Some(0)).contains(&1), comes_late);
    }
}
