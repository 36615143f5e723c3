//! Which holds are renewed or looked at when, and what an answer means for them.

use std::collections::HashMap;
use std::time::Duration;

use super::clocks::{Clocks, Pace};
use super::ledger::{Ledger, Phase};
use super::watch::All;
use crate::error::{Error, Loss};
use crate::script::RenewalAnswer;
use crate::time::{Instant, Lease};

/// The rounds over the holds of one server.
#[derive(Debug)]
pub(crate) struct Rounds {
    grid: Grid,
    clocks: Clocks,
    /// How many locks one request renews.
    batch: usize,
    command_timeout: Duration,
    /// When the first request was sent of those that failed since all was well.
    failing_since: Option<Instant>,
    /// How long this round has waited for requests that failed.
    in_vain: Duration,
    renewed: usize,
    /// When the first request of this round was sent that failed.
    failed: Option<Instant>,
}

/// The holds that a round goes over, beside those in question and those whose last request failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// It goes over all holds.
    pub(crate) is_everything: bool,
    /// All that are renewed have their turn.
    pub(crate) renews: bool,
}

/// A hold whose turn it is, by whatever the caller knows it by.
#[derive(Debug)]
pub(crate) struct Due<Hold> {
    pub(crate) hold: Hold,
    /// One request is about holds of one family.
    family: &'static str,
    turn: Turn,
}

/// What a hold's turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The lease that is renewed; `None` looks whether the hold is still there.
    lease: Option<Lease>,
    /// The deadline of the hold when its turn came.
    pub(crate) good_until: Instant,
}

/// What an answer means for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// A request that was sent then has put its deadline off.
    Renewed {
        sent: Instant,
        lease: Lease,
        pace: Pace,
    },
    /// It is still there.
    Looked,
    Lost(Loss),
    /// An unknown answer is no loss: it is asked about again after this pause, until its own deadline.
    Again(Duration),
}

/// What came of a round.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How many locks were renewed.
    pub(crate) renewed: usize,
    /// Nothing failed any more; renewals had failed for so long.
    pub(crate) recovered: Option<Duration>,
}

impl Rounds {
    pub(crate) fn new(now: Instant, interval: Duration, batch: usize, command_timeout: Duration) -> Self {
        Self {
            grid: Grid { next: now.after(interval), interval },
            clocks: Clocks::new(interval),
            batch,
            command_timeout,
            failing_since: None,
            in_vain: Duration::ZERO,
            renewed: 0,
            failed: None,
        }
    }

    /// When everything is renewed next.
    pub(crate) fn next_tick(&self) -> Instant {
        self.grid.next
    }

    /// A round begins; `all` is what is asked about all holds.
    pub(crate) fn begin(&mut self, now: Instant, all: Option<All>) -> Scope {
        self.in_vain = Duration::ZERO;
        let tick = self.grid.tick(now);
        Scope { is_everything: tick || all.is_some(), renews: tick || all == Some(All::Renew) }
    }

    /// Looks first, since they are short and somebody may be in two minds; then those that end first.
    pub(crate) fn in_batches<Hold>(&self, mut due: Vec<Due<Hold>>) -> Vec<Vec<Due<Hold>>> {
        due.sort_by_key(|due| due.turn.good_until);
        let mut by_kind: HashMap<(bool, &'static str), Vec<Vec<Due<Hold>>>> = HashMap::new();
        for due in due {
            let renews = !due.turn.is_look();
            let most = if renews { self.batch } else { LOOKS_AT_ONCE };
            let batches = by_kind.entry((renews, due.family)).or_default();
            match batches.last_mut() {
                Some(batch) if batch.len() < most => batch.push(due),
                _ => batches.push(vec![due]),
            }
        }
        let mut batches: Vec<_> = by_kind
            .into_iter()
            .flat_map(|((renews, _), batches)| {
                batches.into_iter().map(move |batch| ((renews, batch[0].turn.good_until), batch))
            })
            .collect();
        batches.sort_by_key(|(order, _)| *order);
        batches.into_iter().map(|(_, batch)| batch).collect()
    }

    /// Until when an answer is waited for to a request whose first hold has this turn; `None` where this round does not
    /// ask any more: one mute server costs one time-out a round, however many batches wait.
    pub(crate) fn ask_until(&self, now: Instant, first: Turn) -> Option<Instant> {
        if self.in_vain >= self.command_timeout {
            return None;
        }
        // A mute server must not keep us from trying again before the first of them ends, and a look not from
        // renewing others in time.
        let end = if first.is_look() { first.good_until.min(self.grid.next) } else { first.good_until };
        Some(now.after(self.command_timeout).min(end.max(now.after(SHORTEST_ASK))))
    }

    /// An answer came that tells the server's time: how its clock goes.
    pub(crate) fn pace(&mut self, sent: Instant, now: Instant, server_time_ms: u64) -> Pace {
        self.clocks.read(sent, now, server_time_ms)
    }

    /// What the answer about one hold means for it.
    pub(crate) fn answered(&mut self, turn: Turn, answer: &RenewalAnswer, sent: Instant, pace: Pace) -> Lesson {
        match (answer, turn.lease) {
            (RenewalAnswer::Renewed, Some(lease)) => {
                self.renewed += 1;
                Lesson::Renewed { sent, lease, pace }
            }
            (RenewalAnswer::Renewed, None) => Lesson::Looked,
            (RenewalAnswer::Lost(loss), _) => Lesson::Lost(*loss),
            (RenewalAnswer::Refused(refusal), _) => {
                self.note_failure(turn, sent);
                if turn.is_look() && !refusal.is_transient() { Lesson::Looked } else { turn.put_off() }
            }
        }
    }

    /// A request sent at `sent` whose first hold has this turn has no answer that can be used.
    pub(crate) fn failed(&mut self, sent: Instant, now: Instant, first: Turn) {
        self.in_vain += sent.until(now);
        self.note_failure(first, sent);
    }

    fn note_failure(&mut self, turn: Turn, sent: Instant) {
        if !turn.is_look() {
            self.failed.get_or_insert(sent);
        }
    }

    /// The round is over.
    pub(crate) fn end(&mut self, now: Instant) -> Outcome {
        let renewed = std::mem::take(&mut self.renewed);
        let mut recovered = None;
        if let Some(failed) = self.failed.take() {
            self.failing_since.get_or_insert(failed);
        } else if renewed > 0 {
            recovered = self.failing_since.take().map(|since| since.until(now));
        }
        Outcome { renewed, recovered }
    }
}

impl<Hold> Due<Hold> {
    pub(crate) fn new(hold: Hold, family: &'static str, turn: Turn) -> Self {
        Self { hold, family, turn }
    }

    pub(crate) fn turn(&self) -> Turn {
        self.turn
    }
}

impl Turn {
    /// What it is a hold's turn for, if it is. A lease is never renewed, but it can be looked at.
    pub(crate) fn of(ledger: &mut Ledger, now: Instant, renews: bool, asked: bool) -> Option<Self> {
        let retry = ledger.retry_at().is_some_and(|at| at <= now);
        let lease = if renews || retry { ledger.renewal(now) } else { None };
        let looks = (asked || retry) && ledger.look(now) == Phase::Live;
        (lease.is_some() || looks).then(|| Self { lease, good_until: ledger.good_until() })
    }

    /// A look, if the hold is live.
    pub(crate) fn look(ledger: &mut Ledger, now: Instant) -> Option<Self> {
        (ledger.look(now) == Phase::Live).then(|| Self { lease: None, good_until: ledger.good_until() })
    }

    /// Whether this is still what to do about the hold.
    pub(crate) fn is_still_due(self, ledger: &mut Ledger, now: Instant) -> bool {
        match self.lease {
            Some(lease) => ledger.renewal(now) == Some(lease),
            None => ledger.look(now) == Phase::Live,
        }
    }

    pub(crate) fn is_look(self) -> bool {
        self.lease.is_none()
    }

    /// What is renewed, if anything is.
    pub(crate) fn lease(self) -> Option<Lease> {
        self.lease
    }

    /// How long the hold is believed in.
    pub(crate) fn remaining(self, now: Instant) -> Duration {
        now.until(self.good_until)
    }

    /// What a request that failed means for the hold.
    pub(crate) fn after_failure(self, error: &Error) -> Lesson {
        if self.is_look() && error.is_final_refusal() { Lesson::Looked } else { self.put_off() }
    }

    /// The next try.
    pub(crate) fn put_off(self) -> Lesson {
        let pause = |lease: Lease| (lease.duration() / 30).clamp(SHORTEST_RETRY, LONGEST_RETRY);
        Lesson::Again(self.lease.map_or(PAUSE_OF_A_LOOK, pause))
    }
}

impl Lesson {
    pub(crate) fn teach(self, ledger: &mut Ledger, now: Instant) {
        match self {
            Self::Renewed { sent, lease, pace } => {
                ledger.renewed(sent, lease);
                ledger.server_goes(sent, pace);
            }
            Self::Looked => ledger.looked(now),
            Self::Lost(loss) => ledger.lose(loss),
            Self::Again(pause) => ledger.renewal_failed(now.after(pause)),
        }
    }
}

/// When a hold whose request failed is looked at again: soon, at the latest when its deadline comes.
pub(crate) fn next_look(ledger: &mut Ledger, now: Instant) -> Option<Instant> {
    let live = ledger.look(now) == Phase::Live;
    ledger.retry_at().filter(|_| live).map(|at| at.min(ledger.good_until()))
}

/// The grid: ticks are `interval` apart whatever a round takes.
#[derive(Debug)]
struct Grid {
    next: Instant,
    interval: Duration,
}

impl Grid {
    /// Whether a tick has come; then the next one is the first that has not.
    fn tick(&mut self, now: Instant) -> bool {
        let tick = now >= self.next;
        while self.next <= now {
            self.next = self.next.after(self.interval);
        }
        tick
    }
}

/// A batch whose first hold is about to end is asked about all the same, for the sake of the others.
const SHORTEST_ASK: Duration = Duration::from_millis(50);
const SHORTEST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(1);
const PAUSE_OF_A_LOOK: Duration = Duration::from_millis(500);
/// Plain commands that are sent together: the server may do others' in between.
const LOOKS_AT_ONCE: usize = 500;
