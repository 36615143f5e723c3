//! Tests of channels: examples, and random steps against the model of a server.
#![cfg(test)]

use proptest::prelude::*;

use super::model::*;
use super::*;
use crate::bell::Bell;

fn name() -> LockName {
    LockName::new("n").unwrap()
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(1_000_000 + millis)
}

fn subscribed() -> (Topics<Bell>, Bell) {
    let mut topics = Topics { connected: true, ..Topics::default() };
    let bell = Bell::new();
    topics.join(Some(&name()), "c", bell.clone());
    assert_eq!(topics.demand(at(0)), Demand::Subscribe(vec!["c".into()]));
    ring(&topics.subscribed("c"));
    assert!(bell.was_rung(), "from here on nothing is missed: ask again");
    (topics, bell)
}

#[test]
fn no_request_is_sent_before_the_connection_is_ready() {
    let mut topics = Topics::default();
    topics.join(Some(&name()), "c", Bell::new());
    assert!(matches!(topics.demand(at(0)), Demand::Rest(_)));
}

#[test]
fn a_lost_connection_wakes_all_and_asks_for_all_again() {
    let (mut topics, bell) = subscribed();
    ring(&topics.lost());
    assert!(bell.was_rung());
    topics.connected = true;
    assert_eq!(topics.demand(at(1)), Demand::Subscribe(vec!["c".into()]));
}

#[test]
fn only_foreign_messages_are_news() {
    let (mut topics, bell) = subscribed();
    assert!(topics.expect_own("c"));
    let Message { announced, wakes } = topics.message("c");
    assert_eq!(announced, None);
    ring(&wakes);
    assert!(bell.was_rung(), "also our own release wakes our waiters");
    assert_eq!(topics.message("c").announced, Some(name()));
    assert_eq!(topics.message("another").announced, None);
}

#[test]
fn a_channel_and_the_connection_linger_after_the_last_waiter() {
    let (mut topics, _bell) = subscribed();
    topics.leave("c", 1, at(0));
    assert!(matches!(topics.demand(at(999)), Demand::Rest(_)));
    assert_eq!(topics.demand(at(1_000)), Demand::Unsubscribe(vec!["c".into()]));
    topics.unsubscribed("c");
    assert_eq!(topics.demand(at(1_001)), Demand::Rest(at(4_001)));
    assert_eq!(topics.demand(at(4_001)), Demand::Close);
}

#[test]
fn a_waiter_that_comes_while_a_channel_is_left_gets_it_anew() {
    let (mut topics, bell) = subscribed();
    topics.leave("c", 1, at(0));
    assert!(matches!(topics.demand(at(2_000)), Demand::Unsubscribe(_)));
    topics.join(Some(&name()), "c", bell.clone());
    assert_eq!(topics.demand(at(2_001)), Demand::Subscribe(vec!["c".into()]));
    topics.unsubscribed("c");
    ring(&topics.subscribed("c"));
    assert_eq!(topics.topics["c"].state, State::Subscribed);
}

#[test]
fn one_refused_channel_does_not_cost_the_others() {
    let mut topics = Topics { connected: true, ..Topics::default() };
    for channel in ["a", "b"] {
        topics.join(Some(&name()), channel, Bell::new());
    }
    let Demand::Subscribe(both) = topics.demand(at(0)) else { panic!("nothing asked") };
    let refusal = Refusal::for_test("NOPERM");
    ring(&topics.refused(&both, &refusal));
    for _ in 0..2 {
        let Demand::Subscribe(one) = topics.demand(at(1)) else { panic!("not asked again") };
        assert_eq!(one.len(), 1);
        ring(&if one[0] == "a" { topics.refused(&one, &refusal) } else { topics.subscribed("b") })
    }
    assert!(matches!(topics.demand(at(2)), Demand::Rest(_)));
    assert_eq!(topics.topics["b"].state, State::Subscribed);
    assert_eq!(topics.topics["a"].refusal, Some(refusal));
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..3).prop_map(Step::Join),
        3 => (0_usize..8).prop_map(Step::Leave),
        6 => Just(Step::Look),
        5 => Just(Step::Serve),
        5 => Just(Step::Hear),
        2 => (0_usize..3).prop_map(Step::Publish),
        2 => (0_usize..3, any::<bool>()).prop_map(|(which, announced)| Step::Release(which, announced)),
        2 => Just(Step::Announce),
        1 => Just(Step::Lose),
        2 => Just(Step::Connect),
        1 => (0_usize..3, any::<bool>()).prop_map(|(which, forbidden)| Step::Forbid(which, forbidden)),
        3 => (0_u64..1_500).prop_map(Step::Pass),
        2 => Just(Step::Settle),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// For any late or lost messages: no waiter waits on a channel that is not subscribed, any possibly missed
    /// message rings, and in the end no channel is left. The checks are in the model.
    #[test]
    fn every_waiter_is_heard_of_and_nothing_is_left(steps in steps()) {
        let mut model = Model::new();
        steps.into_iter().for_each(|step| model.step(step));
        model.settle();
        model.end();
    }
}
