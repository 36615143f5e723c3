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

fn subscribe(channels: &[&str]) -> Demand {
    Demand::Subscribe(PubSub::Plain, channels.iter().map(|&channel| channel.into()).collect())
}

fn subscribed() -> (Channels<Bell>, Bell) {
    let mut channels = Channels { connected: true, ..Channels::default() };
    let bell = Bell::new();
    channels.join(&Subject::Lock(name()), "c", bell.clone());
    assert_eq!(channels.demand(at(0)), subscribe(&["c"]));
    ring(&channels.subscribed("c"));
    assert!(bell.was_rung(), "from here on nothing is missed: ask again");
    (channels, bell)
}

#[test]
fn a_lost_connection_wakes_all_and_asks_for_all_again() {
    let (mut channels, bell) = subscribed();
    ring(&channels.lost());
    assert!(bell.was_rung());
    channels.connected = true;
    assert_eq!(channels.demand(at(1)), subscribe(&["c"]));
}

#[test]
fn only_foreign_messages_are_news() {
    let (mut channels, bell) = subscribed();
    assert!(channels.expect_own("c"));
    let Message { announced, wakes, .. } = channels.message("c");
    assert_eq!(announced, None);
    ring(&wakes);
    assert!(bell.was_rung(), "also our own release wakes our waiters");
    assert_eq!(channels.message("c").announced, Some(name()));
    assert_eq!(channels.message("another").announced, None);
}

#[test]
fn a_count_wakes_no_waiter_itself() {
    let (mut channels, bell) = (Channels { connected: true, ..Channels::default() }, Bell::new());
    channels.join(&Subject::Count(name()), "c", bell.clone());
    assert_eq!(channels.demand(at(0)), subscribe(&["c"]));
    ring(&channels.subscribed("c"));
    assert!(bell.was_rung());
    let Message { announced, counted, wakes } = channels.message("c");
    assert!(announced == Some(name()) && counted == announced && wakes.is_empty());
    assert!(channels.expect_own("c"));
    let Message { announced, counted, .. } = channels.message("c");
    assert!(announced.is_none() && counted == Some(name()), "an own release is no news");
    let other = LockName::new("another name of the channel").unwrap();
    channels.join(&Subject::Count(other), "c", Bell::new());
    assert_eq!(channels.message("c").wakes.len(), 1, "the count is that of the first name");
    channels.leave("c", 2, at(0));
    channels.leave("c", 1, at(0));
    assert!(matches!(channels.demand(at(999)), Demand::Rest(_)), "the channel stays for the next waiter");
}

#[test]
fn a_channel_and_the_connection_linger_after_the_last_waiter() {
    let (mut channels, _bell) = subscribed();
    channels.leave("c", 1, at(0));
    assert!(matches!(channels.demand(at(999)), Demand::Rest(_)));
    assert_eq!(channels.demand(at(1_000)), Demand::Unsubscribe(PubSub::Plain, vec!["c".into()]));
    assert!(channels.unsubscribed("c", at(1_000)).is_empty());
    assert_eq!(channels.demand(at(1_001)), Demand::Rest(at(4_001)));
    assert_eq!(channels.demand(at(4_001)), Demand::Close);
}

#[test]
fn one_refused_channel_does_not_cost_the_others() {
    let mut channels = Channels { connected: true, ..Channels::default() };
    for channel in ["a", "b"] {
        channels.join(&Subject::Lock(name()), channel, Bell::new());
    }
    let Demand::Subscribe(_, both) = channels.demand(at(0)) else { panic!("nothing asked") };
    let refusal = Refusal::for_test("NOPERM");
    for one in &both {
        ring(&if one == "a" { channels.refused(one, refusal.clone()) } else { channels.subscribed("b") })
    }
    assert!(matches!(channels.demand(at(2)), Demand::Rest(_)));
    assert_eq!(channels.channels["b"].state, State::Subscribed);
    assert_eq!(channels.channels["a"].refusal, Some(refusal));
}

#[test]
fn sharded_channels_are_requested_one_by_one() {
    let mut channels = Channels::default();
    channels.connected(PubSub::Sharded);
    for channel in ["1:{a}", "2:{a}", "1:{b}", INVALIDATIONS] {
        channels.join(&Subject::Lock(name()), channel, Bell::new());
    }
    // The server publishes changed keys by plain pub/sub.
    assert_eq!(channels.demand(at(0)), subscribe(&[INVALIDATIONS]));
    let Demand::Subscribe(PubSub::Sharded, mut asked) = channels.demand(at(0)) else { panic!("not sharded") };
    asked.sort();
    assert_eq!(asked, ["1:{a}", "1:{b}", "2:{a}"]);
    assert!(matches!(channels.demand(at(0)), Demand::Rest(_)));
}

#[test]
fn a_slot_that_leaves_wakes_the_waiters() {
    let (mut channels, bell) = subscribed();
    ring(&channels.unsubscribed("c", at(0)));
    assert!(bell.was_rung(), "the server ended the subscription unasked");
    assert_eq!(channels.is_live("c"), Ok(false));
    assert_eq!(channels.demand(at(1)), Demand::Rest(at(0).after(ELSEWHERE_PAUSE)));
    let again = at(0).after(ELSEWHERE_PAUSE);
    assert_eq!(channels.demand(again), subscribe(&["c"]), "the slot may have come back");
    ring(&channels.elsewhere("c", again));
    assert!(bell.was_rung());
    channels.leave("c", 1, again);
    assert_eq!(
        channels.demand(again.after(ELSEWHERE_PAUSE)),
        Demand::Rest(again.after(ELSEWHERE_PAUSE + CONNECTION_LINGER))
    );
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
        2 => (0_usize..3, any::<bool>()).prop_map(|(which, away)| Step::Move(which, away)),
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
    fn every_waiter_is_heard_of_and_nothing_is_left(sharded in any::<bool>(), steps in steps()) {
        let mut model = Model::new(if sharded { PubSub::Sharded } else { PubSub::Plain });
        steps.into_iter().for_each(|step| model.step(step));
        model.settle();
        model.end();
    }
}
