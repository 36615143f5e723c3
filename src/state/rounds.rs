//! The rounds of a caller that takes all of several locks: the questions, the locks given back, and the waits.
//!
//! A caller that sleeps holds no part of its take, so callers never block each other in a circle, whatever the order of
//! their locks and whatever they hold already. The caller sleeps at one busy part, the blocker, and asks for the other
//! parts at once when it has the blocker. Locks that are nearly always busy would starve such a caller. After a long
//! wait for the blocker, and after some rounds in vain, the caller therefore keeps the granted parts while it waits for
//! a missing part, for a bounded time. After a held wait in vain, the missing part is the next blocker: the caller ends
//! up waiting for the slowest part with empty hands, and for the faster parts with the slowest one in hand.

use std::time::Duration;

use crate::time::up_to;

/// The next step of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask for all parts that are not granted, at once and without waiting.
    AskRest,
    /// Give back every part granted in this take, if any, then rest for this time (may be zero).
    GiveBack { pause: Duration },
    /// Wait for this part alone; the caller holds no part of this take.
    Wait(usize),
    /// Keep the granted parts and wait for this part, for this time at most.
    WaitHolding(usize, Duration),
    /// Every part is granted: look at all of them at one moment.
    Check,
}

/// The decisions of one take. Parts are numbered from 0 in the canonical order, the same for all callers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rounds {
    parts: Vec<Part>,
    phase: RoundsPhase,
    /// The number of rounds that ended without all parts.
    vain: u32,
    /// The time that this round waited with empty hands.
    waited: Duration,
    /// The time for which the round may still wait with parts in hand.
    patience: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Part {
    is_granted: bool,
    /// Whether the last answer of this round was busy.
    is_busy: bool,
    /// Whether its server did not answer in this round.
    is_silent: bool,
    /// How long the part was last waited for.
    waited: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum RoundsPhase {
    #[default]
    ToAsk,
    /// The missing parts were asked for.
    Asked,
    /// A missing part was waited for while others were held.
    Waited(usize),
    Checking,
    GivingBack {
        pause: Duration,
        blocker: Option<usize>,
    },
    Blocked(usize),
}

impl Rounds {
    pub(crate) fn new(parts: usize) -> Self {
        Self { parts: vec![Part::default(); parts], ..Self::default() }
    }

    /// Returns the next step. The answers to the step before must have been reported; a part without an answer counts
    /// as missing. A caller that may not wait stops after the first [`Step::GiveBack`].
    pub(crate) fn next(&mut self, random: impl FnOnce() -> u64) -> Step {
        match self.phase {
            RoundsPhase::GivingBack { pause, .. } => Step::GiveBack { pause },
            _ if self.parts.iter().all(|part| part.is_granted) => {
                self.phase = RoundsPhase::Checking;
                Step::Check
            }
            RoundsPhase::Asked => self.after_answers(random),
            RoundsPhase::Blocked(part) if !self.parts[part].is_granted => Step::Wait(part),
            RoundsPhase::Waited(part) if !self.parts[part].is_granted => self.fail(random),
            // A part that was found lost may still be this caller's in Redis, so the caller must not wait for it.
            RoundsPhase::Checking => self.fail(random),
            RoundsPhase::ToAsk | RoundsPhase::Blocked(_) | RoundsPhase::Waited(_) => {
                self.parts.iter_mut().for_each(|part| (part.is_busy, part.is_silent) = (false, false));
                self.phase = RoundsPhase::Asked;
                Step::AskRest
            }
        }
    }

    pub(crate) fn granted(&mut self, part: usize) {
        self.parts[part].is_granted = true;
        self.parts[part].is_busy = false;
    }

    /// Records how long a [`Step::Wait`] took.
    pub(crate) fn waited(&mut self, part: usize, time: Duration) {
        (self.parts[part].waited, self.waited) = (time, time);
        if time >= LONG_WAIT {
            self.patience = self.patience.max((time / 4).min(LONGEST_PATIENCE));
        }
    }

    /// Records that another owner has the part, also when a wait for the part was in vain.
    pub(crate) fn busy(&mut self, part: usize) {
        (self.parts[part].is_granted, self.parts[part].is_busy) = (false, true);
    }

    /// Records that the server of the part did not answer. The caller waits for this part next, with empty hands.
    pub(crate) fn silent(&mut self, part: usize) {
        self.busy(part);
        self.parts[part].is_silent = true;
    }

    /// Records that the part was not taken, because another part of the same request was busy, or was taken and lost.
    pub(crate) fn passed(&mut self, part: usize) {
        (self.parts[part].is_granted, self.parts[part].is_busy) = (false, false);
    }

    /// Records that every granted part was given back.
    pub(crate) fn given_back(&mut self) {
        self.parts.iter_mut().for_each(|part| part.is_granted = false);
        if let RoundsPhase::GivingBack { blocker, .. } = self.phase {
            self.phase = blocker.map_or(RoundsPhase::ToAsk, RoundsPhase::Blocked);
        }
    }

    /// Whether the caller may hold parts while it waits, however short its waits were.
    fn is_starving(&self) -> bool {
        self.vain >= ROUNDS_WITHOUT_HOLDING
    }

    fn first_silent(&self) -> Option<usize> {
        self.parts.iter().position(|part| part.is_silent)
    }

    fn after_answers(&mut self, random: impl FnOnce() -> u64) -> Step {
        let missing = self.parts.iter().filter(|part| !part.is_granted).count();
        let next = self.parts.iter().position(|part| !part.is_granted).unwrap_or_default();
        if self.patience.is_zero() || missing == self.parts.len() || self.first_silent().is_some() {
            return self.fail(random);
        }
        // The parts share the time, so that the whole round ends in time, however many parts are missing.
        let share = self.patience / u32::try_from(missing).unwrap_or(u32::MAX);
        self.patience -= share;
        // Callers that hold parts while they wait must not wait for each other, so only a caller whose parts all come
        // before the missing one has more time than the others can spare. That is twice the usual time of the part, if
        // the part is no slower than the blocker: given back, the blocker would be waited for again. A slower part is
        // the better blocker, unless the caller is starving between the two.
        let is_in_order = self.parts[next..].iter().all(|part| !part.is_granted);
        let is_between_two = self.is_starving() && self.parts[next].waited > LONGEST_PATIENCE;
        let known = self.parts[next].waited;
        let most =
            if is_in_order && (is_between_two || known <= self.waited * 2) { share.max(known * 2) } else { share };
        self.phase = RoundsPhase::Waited(next);
        Step::WaitHolding(next, most)
    }

    /// Ends a round without all parts.
    fn fail(&mut self, random: impl FnOnce() -> u64) -> Step {
        // Callers that gave back at the same moment must not ask at the same moment. The first round is in step with
        // no other caller.
        let longest = PAUSE * self.vain.min(ROUNDS_WITHOUT_HOLDING);
        let pause = up_to(longest, random());
        self.vain = self.vain.saturating_add(1);
        (self.waited, self.patience) = (Duration::ZERO, if self.is_starving() { PATIENCE } else { Duration::ZERO });
        self.phase = RoundsPhase::GivingBack { pause, blocker: self.blocker() };
        Step::GiveBack { pause }
    }

    /// The part to wait for. Callers of the same parts meet at the first busy one. The time to live of a holder is no
    /// guide: it says when the hold ends if nothing is released and nothing renewed.
    fn blocker(&self) -> Option<usize> {
        if let Some(silent) = self.first_silent() {
            return Some(silent);
        }
        if let RoundsPhase::Waited(part) = self.phase {
            return Some(part);
        }
        if self.is_starving() {
            // Callers that hold parts while they wait would wait for each other. All of them begin at the first part,
            // so that of two callers with the same first part only one holds any.
            return Some(0);
        }
        self.parts.iter().position(|part| part.is_busy)
    }
}

/// The rounds after which a caller may hold parts while it waits, however short its waits were. A round in vain wakes
/// other waiters for nothing, and where parts are in demand, further rounds fail like the first ones.
const ROUNDS_WITHOUT_HOLDING: u32 = 4;
/// Each round in vain adds this time to the longest pause: about as long as a few requests take.
const PAUSE: Duration = Duration::from_millis(2);
/// The time for which a round waits while it holds parts, after so many rounds.
const PATIENCE: Duration = Duration::from_millis(100);
/// From this wait with empty hands on, a round may hold parts for a quarter of the wait, so that others lose at most a
/// fifth of their time.
const LONG_WAIT: Duration = Duration::from_millis(100);
const LONGEST_PATIENCE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
