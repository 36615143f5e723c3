//! What one hold promised to its guards, and until when it may be believed; decides, does nothing.
//!
//! | phase     | means                                         | leaves it by                        |
//! |-----------|-----------------------------------------------|-------------------------------------|
//! | Live      | confirmed, and its deadline has not come      | last release, loss, keep            |
//! | Releasing | the last release is on its way                | settled                             |
//! | Done      | given back, or left to its time to live       | never                               |
//! | Lost      | Redis said so, or its deadline passed         | never                               |

use super::clocks::Pace;
use crate::error::Loss;
use crate::script::{Counts, Raise, Side};
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
    next_cut: u64,
    /// When a request of the watchdog that got no answer is tried again.
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

/// Names one partial release of a hold; later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CutNumber(u64);

/// A partial release that lowers the time to live. What was sent before its answer may have been
/// carried out before it, and then be lowered by it.
#[derive(Clone, Copy, Debug)]
struct Cut {
    number: CutNumber,
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
    Partial(Remaining),
    /// Open the lock.
    Last,
    /// It was lost before; there may be something to clear away.
    Lost(Loss),
    /// This guard was given back already.
    Unknown,
}

/// What a partial release leaves held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    pub(crate) counts: Counts,
    pub(crate) lease: Lease,
    pub(crate) cut: CutNumber,
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
            next_cut: 0,
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

    /// Where it stood at the last look.
    pub(crate) fn phase(&self) -> Phase {
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
        self.raised(sent, lease);
        match self.look(now) {
            Phase::Lost(loss) => Err(loss),
            _ => Ok(self.admit(side, promise)),
        }
    }

    /// Redis confirmed a renewal that was sent at `sent`.
    pub(crate) fn renewed(&mut self, sent: Instant, lease: Lease) {
        self.raised(sent, lease);
        self.retry_at = None;
    }

    /// The key lives at least for `lease` from `sent` on.
    fn raised(&mut self, sent: Instant, lease: Lease) {
        let sure = match self.cut {
            Some(cut) if cut.over.is_none_or(|over| sent < over) => lease.min(cut.lease),
            _ => lease,
        };
        self.end = self.end.max(sent.after(sure.duration()));
        if self.phase == Phase::Live {
            self.good_until = self.good_until.max(sure.good_until(sent));
        }
    }

    /// By an answer to what was sent at `sent`, the server's clock goes like this. If it goes on so, the key ends
    /// earlier than we thought; that counts where it takes more than half of the margin, which is also there for
    /// what this measure misses.
    pub(crate) fn server_goes(&mut self, sent: Instant, pace: Pace) {
        let left = sent.until(self.end);
        let by = left.saturating_sub(pace.ours(left));
        let lease = Lease::until(sent, self.end.before(by));
        if by > lease.margin() / 2 {
            self.good_until = self.good_until.min(lease.good_until(sent));
        }
    }

    /// Of this partial release and those before it no request is carried out after `over` any more.
    pub(crate) fn cut_is_over(&mut self, number: CutNumber, over: Instant) {
        if let Some(cut) = &mut self.cut
            && cut.number <= number
        {
            cut.over.get_or_insert(over);
        }
    }

    /// A time to live asked for by hand was confirmed.
    pub(crate) fn extended(&mut self, sent: Instant, lease: Lease) {
        self.raised(sent, lease);
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
        let remaining = self.cut_down(now);
        if self.guards.is_empty() {
            self.phase = Phase::Done;
        }
        Release::Partial(remaining)
    }

    /// What a partial release that was never answered is to write now; `None` where nothing is held any more.
    pub(crate) fn repeated_release(&mut self, now: Instant) -> Option<Remaining> {
        let is_held = match self.look(now) {
            Phase::Live => !self.guards.is_empty(),
            // The last guard is gone, and another one had left its part to its time to live.
            Phase::Done => !self.kept.is_over(now),
            Phase::Releasing | Phase::Lost(_) => false,
        };
        is_held.then(|| self.cut_down(now))
    }

    /// The counts and the time to live that remain; the time to live may be lowered by them.
    fn cut_down(&mut self, now: Instant) -> Remaining {
        let counts = self.counts_on_wire(now);
        let lease = Lease::until(now, self.promised(now));
        let under_way = self.cut.filter(|cut| cut.over.is_none());
        self.next_cut += 1;
        let cut = CutNumber(self.next_cut);
        let lowest = under_way.map_or(lease, |cut| cut.lease.min(lease));
        self.cut = Some(Cut { number: cut, lease: lowest, over: None });
        // Believed at once: whether the request arrives or not, it does not end before this.
        self.good_until = self.good_until.min(lease.good_until(now));
        self.end = self.end.min(now.after(lease.duration()));
        Remaining { counts, lease, cut }
    }

    /// Whether nothing was given back since.
    pub(crate) fn is_newest(&self, cut: CutNumber) -> bool {
        cut.0 == self.next_cut
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

    /// What a renewal or a re-entry with this lease writes. It raises the time to live where that is less, and
    /// sets it where somebody took it away: to no less than what is believed.
    pub(crate) fn raise(&self, now: Instant, lease: Lease) -> Raise {
        Raise { lease, endless: lease.max(Lease::until(now, self.end)) }
    }

    /// A renewal or a look got no usable answer; try again at `retry_at`.
    pub(crate) fn renewal_failed(&mut self, retry_at: Instant) {
        self.retry_at = Some(retry_at);
    }

    /// A look is over. That renews nothing, so a renewal that failed is still to be tried again.
    pub(crate) fn looked(&mut self, now: Instant) {
        if self.renewal(now).is_none() {
            self.retry_at = None;
        }
    }

    /// When a failed renewal, or a look that failed, is to be tried again.
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
mod tests;
