//! The account of one hold: guards, the promise to each guard, and the deadline.
//!
//! | phase     | means                                         | leaves it by                        |
//! |-----------|-----------------------------------------------|-------------------------------------|
//! | Live      | confirmed, and its deadline has not come      | last release, loss, keep            |
//! | Releasing | the last release is in flight                 | its answer, or the end of its bound |
//! | Done      | released, or left to its time to live         | never                               |
//! | Lost      | Redis reported it, or the deadline passed     | never                               |

use smallvec::SmallVec;

use crate::error::Loss;
use crate::script::{Counts, Raise, Side};
use crate::time::{Instant, Lease};

/// The account of one hold.
pub(crate) struct Ledger {
    watchdog: Lease,
    pub(crate) guards: SmallVec<[GuardEntry; 1]>,
    last_guard: GuardNumber,
    /// The expiry of the key, as Redis confirmed last.
    pub(crate) end: Instant,
    /// The deadline: the end of the lease, less the margin.
    pub(crate) good_until: Instant,
    /// The phase of the last look.
    pub(crate) phase: Phase,
    /// Whether no thread can release the hold any more.
    abandoned: bool,
    /// Whether the loss was told, or is not to be told so far.
    pub(crate) told: bool,
    /// The time to retry a failed renewal or check.
    pub(crate) retry_at: Option<Instant>,
    rare: Option<Box<Rare>>,
}

/// What most holds do without.
#[derive(Debug, Default)]
struct Rare {
    /// The expiry that `extend` set, for the guards without a lease: the promise to one with a lease was raised then.
    extended: Option<Instant>,
    /// The expiry of each side whose guard was left to expire; binding also after the last guard.
    kept: [Option<Instant>; 2],
    cut: Option<Cut>,
}

/// The promise to one guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// The hold is renewed until the guard is dropped, or until a moment that the caller chose.
    Renewed { until: Option<Instant> },
    /// The hold is never renewed.
    Leased { until: Instant },
}

/// Tells a guard of a hold from the others that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuardNumber(u32);

/// The newest partial release, which may lower the time to live. A request sent before this release was over may have
/// run first, and then its time to live was lowered, too.
#[derive(Clone, Copy, Debug)]
struct Cut {
    lease: Lease,
    /// From here on the release runs no more; `None` while it may still run.
    over: Option<Instant>,
    /// Whether no release before it may still run.
    is_alone: bool,
}

/// A guard, and what it was promised.
pub(crate) struct GuardEntry {
    number: GuardNumber,
    side: Side,
    /// The promise, in less memory than that of [`Promise`].
    until: Option<Instant>,
    is_leased: bool,
    left_to_unlock: bool,
}

/// The phase of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Live,
    Releasing,
    Done,
    Lost(Loss),
}

/// The request that the release of a guard needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Write what remains; see [`Ledger::remaining`].
    Partial,
    /// Release the lock.
    Last,
    /// The hold was lost before; fields in Redis may have to be removed.
    Lost(Loss),
    /// The guard was released already: by an observer, in the middle of a release of several locks.
    Unknown,
}

/// The part of a hold that stays after a partial release.
pub(crate) type Remaining = (Counts, Lease);

impl Ledger {
    /// Makes the ledger of a hold that Redis just granted, with its first guard.
    pub(crate) fn granted(
        watchdog: Lease,
        sent: Instant,
        lease: Lease,
        side: Side,
        promise: Promise,
    ) -> (Self, GuardNumber) {
        let mut ledger = Self {
            watchdog,
            guards: SmallVec::new(),
            last_guard: GuardNumber(0),
            end: sent.after(lease.duration()),
            good_until: lease.good_until(sent),
            phase: Phase::Live,
            abandoned: false,
            told: false,
            retry_at: None,
            rare: None,
        };
        let guard = ledger.admit(side, promise);
        (ledger, guard)
    }

    /// Returns the phase at `now`. A passed deadline is a loss from here on.
    pub(crate) fn look(&mut self, now: Instant) -> Phase {
        if self.phase == Phase::Live && now >= self.good_until {
            self.phase = Phase::Lost(Loss::Expired);
        }
        self.phase
    }

    /// Returns the counts that a re-entry on this side must write, or the loss that forbids the re-entry.
    pub(crate) fn counts_after_reentry(&mut self, now: Instant, side: Side) -> Result<Counts, Loss> {
        if let Phase::Lost(loss) = self.look(now) {
            return Err(loss);
        }
        let mut counts = self.counts_on_wire(now);
        *counts.of_mut(side) = self.counts().of(side) + 1;
        Ok(counts)
    }

    /// Records a confirmed re-entry that was sent at `sent`. A loss that was found meanwhile stays a loss.
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

    /// Records a confirmed renewal that was sent at `sent`.
    pub(crate) fn renewed(&mut self, sent: Instant, lease: Lease) {
        self.raised(sent, lease);
        self.retry_at = None;
    }

    /// Records that the key lives for at least `lease` from `sent` on.
    fn raised(&mut self, sent: Instant, lease: Lease) {
        let sure = match self.cut() {
            Some(cut) if cut.over.is_none_or(|over| sent < over) => lease.min(cut.lease),
            _ => lease,
        };
        self.end = self.end.max(sent.after(sure.duration()));
        if self.phase == Phase::Live {
            self.good_until = self.good_until.max(sure.good_until(sent));
        }
    }

    /// Records that the newest partial release runs no more after `over`.
    pub(crate) fn cut_is_over(&mut self, over: Instant) {
        if let Some(cut) = self.rare.as_mut().and_then(|rare| rare.cut.as_mut()) {
            cut.over.get_or_insert(over);
        }
    }

    /// Records that the newest partial release was answered, and that no other copy of it was sent.
    pub(crate) fn cut_was_answered(&mut self, at: Instant) {
        if self.cut().is_some_and(|cut| cut.is_alone) {
            self.cut_is_over(at);
        }
    }

    /// Records a confirmed extension: of one guard, or by hand and so of all.
    pub(crate) fn extended(&mut self, sent: Instant, lease: Lease, of: Option<GuardNumber>) {
        self.raised(sent, lease);
        let end = Some(sent.after(lease.duration()));
        let is_meant = |entry: &&mut GuardEntry| entry.is_leased && of.is_none_or(|number| entry.number == number);
        self.guards.iter_mut().filter(is_meant).for_each(|entry| entry.until = entry.until.max(end));
        if of.is_none() {
            let extended = &mut self.rare().extended;
            *extended = (*extended).max(end);
        }
    }

    /// Releases one guard.
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
        if self.guards.is_empty() && !self.is_kept(now) {
            self.phase = Phase::Releasing;
            return Release::Last;
        }
        if self.guards.is_empty() {
            self.phase = Phase::Done;
        }
        Release::Partial
    }

    /// Returns the counts and the time to live for a partial release that is sent now, which may lower the time to live;
    /// or the phase of a hold that is over.
    pub(crate) fn remaining(&mut self, now: Instant) -> Result<Remaining, Phase> {
        let is_held = match self.look(now) {
            Phase::Live => !self.guards.is_empty(),
            // The last guard is gone, and an earlier guard left its side to expire.
            Phase::Done => self.is_kept(now),
            Phase::Releasing | Phase::Lost(_) => false,
        };
        if !is_held {
            return Err(self.phase);
        }
        let lease = Lease::until(now, self.promised(now));
        let cut = &mut self.rare().cut;
        let under_way = cut.filter(|cut| cut.over.is_none());
        let lowest = under_way.map_or(lease, |cut| cut.lease.min(lease));
        *cut = Some(Cut { lease: lowest, over: None, is_alone: under_way.is_none() });
        // The lower deadline counts at once: with or without the request, the key does not expire before.
        self.good_until = self.good_until.min(lease.good_until(now));
        self.end = self.end.min(now.after(lease.duration()));
        Ok((self.counts_on_wire(now), lease))
    }

    /// Removes a guard and leaves its part of the hold to expire. Returns the end of this part if guards remain.
    pub(crate) fn keep(&mut self, guard: GuardNumber, now: Instant) -> Option<Instant> {
        let entry = self.guards.iter().find(|entry| entry.number == guard)?;
        let end = if entry.is_leased { entry.until } else { self.after_limit(entry, now) }.unwrap_or(self.end);
        let kept = entry.side as usize;
        let kept = &mut self.rare().kept[kept];
        *kept = (*kept).max(Some(end));
        self.dismiss(guard);
        if self.guards.is_empty() && self.look(now) == Phase::Live {
            self.phase = Phase::Done;
        }
        (!self.guards.is_empty()).then_some(end)
    }

    /// Marks a guard for release by `unlock` of the lock.
    pub(crate) fn leave_to_unlock(&mut self, guard: GuardNumber) {
        if let Some(entry) = self.guards.iter_mut().find(|entry| entry.number == guard) {
            entry.left_to_unlock = true;
        }
    }

    /// Returns the newest guard of this side that is marked for `unlock`.
    pub(crate) fn newest_left_to_unlock(&self, side: Side) -> Option<GuardNumber> {
        self.guards.iter().rev().find(|entry| entry.left_to_unlock && entry.side == side).map(|entry| entry.number)
    }

    /// Records that no thread can release the hold any more: the hold is renewed no more. Returns whether this is new.
    pub(crate) fn abandon(&mut self) -> bool {
        !std::mem::replace(&mut self.abandoned, true)
    }

    /// Returns the lease for the renewal of this hold, if the hold is to be renewed.
    pub(crate) fn renewal(&mut self, now: Instant) -> Option<Lease> {
        let renewed = |entry: &GuardEntry| !entry.is_leased && entry.until.is_none_or(|until| until > now);
        let is_live = self.look(now) == Phase::Live && !self.abandoned;
        let wanted = is_live && self.guards.iter().any(renewed);
        wanted.then_some(self.watchdog)
    }

    /// Returns the time to live that a renewal or a re-entry writes. A shorter time to live is raised to `lease`; a
    /// missing expiry is set to at least the deadline.
    pub(crate) fn raise(&self, now: Instant, lease: Lease) -> Raise {
        Raise { lease, endless: lease.max(Lease::until(now, self.end)) }
    }

    /// Records that a renewal failed, to be retried at `retry_at`.
    pub(crate) fn renewal_failed(&mut self, retry_at: Instant) {
        self.retry_at = Some(retry_at);
    }

    /// Records that a check failed, to be retried at `retry_at`. A failed renewal is retried no later for it.
    pub(crate) fn look_failed(&mut self, now: Instant, retry_at: Instant) {
        let pending = self.retry_at.filter(|_| self.renewal(now).is_some());
        self.retry_at = Some(pending.map_or(retry_at, |pending| pending.min(retry_at)));
    }

    /// Records the end of a check. A check renews nothing, so a failed renewal is still to be retried.
    pub(crate) fn looked(&mut self, now: Instant) {
        if self.renewal(now).is_none() {
            self.retry_at = None;
        }
    }

    /// Moves a hold that is in one phase to the next one. From `Live` to a loss, which comes too late once a release is
    /// in flight; from `Releasing` to `Done`, whatever the outcome, or to the loss that came first and was not noticed.
    pub(crate) fn step(&mut self, from: Phase, to: Phase) {
        if self.phase == from {
            self.phase = to;
        }
    }

    /// Takes a loss that Redis reported. Returns the loss that counts: a hold that expired before stays expired.
    pub(crate) fn reported_lost(&mut self, now: Instant, loss: Loss) -> Loss {
        self.look(now);
        self.step(Phase::Live, Phase::Lost(loss));
        match self.phase {
            Phase::Lost(first) => first,
            _ => loss,
        }
    }

    /// The number of guards of each side.
    pub(crate) fn counts(&self) -> Counts {
        let exclusive = self.guards.iter().filter(|entry| entry.side == Side::Exclusive).count();
        Counts { exclusive, shared: self.guards.len() - exclusive }
    }

    /// The counts to write to Redis. A side left to expire counts as one, although no guard holds the side.
    pub(crate) fn counts_on_wire(&self, now: Instant) -> Counts {
        self.with_kept(self.counts(), now)
    }

    /// What stays without any guard: the sides that were left to expire, if there are any.
    pub(crate) fn kept_alone(&self, now: Instant) -> Option<Remaining> {
        let end = self.kept().into_iter().flatten().max().filter(|end| *end > now)?;
        Some((self.with_kept(Counts::default(), now), Lease::until(now, end)))
    }

    fn with_kept(&self, mut counts: Counts, now: Instant) -> Counts {
        for side in [Side::Exclusive, Side::Shared] {
            if self.kept()[side as usize].is_some_and(|end| end > now) {
                let count = counts.of_mut(side);
                *count = (*count).max(1);
            }
        }
        counts
    }

    /// Whether a side was left to expire and has not expired.
    pub(crate) fn is_kept(&self, now: Instant) -> bool {
        self.kept().into_iter().flatten().any(|end| end > now)
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn cut(&self) -> Option<Cut> {
        self.rare.as_ref()?.cut
    }

    fn kept(&self) -> [Option<Instant>; 2] {
        self.rare.as_ref().map_or([None; 2], |rare| rare.kept)
    }

    /// The latest end of a guard that is renewed no more: the last renewal for the guard came before the limit. Renewals
    /// for inner sections do not count, and an `extend` does.
    fn after_limit(&self, entry: &GuardEntry, now: Instant) -> Option<Instant> {
        let until = entry.until.filter(|until| *until <= now)?;
        let renewed = self.end.min(until.after(self.watchdog.duration()));
        Some(renewed).max(self.rare.as_ref().and_then(|rare| rare.extended))
    }

    fn admit(&mut self, side: Side, promise: Promise) -> GuardNumber {
        let mut number = self.last_guard;
        // The numbers come again, in a hold that is entered some billion times.
        loop {
            number.0 = number.0.wrapping_add(1);
            if self.guards.iter().all(|entry| entry.number != number) {
                break;
            }
        }
        self.last_guard = number;
        let (until, is_leased) = match promise {
            Promise::Renewed { until } => (until, false),
            Promise::Leased { until } => (Some(until), true),
        };
        self.guards.push(GuardEntry { number, side, until, is_leased, left_to_unlock: false });
        number
    }

    fn dismiss(&mut self, guard: GuardNumber) -> bool {
        let before = self.guards.len();
        self.guards.retain(|entry| entry.number != guard);
        self.guards.len() < before
    }

    /// The latest end that was promised to any guard.
    fn promised(&self, now: Instant) -> Instant {
        let of_guard = |entry: &GuardEntry| match entry.until {
            Some(until) if entry.is_leased => until,
            _ => self.after_limit(entry, now).unwrap_or_else(|| now.after(self.watchdog.duration())),
        };
        let guards = self.guards.iter().map(of_guard);
        let is_renewed = self.guards.iter().any(|entry| !entry.is_leased);
        let by_hand = self.rare.as_ref().and_then(|rare| rare.extended).filter(|_| is_renewed);
        guards.chain(by_hand).chain(self.kept().into_iter().flatten()).max().unwrap_or(now)
    }
}

#[cfg(test)]
mod tests;
