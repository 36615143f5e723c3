//! Tests of tracking: examples of connections that open and break, and random steps of a server and its network.
#![cfg(test)]

use proptest::prelude::*;

use super::*;
use crate::error::Refusal;

fn at(millis: u64) -> Instant {
    Instant::from_millis(1_000_000 + millis)
}

fn open(connection: u64) -> TrackingChannel {
    TrackingChannel::Open { connection, identity: Some(Identity::new(connection + 100)) }
}

fn refused() -> TrackingChannel {
    TrackingChannel::Refused(Error::refused(Refusal::for_test("NOPERM")))
}

/// Both connections are open, and all holds were asked about.
fn live() -> Watch {
    let mut watch = Watch::new(at(0));
    watch.begin();
    assert!(matches!(watch.next(at(0), Some(1), open(1)), WatchStep::Track(of) if of.id == 101));
    watch.tracked();
    assert!(
        matches!(watch.next(at(0), Some(1), open(1)), WatchStep::Ask(AllHolds::Look)),
        "what was before may have been missed"
    );
    assert!(matches!(watch.next(at(0), Some(1), open(1)), WatchStep::Rest(None)));
    assert!(watch.is_live(Some(1)));
    watch
}

#[test]
fn an_unreachable_server_is_tried_several_times_a_second() {
    let mut watch = live();
    watch.lost(at(0));
    let (mut now, mut tries) = (at(0), vec![]);
    while now < at(10_000) {
        match watch.next(now, None, TrackingChannel::Closed) {
            WatchStep::Open => {
                tries.push(now);
                watch.rest(now);
            }
            WatchStep::Rest(Some(until)) => now = until,
            step => panic!("{step:?}"),
        }
    }
    assert!((30..=50).contains(&tries.len()), "{}", tries.len());
    let longest = tries.windows(2).map(|pair| pair[0].until(pair[1])).max();
    assert!(longest <= Some(LONGEST_PAUSE), "{longest:?}");
}

#[test]
fn a_missing_right_is_reported_once_and_tried_per_connection() {
    let mut watch = Watch::new(at(0));
    watch.begin();
    assert!(matches!(watch.next(at(0), Some(1), refused()), WatchStep::Complain(_)));
    assert!(matches!(watch.next(at(0), Some(1), refused()), WatchStep::Rest(None)));
    assert!(matches!(watch.next(at(1), Some(1), open(2)), WatchStep::Track(of) if of.id == 102), "now it may listen");
    assert!(!watch.untracked(), "said before");
    assert!(matches!(watch.next(at(2), Some(1), open(2)), WatchStep::Rest(None)), "and it is not asked again");
    watch.lost(at(3));
    assert!(
        matches!(watch.next(at(3), Some(1), refused()), WatchStep::Ask(AllHolds::Renew)),
        "what is missing helps nobody"
    );
    assert!(matches!(watch.next(at(500), Some(1), open(3)), WatchStep::Track(of) if of.id == 103));
    watch.tracked();
    assert!(watch.is_live(Some(1)));
    watch.lost(at(600));
    assert!(matches!(watch.next(at(600), Some(1), refused()), WatchStep::Complain(_)), "it was possible meanwhile");
}

#[test]
fn an_ear_at_another_server_is_made_anew_once() {
    let mut watch = live();
    assert!(matches!(watch.next(at(10), None, open(1)), WatchStep::Open));
    assert!(matches!(watch.next(at(10), Some(2), open(1)), WatchStep::Track(of) if of.id == 101));
    assert!(watch.wrong_server(at(10)), "the name leads to another server by now");
    watch.lost(at(10));
    assert!(matches!(watch.next(at(60), Some(2), open(2)), WatchStep::Track(of) if of.id == 102));
    assert!(!watch.wrong_server(at(60)), "and to one or the other all the time");
    assert!(watch.untracked());
    let WatchStep::Rest(Some(later)) = watch.next(at(60), Some(2), open(2)) else { panic!("it failed a moment ago") };
    assert!(matches!(watch.next(later, Some(2), open(2)), WatchStep::Ask(AllHolds::Renew)), "all the same");
    assert!(matches!(watch.next(at(900), Some(2), open(3)), WatchStep::Track(of) if of.id == 103));
    watch.tracked();
    watch.lost(at(1_000));
    assert!(matches!(watch.next(at(1_500), Some(2), open(4)), WatchStep::Track(of) if of.id == 104));
    assert!(watch.wrong_server(at(1_500)), "it had led to the right one meanwhile");
}

#[test]
fn a_flush_is_verified_at_once_and_endless_flushes_sparingly() {
    let mut watch = live();
    watch.flushed();
    assert!(matches!(watch.next(at(10), Some(1), open(1)), WatchStep::Ask(AllHolds::Look)));
    watch.asked(at(30), Duration::from_millis(20));
    watch.flushed();
    assert!(matches!(watch.next(at(30), Some(1), open(1)), WatchStep::Rest(Some(until)) if until == at(110)));
    assert!(matches!(watch.next(at(110), Some(1), open(1)), WatchStep::Ask(AllHolds::Look)));
}

#[test]
fn a_few_losses_verify_all_holds_until_none_is_lost() {
    let mut watch = live();
    for second in 0..10 {
        watch.found_gone(at(second * 1_000), 2, false);
        assert!(matches!(watch.next(at(second * 1_000), Some(1), open(1)), WatchStep::Rest(None)), "two now and then");
    }
    watch.found_gone(at(9_500), 1, false);
    for (now, found) in [(9_500, 5), (9_600, 1)] {
        assert!(matches!(watch.next(at(now), Some(1), open(1)), WatchStep::Ask(AllHolds::Look)));
        watch.found_gone(at(now), found, true);
    }
    assert!(matches!(watch.next(at(9_700), Some(1), open(1)), WatchStep::Ask(AllHolds::Look)));
    watch.found_gone(at(9_700), 0, true);
    assert!(matches!(watch.next(at(9_800), Some(1), open(1)), WatchStep::Rest(None)));
}

#[derive(Clone, Debug)]
enum Act {
    BreakLink,
    BreakChannel,
    ChannelReturns,
    Flush,
    Forbid(bool),
    Reach(bool),
    Pass(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        2 => Just(Act::BreakLink),
        2 => Just(Act::BreakChannel),
        3 => Just(Act::ChannelReturns),
        1 => Just(Act::Flush),
        1 => any::<bool>().prop_map(Act::Forbid),
        2 => any::<bool>().prop_map(Act::Reach),
        4 => (0_u64..700).prop_map(Act::Pass),
    ];
    proptest::collection::vec(act, 1..60)
}

/// A server and its network.
struct Model {
    watch: Watch,
    now: Instant,
    link: Option<u64>,
    links: u64,
    channel: Option<u64>,
    ears: u64,
    reachable: bool,
    forbidden: bool,
    /// The tracking state on the server: the reading connection, and the connection that gets the messages.
    tracked: Option<(u64, u64)>,
    /// Whether a change may have been missed since the last request about all holds.
    unsure: bool,
    complaints: usize,
}

impl Model {
    /// The work of the watchdog when woken.
    fn turn(&mut self) {
        for _ in 0..20 {
            let channel = match self.channel {
                Some(_) if self.forbidden => refused(),
                Some(connection) => open(connection),
                None => TrackingChannel::Closed,
            };
            match self.watch.next(self.now, self.link, channel) {
                WatchStep::Open if self.reachable => {
                    self.links += 1;
                    self.link = Some(self.links);
                }
                WatchStep::Open => self.watch.rest(self.now),
                WatchStep::Track(identity) => {
                    let channel = self.channel.expect("an open channel");
                    assert_eq!(identity.id, channel + 100);
                    self.tracked = self.link.map(|link| (link, channel));
                    self.watch.tracked();
                }
                WatchStep::Complain(_) => self.complaints += 1,
                WatchStep::Ask(_) => {
                    assert!(self.link.is_some());
                    self.unsure = false;
                    self.watch.asked(self.now, Duration::from_millis(1));
                }
                WatchStep::Rest(_) => return,
            }
        }
        panic!("it does not come to rest");
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::BreakLink => {
                self.unsure |= self.link.take().is_some();
                self.tracked = None;
            }
            Act::BreakChannel if self.channel.is_some() => {
                (self.channel, self.tracked, self.unsure) = (None, None, true);
                self.watch.lost(self.now);
            }
            Act::ChannelReturns if self.channel.is_none() && self.reachable => {
                self.ears += 1;
                self.channel = Some(self.ears);
            }
            Act::Flush => {
                self.unsure |= self.tracked.is_some();
                if self.tracked.is_some() {
                    self.watch.flushed();
                }
            }
            Act::Forbid(forbidden) if self.channel.is_none() => self.forbidden = *forbidden,
            Act::Reach(reachable) => self.reachable = *reachable,
            Act::Pass(millis) => self.now = self.now.after(Duration::from_millis(*millis)),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// For any failures in any order: holds that count as watched are watched; and once the server is reachable, all
    /// holds are asked about within a second, and watched where the server allows.
    #[test]
    fn a_possibly_missed_event_is_verified_soon(acts in acts()) {
        let now = at(0);
        let mut model = Model {
            watch: Watch::new(now), now, link: None, links: 0, channel: None, ears: 0, reachable: true, forbidden: false,
            tracked: None, unsure: false, complaints: 0,
        };
        model.watch.begin();
        for act in &acts {
            model.act(act);
            model.turn();
            if model.watch.is_live(model.link) {
                let (link, channel) = model.tracked.expect("it is watched");
                prop_assert_eq!((Some(link), Some(channel)), (model.link, model.channel));
            }
        }
        model.reachable = true;
        model.act(&Act::ChannelReturns);
        for _ in 0..100 {
            model.act(&Act::Pass(10));
            model.turn();
        }
        prop_assert!(!model.unsure);
        prop_assert_eq!(model.watch.is_live(model.link), !model.forbidden);
    }
}
