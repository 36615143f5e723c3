//! What one hold promised to its guards, and until when it may be believed; decides, does nothing.
//!
//! | phase     | means                                         | leaves it by                        |
//! |-----------|-----------------------------------------------|-------------------------------------|
//! | Live      | confirmed, and its deadline has not come      | last release, loss, keep            |
//! | Releasing | the last release is on its way                | settled                             |
//! | Done      | given back, or left to its time to live       | never                               |
//! | Lost      | Redis said so, or its deadline passed         | never                               |

use std::time::Duration;

use crate::error::Loss;
use crate::script::{Counts, Side};
use crate::time::{Instant, Lease};

/// The account of one hold.
#[derive(Debug)]
pub(crate) struct Ledger {
    watchdog: Lease,
    guards: Vec<Entry>,
    next_guard: u64,
    /// When the key ends, by what Redis confirmed last.
    end: Instant,
    /// Until when this client believes that it holds.
    good_until: Instant,
    /// Raised by hand, for the guards there are.
    extended: Option<Instant>,
    /// Left to its time to live by a guard that is gone; binds also after the last one.
    kept: Sides,
    phase: Phase,
    cut: Option<Cut>,
    /// When a renewal that got no answer is tried again.
    retry_at: Option<Instant>,
}

/// What one guard was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Renewed until it is dropped, or until a moment that its owner chose.
    Renewed { until: Option<Instant> },
    /// Never renewed.
    Leased { until: Instant },
}

/// Names one guard of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuardNumber(u64);

/// A partial release that lowers the time to live. What was sent before its answer may have been
/// carried out before it, and then be lowered by it.
#[derive(Clone, Copy, Debug)]
struct Cut {
    lease: Lease,
    /// When it was answered; `None` while it may still come.
    over: Option<Instant>,
}

/// Until when each side was left to its time to live.
#[derive(Debug, Default)]
struct Sides {
    exclusive: Option<Instant>,
    shared: Option<Instant>,
}

impl Sides {
    fn end(&self, side: Side) -> Option<Instant> {
        match side {
            Side::Exclusive => self.exclusive,
            Side::Shared => self.shared,
        }
    }

    fn raise(&mut self, side: Side, end: Instant) {
        let kept = match side {
            Side::Exclusive => &mut self.exclusive,
            Side::Shared => &mut self.shared,
        };
        *kept = (*kept).max(Some(end));
    }

    fn latest(&self) -> Option<Instant> {
        self.exclusive.max(self.shared)
    }

    fn is_over(&self, now: Instant) -> bool {
        self.latest().is_none_or(|end| end <= now)
    }
}

#[derive(Debug)]
struct Entry {
    number: GuardNumber,
    side: Side,
    promise: Promise,
    manual: bool,
}

/// Where a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Live,
    Releasing,
    Done,
    Lost(Loss),
}

/// What giving a guard back asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Write the count and the time to live that remain.
    Partial { counts: Counts, lease: Lease },
    /// Open the lock.
    Last,
    /// It was lost before; there may be something to clear away.
    Lost(Loss),
    /// This guard was given back already.
    Unknown,
}

impl Ledger {
    /// A hold that Redis just granted, and its first guard.
    pub(crate) fn granted(
        watchdog: Lease,
        sent: Instant,
        lease: Lease,
        side: Side,
        promise: Promise,
    ) -> (Self, GuardNumber) {
        let mut ledger = Self {
            watchdog,
            guards: vec![],
            next_guard: 0,
            end: sent.after(lease.duration()),
            good_until: lease.good_until(sent),
            extended: None,
            kept: Sides::default(),
            phase: Phase::Live,
            cut: None,
            retry_at: None,
        };
        let guard = ledger.admit(side, promise);
        (ledger, guard)
    }

    /// Where the hold stands at `now`. A deadline that has passed is a loss from here on.
    pub(crate) fn look(&mut self, now: Instant) -> Phase {
        if self.phase == Phase::Live && now >= self.good_until {
            self.phase = Phase::Lost(Loss::Expired);
        }
        self.phase
    }

    /// The counts that a re-entry on this side is to write, or the loss that forbids it.
    pub(crate) fn counts_after_reentry(&mut self, now: Instant, side: Side) -> Result<Counts, Loss> {
        if let Phase::Lost(loss) = self.look(now) {
            return Err(loss);
        }
        let mut counts = self.counts_on_wire(now);
        *counts.of_mut(side) = self.counts().of(side) + 1;
        Ok(counts)
    }

    /// Redis confirmed a re-entry that was sent at `sent`. A loss that came to light meanwhile stays one.
    pub(crate) fn reentered(
        &mut self,
        now: Instant,
        sent: Instant,
        lease: Lease,
        side: Side,
        promise: Promise,
    ) -> Result<GuardNumber, Loss> {
        self.confirmed(sent, lease);
        match self.look(now) {
            Phase::Lost(loss) => Err(loss),
            _ => Ok(self.admit(side, promise)),
        }
    }

    /// Redis confirmed that the key lives at least for `lease` from `sent` on.
    pub(crate) fn confirmed(&mut self, sent: Instant, lease: Lease) {
        let sure = match self.cut {
            Some(cut) if cut.over.is_none_or(|over| sent < over) => lease.min(cut.lease),
            _ => lease,
        };
        self.end = self.end.max(sent.after(sure.duration()));
        if self.phase == Phase::Live {
            self.good_until = self.good_until.max(sure.good_until(sent));
        }
        self.retry_at = None;
    }

    /// The server's clock ran ahead of ours by this much; the key may end earlier than we thought.
    pub(crate) fn server_ran_ahead(&mut self, by: Duration) {
        self.good_until = self.good_until.before(by);
        self.end = self.end.before(by);
    }

    /// Every request that lowers the time to live has been answered, or never will be carried out.
    pub(crate) fn cut_is_over(&mut self, now: Instant) {
        if let Some(cut) = &mut self.cut {
            cut.over.get_or_insert(now);
        }
    }

    /// A time to live asked for by hand was confirmed.
    pub(crate) fn extended(&mut self, sent: Instant, lease: Lease) {
        self.confirmed(sent, lease);
        self.extended = self.extended.max(Some(sent.after(lease.duration())));
    }

    /// Gives one guard back.
    pub(crate) fn release(&mut self, guard: GuardNumber, now: Instant) -> Release {
        let phase = self.look(now);
        if !self.dismiss(guard) {
            return Release::Unknown;
        }
        match phase {
            Phase::Lost(loss) => return Release::Lost(loss),
            Phase::Releasing | Phase::Done => return Release::Unknown,
            Phase::Live => {}
        }
        if self.guards.is_empty() && self.kept.is_over(now) {
            self.phase = Phase::Releasing;
            return Release::Last;
        }
        let counts = self.counts_on_wire(now);
        let lease = Lease::until(now, self.promised(now));
        let under_way = self.cut.filter(|cut| cut.over.is_none());
        self.cut = Some(Cut { lease: under_way.map_or(lease, |cut| cut.lease.min(lease)), over: None });
        if self.guards.is_empty() {
            self.phase = Phase::Done;
        }
        // Believed at once: whether the request arrives or not, it does not end before this.
        self.good_until = self.good_until.min(lease.good_until(now));
        self.end = self.end.min(now.after(lease.duration()));
        Release::Partial { counts, lease }
    }

    /// Takes a guard out and leaves its part of the hold to its time to live.
    pub(crate) fn keep(&mut self, guard: GuardNumber, now: Instant) {
        let Some(entry) = self.guards.iter().find(|entry| entry.number == guard) else { return };
        let end = match entry.promise {
            Promise::Leased { until } => until,
            Promise::Renewed { .. } => self.end,
        };
        self.kept.raise(entry.side, end);
        self.dismiss(guard);
        if self.guards.is_empty() && self.look(now) == Phase::Live {
            self.phase = Phase::Done;
        }
    }

    /// Marks a guard as left to the lock's own `unlock`.
    pub(crate) fn make_manual(&mut self, guard: GuardNumber) {
        if let Some(entry) = self.guards.iter_mut().find(|entry| entry.number == guard) {
            entry.manual = true;
        }
    }

    /// The newest guard of this side left to `unlock`.
    pub(crate) fn newest_manual(&self, side: Side) -> Option<GuardNumber> {
        self.guards.iter().rev().find(|entry| entry.manual && entry.side == side).map(|entry| entry.number)
    }

    /// The lease to renew this hold with, if it is to be renewed.
    pub(crate) fn renewal(&mut self, now: Instant) -> Option<Lease> {
        let renewed = |promise| match promise {
            Promise::Renewed { until } => until.is_none_or(|until| until > now),
            Promise::Leased { .. } => false,
        };
        let wanted = self.look(now) == Phase::Live && self.guards.iter().any(|entry| renewed(entry.promise));
        wanted.then_some(self.watchdog)
    }

    /// A renewal got no usable answer; try again at `retry_at`.
    pub(crate) fn renewal_failed(&mut self, retry_at: Instant) {
        self.retry_at = Some(retry_at);
    }

    /// When a failed renewal is to be tried again.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// The hold is lost. A release that is under way, or done, is not undone by that.
    pub(crate) fn lose(&mut self, loss: Loss) {
        if self.phase == Phase::Live {
            self.phase = Phase::Lost(loss);
        }
    }

    /// The last release found nothing to give back: the hold had been lost before, unnoticed.
    pub(crate) fn release_found_lost(&mut self, loss: Loss) {
        if self.phase == Phase::Releasing {
            self.phase = Phase::Lost(loss);
        }
    }

    /// The last release is over, however it ended.
    pub(crate) fn settled(&mut self) {
        if self.phase == Phase::Releasing {
            self.phase = Phase::Done;
        }
    }

    /// How many guards there are, by side.
    pub(crate) fn counts(&self) -> Counts {
        let exclusive = self.guards.iter().filter(|entry| entry.side == Side::Exclusive).count();
        Counts { exclusive, shared: self.guards.len() - exclusive }
    }

    /// The counts as they are to stand in Redis: what was kept is held by nobody here, yet held.
    fn counts_on_wire(&self, now: Instant) -> Counts {
        let mut counts = self.counts();
        for side in [Side::Exclusive, Side::Shared] {
            if self.kept.end(side).is_some_and(|end| end > now) {
                let count = counts.of_mut(side);
                *count = (*count).max(1);
            }
        }
        counts
    }

    /// Whether no guard is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Until when this client believes that it holds.
    pub(crate) fn good_until(&self) -> Instant {
        self.good_until
    }

    /// When the key ends by itself.
    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    fn admit(&mut self, side: Side, promise: Promise) -> GuardNumber {
        self.next_guard += 1;
        let number = GuardNumber(self.next_guard);
        self.guards.push(Entry { number, side, promise, manual: false });
        number
    }

    fn dismiss(&mut self, guard: GuardNumber) -> bool {
        let before = self.guards.len();
        self.guards.retain(|entry| entry.number != guard);
        self.guards.len() < before
    }

    /// The latest end that anybody was promised.
    fn promised(&self, now: Instant) -> Instant {
        let of_guard = |entry: &Entry| match entry.promise {
            Promise::Leased { until } => until,
            Promise::Renewed { until: Some(until) } if until <= now => self.end,
            Promise::Renewed { .. } => now.after(self.watchdog.duration()),
        };
        let guards = self.guards.iter().map(of_guard);
        let by_hand = self.extended.filter(|_| !self.guards.is_empty());
        guards.chain(by_hand).chain(self.kept.latest()).max().unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_hold_is_believed_until_its_lease_less_the_margin() {
        let (mut ledger, guard) = Ledger::granted(lease(30_000), START, lease(2_000), Side::Exclusive, leased(2_000));
        assert_eq!(ledger.look(at(1_949)), Phase::Live);
        assert_eq!(ledger.look(at(1_950)), Phase::Lost(Loss::Expired));
        assert_eq!(ledger.look(at(0)), Phase::Lost(Loss::Expired), "a loss is never taken back");
        ledger.confirmed(at(2_000), lease(30_000));
        assert_eq!(ledger.release(guard, at(2_000)), Release::Lost(Loss::Expired));
    }

    #[test]
    fn a_shorter_inner_lease_shortens_nothing() {
        let (mut ledger, outer) = watched();
        let inner = ledger.reentered(at(10), at(10), lease(500), Side::Exclusive, leased(510)).unwrap();
        assert_eq!(ledger.good_until(), at(29_700));
        assert_eq!(ledger.release(inner, at(20)), Release::Partial { counts: ONE, lease: lease(30_000) });
        assert_eq!(ledger.release(outer, at(30)), Release::Last);
        assert_eq!(ledger.release(outer, at(30)), Release::Unknown);
    }

    #[test]
    fn a_finished_inner_lease_of_an_hour_does_not_outlive_its_guard() {
        let (mut ledger, _outer) = watched();
        let inner = ledger.reentered(at(10), at(10), lease(3_600_000), Side::Exclusive, leased(3_600_010)).unwrap();
        assert_eq!(ledger.release(inner, at(20)), Release::Partial { counts: ONE, lease: lease(30_000) });
        assert_eq!(ledger.end(), at(30_020));
    }

    #[test]
    fn guards_dropped_out_of_order_leave_what_the_others_were_promised() {
        let (mut ledger, outer) = Ledger::granted(lease(30_000), START, lease(5_000), Side::Exclusive, leased(5_000));
        let inner = ledger.reentered(at(100), at(100), lease(1_000), Side::Exclusive, leased(1_100)).unwrap();
        assert_eq!(ledger.release(outer, at(200)), Release::Partial { counts: ONE, lease: lease(900) });
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
    fn max_hold_ends_the_renewal_and_then_the_hold() {
        let (mut ledger, _) = Ledger::granted(
            lease(30_000),
            START,
            lease(30_000),
            Side::Exclusive,
            Promise::Renewed { until: Some(at(20_000)) },
        );
        assert!(ledger.renewal(at(19_999)).is_some());
        ledger.confirmed(at(10_000), lease(30_000));
        assert!(ledger.renewal(at(20_000)).is_none());
        assert_eq!(ledger.look(at(39_700)), Phase::Lost(Loss::Expired));
    }

    #[test]
    fn a_kept_hold_is_left_to_its_time_to_live() {
        let (mut ledger, guard) = watched();
        ledger.keep(guard, at(10));
        assert_eq!(ledger.look(at(20)), Phase::Done);
        assert_eq!(ledger.renewal(at(20)), None);
        assert_eq!(ledger.release(guard, at(30)), Release::Unknown);
    }

    #[test]
    fn what_an_inner_guard_kept_outlives_the_outer_release() {
        let (mut ledger, outer) = watched();
        let inner = ledger.reentered(at(10), at(10), lease(60_000), Side::Exclusive, leased(60_010)).unwrap();
        ledger.keep(inner, at(20));
        assert_eq!(ledger.look(at(20)), Phase::Live);
        assert_eq!(ledger.release(outer, at(30)), Release::Partial { counts: ONE, lease: lease(59_980) });
        assert_eq!(ledger.look(at(31)), Phase::Done);
    }

    #[test]
    fn a_side_that_was_kept_stays_taken_when_the_other_side_is_given_back() {
        let (mut ledger, write) = watched();
        let reads: Vec<_> =
            (0..2).map(|_| ledger.reentered(at(1), at(1), lease(30_000), Side::Shared, RENEWED).unwrap()).collect();
        ledger.keep(write, at(10));
        let both = Counts { exclusive: 1, shared: 1 };
        assert!(matches!(ledger.release(reads[0], at(20)), Release::Partial { counts, .. } if counts == both));
        assert_eq!(ledger.counts_after_reentry(at(25), Side::Shared), Ok(Counts { exclusive: 1, shared: 2 }));
        assert!(matches!(ledger.release(reads[1], at(30)), Release::Partial { counts, .. } if counts == ONE));
        assert_eq!(ledger.look(at(31)), Phase::Done);
    }

    #[test]
    fn a_release_under_way_cannot_be_lost() {
        let (mut ledger, guard) = watched();
        assert_eq!(ledger.release(guard, at(10)), Release::Last);
        ledger.lose(Loss::Gone);
        assert_eq!(ledger.look(at(40_000)), Phase::Releasing);
        assert_eq!(ledger.renewal(at(20)), None);
        ledger.settled();
        assert_eq!(ledger.look(at(40_000)), Phase::Done);
    }

    #[test]
    fn a_server_clock_that_ran_ahead_cuts_the_deadline() {
        let (mut ledger, _) = watched();
        ledger.confirmed(at(10_000), lease(30_000));
        ledger.server_ran_ahead(ms(20_000));
        assert_eq!(ledger.good_until(), at(19_700));
    }

    #[test]
    fn what_was_confirmed_before_a_release_was_answered_is_bounded_by_it() {
        let (mut ledger, outer) = watched();
        let inner = ledger.reentered(at(10), at(10), lease(3_000), Side::Exclusive, leased(3_010)).unwrap();
        // A renewal goes out, then the release; the renewal's answer comes last.
        assert_eq!(ledger.release(outer, at(100)), Release::Partial { counts: ONE, lease: lease(2_910) });
        ledger.confirmed(at(90), lease(30_000));
        assert_eq!(ledger.good_until(), lease(2_910).good_until(at(100)));
        ledger.cut_is_over(at(200));
        ledger.confirmed(at(150), lease(30_000));
        assert_eq!(ledger.good_until(), lease(2_910).good_until(at(150)), "it may have run before the release");
        ledger.confirmed(at(201), lease(30_000));
        assert_eq!(ledger.good_until(), at(29_901));
        assert_eq!(ledger.release(inner, at(300)), Release::Last);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Reenter { leased_ms: Option<u64> },
        Release { which: usize },
        Renew,
        Lose,
        Pass { millis: u64 },
    }

    fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
        use proptest::prelude::*;
        let step = prop_oneof![
            3 => proptest::option::of(1_u64..100_000).prop_map(|leased_ms| Step::Reenter { leased_ms }),
            3 => (0_usize..6).prop_map(|which| Step::Release { which }),
            2 => Just(Step::Renew),
            1 => Just(Step::Lose),
            4 => (0_u64..20_000).prop_map(|millis| Step::Pass { millis }),
        ];
        proptest::collection::vec(step, 1..40)
    }

    proptest::proptest! {
        /// Against a server that does what the scripts do, under every order of steps: a hold that
        /// is believed is there, the counts agree, and a loss stays a loss.
        #[test]
        fn what_is_believed_is_so_on_the_server(steps in steps()) {
            let mut now = START;
            // The server's side: when the key ends, and the count in it.
            let (mut key_ends, mut key_count) = (now.after(ms(30_000)), 1);
            let (mut ledger, first) = watched();
            let mut guards = vec![first];
            let mut was_lost = false;
            for step in steps {
                match step {
                    Step::Pass { millis } => now = now.after(ms(millis)),
                    Step::Lose => {
                        ledger.lose(Loss::Gone);
                        key_ends = now;
                    }
                    Step::Renew => if let Some(lease) = ledger.renewal(now) {
                        key_ends = key_ends.max(now.after(lease.duration()));
                        ledger.confirmed(now, lease);
                    },
                    Step::Reenter { leased_ms } => {
                        if guards.is_empty() { continue }
                        let Ok(counts) = ledger.counts_after_reentry(now, Side::Exclusive) else { continue };
                        let lease = lease(leased_ms.unwrap_or(30_000));
                        key_ends = key_ends.max(now.after(lease.duration()));
                        key_count = counts.exclusive;
                        let promise = leased_ms.map_or(RENEWED, |_| Promise::Leased { until: now.after(lease.duration()) });
                        guards.push(ledger.reentered(now, now, lease, Side::Exclusive, promise).unwrap());
                    }
                    Step::Release { which } => {
                        if guards.is_empty() { continue }
                        let guard = guards.remove(which % guards.len());
                        match ledger.release(guard, now) {
                            Release::Partial { counts, lease } => {
                                key_ends = now.after(lease.duration());
                                ledger.cut_is_over(now);
                                key_count = counts.exclusive;
                            }
                            Release::Last => { key_ends = now; ledger.settled(); }
                            Release::Lost(_) => {}
                            Release::Unknown => proptest::prop_assert!(false, "a live guard is known"),
                        }
                    }
                }
                let phase = ledger.look(now);
                if phase == Phase::Live {
                    proptest::prop_assert!(key_ends > now, "believed, but the key is gone");
                    proptest::prop_assert!(ledger.good_until() < key_ends, "believed longer than the key lives");
                    proptest::prop_assert_eq!(key_count, guards.len());
                    proptest::prop_assert_eq!(ledger.counts().exclusive, guards.len());
                    proptest::prop_assert!(!was_lost);
                }
                was_lost |= matches!(phase, Phase::Lost(_));
            }
        }
    }
}
