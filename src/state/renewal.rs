//! The renewal rounds: which holds are renewed or checked when, and the effect of each reply.

use std::time::Duration;

use super::ledger::{Ledger, Phase};
use crate::error::{Error, Loss};
use crate::script::RenewalAnswer;
use crate::time::{Instant, Lease};
use crate::transport::Slot;

/// The renewal rounds of one server.
#[derive(Default)]
pub(crate) struct RenewalRounds {
    /// The time of the next renewal of all holds. Ticks are `interval` apart, whatever the duration of a round.
    pub(crate) next_tick: Instant,
    interval: Duration,
    /// The number of locks that are renewed by one write, but on a slow link.
    batch: usize,
    /// The time after which the last write was answered.
    took: Duration,
    /// The time at which checks that are put off trust that duration less.
    doubted_at: Instant,
    /// The most batches of renewals in a write: fewer after a time-out, which may have been too short for the write.
    most_at_once: usize,
    command_timeout: Duration,
    /// The sending time of the first failed request since renewals worked.
    failing_since: Option<Instant>,
    /// The time that this round has spent on failed requests.
    in_vain: Duration,
    /// The time spent on failed requests to other servers since the last tick: checks wait meanwhile. A later round has
    /// a part of a time-out for them anyhow, because a server may answer again.
    in_vain_elsewhere: Duration,
    renewed: usize,
    /// The sending time of the first failed request of this round.
    failed: Option<Instant>,
}

/// A due hold, with the identification that the caller uses.
#[derive(Clone, Debug)]
pub(crate) struct Due<Hold> {
    pub(crate) hold: Hold,
    /// A request covers holds of one family.
    pub(crate) family: &'static str,
    /// A renewal covers holds of one slot.
    pub(crate) slot: Slot,
    pub(crate) turn: RenewalTurn,
}

/// The holds that are asked about in one write, by request.
pub(crate) type Batch<Hold> = Vec<Vec<Due<Hold>>>;

/// The request that a due hold needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RenewalTurn {
    /// The lease of a renewal; `None` for a check.
    pub(crate) lease: Option<Lease>,
    /// The deadline of the hold at the start of the round.
    pub(crate) good_until: Instant,
}

/// The effect of a reply on a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// The renewal that was sent at this time has moved the deadline.
    Renewed {
        sent: Instant,
        lease: Lease,
    },
    /// The hold still exists.
    Looked,
    Lost(Loss),
    /// The outcome is unknown, which is no loss: the hold is renewed again after this pause, until its deadline.
    RenewAgain(Duration),
    /// The outcome of a check is unknown: the hold is checked again after this pause.
    LookAgain(Duration),
}

impl RenewalRounds {
    pub(crate) fn new(now: Instant, interval: Duration, batch: usize, command_timeout: Duration) -> Self {
        let most_at_once = MOST_BATCHES_AT_ONCE;
        Self { next_tick: now.after(interval), interval, batch, command_timeout, most_at_once, ..Self::default() }
    }

    /// Starts a round. Returns whether a tick has come, at which all renewed holds are due.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let tick = now >= self.next_tick;
        while self.next_tick <= now {
            self.next_tick = self.next_tick.after(self.interval);
        }
        let most = if tick { Duration::ZERO } else { self.command_timeout - self.command_timeout / 10 };
        (self.in_vain, self.in_vain_elsewhere) = (Duration::ZERO, self.in_vain_elsewhere.min(most));
        tick
    }

    /// Orders the batches: checks first, because checks are short and holders may be in doubt; then by deadline.
    pub(crate) fn in_batches<Hold>(&self, mut due: Vec<Due<Hold>>) -> Vec<Batch<Hold>> {
        due.sort_by_key(|due| due.turn.good_until);
        let mut batches: Vec<Batch<Hold>> = vec![];
        for due in due {
            let most = if due.turn.is_look() { LOOKS_AT_ONCE } else { self.batch };
            let is_like = |other: &Due<Hold>| (other.turn.is_look(), other.family) == (due.turn.is_look(), due.family);
            let last = batches.iter_mut().rfind(|batch| is_like(&batch[0][0]));
            match last.and_then(|batch| room(batch, &due, most)) {
                Some(request) => request.push(due),
                None => batches.push(vec![vec![due]]),
            }
        }
        batches.sort_by_key(|batch| (!batch[0][0].turn.is_look(), batch[0][0].turn.good_until));
        batches
    }

    /// Returns how many of these batches to send by one write, so that all are answered within a quarter of the
    /// interval.
    pub(crate) fn batches_at_once(&self, batches: usize) -> usize {
        let writes = (self.interval / 4).as_micros() / self.took.as_micros().max(1);
        batches.div_ceil(usize::try_from(writes).unwrap_or(usize::MAX).max(1)).min(self.most_at_once)
    }

    /// Takes the duration of an answered write of so many batches of renewals.
    pub(crate) fn wrote(&mut self, took: Duration, batches: usize) {
        self.took = took;
        if batches >= self.most_at_once {
            let more = if took * 4 < self.command_timeout { self.most_at_once } else { 1 };
            self.most_at_once = (self.most_at_once + more).min(MOST_BATCHES_AT_ONCE);
        }
    }

    /// Takes the time-out of a write of so many batches of renewals.
    pub(crate) fn timed_out(&mut self, batches: usize) {
        if batches > 0 {
            self.most_at_once = (batches / 2).max(1);
        }
    }

    /// Returns the turn whose deadline limits a write: that of the first hold that an answer can save.
    pub(crate) fn first_of(
        &self,
        turns: impl Iterator<Item = RenewalTurn> + Clone,
        now: Instant,
    ) -> Option<RenewalTurn> {
        // A broken connection is opened anew first.
        let known = (!self.took.is_zero()).then(|| self.took * 4);
        let soonest = now.after(known.unwrap_or(self.command_timeout / 5).min(self.command_timeout / 2));
        let by_deadline = |turn: &RenewalTurn| turn.good_until;
        let saved = turns.clone().filter(|turn| turn.good_until > soonest).min_by_key(by_deadline);
        saved.or_else(|| turns.min_by_key(by_deadline))
    }

    /// Whether a write of this round was not answered.
    pub(crate) fn was_in_vain(&self) -> bool {
        !self.in_vain.is_zero()
    }

    /// Returns the time limit of a request with this first hold; `None` if this round does not send it: a silent server
    /// costs one time-out in each round, however many batches wait, and a check is not begun where its answer would
    /// probably come after the next tick.
    pub(crate) fn ask_until(&mut self, now: Instant, first: RenewalTurn) -> Option<Instant> {
        // A check of some kinds takes two round trips.
        let is_too_late = first.is_look() && now.after((self.took * 2).min(self.interval / 2)) > self.next_tick;
        // One slow answer must not put off all checks until the tick.
        if is_too_late && now >= self.doubted_at {
            (self.took, self.doubted_at) = (self.took / 2, now.after(PAUSE_OF_A_LOOK));
        }
        if is_too_late || self.in_vain >= self.command_timeout {
            return None;
        }
        // The limit leaves time to try again before the first hold expires, and a check leaves time for renewals.
        let end = if first.is_look() { first.good_until.min(self.next_tick) } else { first.good_until };
        Some(now.after(self.command_timeout).min(end.max(now.after(SHORTEST_ASK))))
    }

    /// Returns the time limit of a request to another server, about this hold; `None` if this round sends no more of
    /// them. They follow the batches, and `began` is the sending time of the first one. No other server delays the
    /// next tick.
    pub(crate) fn ask_elsewhere_until(&self, began: Instant, now: Instant, turn: RenewalTurn) -> Option<Instant> {
        let end = self.next_tick.max(began.after(SHORTEST_ASK));
        let patience = self.command_timeout.saturating_sub(self.in_vain_elsewhere);
        if patience.is_zero() || now >= end {
            return None;
        }
        let own_end = turn.good_until.max(now.after(SHORTEST_ASK));
        Some(now.after(patience.max(SHORTEST_ASK).min(self.command_timeout)).min(own_end).min(end))
    }

    /// Returns the effect of the reply about one hold.
    pub(crate) fn answered(&mut self, turn: RenewalTurn, answer: &RenewalAnswer, sent: Instant) -> Lesson {
        match (answer, turn.lease) {
            (RenewalAnswer::Renewed, Some(lease)) => {
                self.renewed += 1;
                Lesson::Renewed { sent, lease }
            }
            (RenewalAnswer::Renewed, None) => Lesson::Looked,
            (RenewalAnswer::Lost(loss), _) => Lesson::Lost(*loss),
            (RenewalAnswer::Refused(refusal), _) => {
                self.note_failure(turn, sent);
                if turn.is_look() && !refusal.is_transient() { Lesson::Looked } else { turn.put_off() }
            }
        }
    }

    /// Records the failure of a write, sent at `sent`, with this first hold.
    pub(crate) fn failed(&mut self, sent: Instant, now: Instant, first: RenewalTurn) {
        self.in_vain += sent.until(now);
        self.note_failure(first, sent);
    }

    /// The effect of a check at another server: nothing there reports changes of the key to this client. So the hold is
    /// checked again at the next tick, until its slot has moved and the hold is handed over.
    pub(crate) fn look_at_tick(&self, now: Instant) -> Lesson {
        Lesson::LookAgain(now.until(self.next_tick).max(PAUSE_OF_A_LOOK))
    }

    /// Records the failure of a request to another server, which says nothing about this server.
    pub(crate) fn failed_elsewhere(&mut self, sent: Instant, now: Instant, turn: RenewalTurn) {
        self.in_vain_elsewhere += sent.until(now);
        self.note_failure(turn, sent);
    }

    fn note_failure(&mut self, turn: RenewalTurn, sent: Instant) {
        if !turn.is_look() {
            self.failed.get_or_insert(sent);
        }
    }

    /// Ends the failures, because the holds are elsewhere. Returns the time for which renewals had failed.
    pub(crate) fn left(&mut self, now: Instant) -> Option<Duration> {
        self.failing_since.take().map(|since| since.until(now))
    }

    /// Ends the round. Returns the number of renewed locks, and the time for which renewals had failed where no request
    /// failed any more.
    pub(crate) fn end(&mut self, now: Instant) -> (usize, Option<Duration>) {
        let renewed = std::mem::take(&mut self.renewed);
        let mut recovered = None;
        if let Some(failed) = self.failed.take() {
            self.failing_since.get_or_insert(failed);
        } else if renewed > 0 {
            recovered = self.left(now);
        }
        (renewed, recovered)
    }
}

/// The request of this batch that has room for a hold.
fn room<'a, Hold>(batch: &'a mut Batch<Hold>, due: &Due<Hold>, most: usize) -> Option<&'a mut Vec<Due<Hold>>> {
    if batch.iter().map(Vec::len).sum::<usize>() >= most {
        return None;
    }
    // A check has a command for each key, so the keys of a check may be many and in any slots.
    let fits = |request: &Vec<Due<Hold>>| {
        due.turn.is_look() || request[0].slot == due.slot && request.len() < LOCKS_IN_A_REQUEST
    };
    let place = batch.iter().position(fits).unwrap_or(batch.len());
    if place == batch.len() && place < REQUESTS_AT_ONCE {
        batch.push(vec![]);
    }
    batch.get_mut(place)
}

impl RenewalTurn {
    /// Returns the request that a hold needs, if any. A leased hold is never renewed, but may be checked.
    pub(crate) fn of(ledger: &mut Ledger, now: Instant, renews: bool, asked: bool) -> Option<Self> {
        let retry = ledger.retry_at.is_some_and(|at| at <= now);
        let lease = if renews || retry { ledger.renewal(now) } else { None };
        let looks = (asked || retry) && ledger.look(now) == Phase::Live;
        (lease.is_some() || looks).then_some(Self { lease, good_until: ledger.good_until })
    }

    /// A check, if the hold is live.
    pub(crate) fn look(ledger: &mut Ledger, now: Instant) -> Option<Self> {
        (ledger.look(now) == Phase::Live).then_some(Self { lease: None, good_until: ledger.good_until })
    }

    /// Whether the hold still needs this request.
    pub(crate) fn is_still_due(self, ledger: &mut Ledger, now: Instant) -> bool {
        match self.lease {
            Some(lease) => ledger.renewal(now) == Some(lease),
            None => ledger.look(now) == Phase::Live,
        }
    }

    pub(crate) fn is_look(self) -> bool {
        self.lease.is_none()
    }

    /// The time until the deadline.
    pub(crate) fn remaining(self, now: Instant) -> Duration {
        now.until(self.good_until)
    }

    /// Returns the effect of a failed request on the hold.
    pub(crate) fn after_failure(self, error: &Error) -> Lesson {
        if self.is_look() && error.is_final_refusal() { Lesson::Looked } else { self.put_off() }
    }

    /// The time of the next try.
    pub(crate) fn put_off(self) -> Lesson {
        let pause = |lease: Lease| (lease.duration() / 30).clamp(SHORTEST_RETRY, LONGEST_RETRY);
        self.lease.map_or(Lesson::LookAgain(PAUSE_OF_A_LOOK), |lease| Lesson::RenewAgain(pause(lease)))
    }
}

impl Lesson {
    pub(crate) fn teach(self, ledger: &mut Ledger, now: Instant) {
        match self {
            Self::Renewed { sent, lease } => ledger.renewed(sent, lease),
            Self::Looked => ledger.looked(now),
            Self::Lost(loss) => ledger.step(Phase::Live, Phase::Lost(loss)),
            Self::RenewAgain(pause) => ledger.renewal_failed(now.after(pause)),
            Self::LookAgain(pause) => ledger.look_failed(now, now.after(pause)),
        }
    }
}

/// The time of the next try after a failure: soon, at the latest at the deadline.
pub(crate) fn next_look(ledger: &mut Ledger, now: Instant) -> Option<Instant> {
    let live = ledger.look(now) == Phase::Live;
    ledger.retry_at.filter(|_| live).map(|at| at.min(ledger.good_until))
}

/// The shortest time limit of a batch, also when its first hold is about to expire, for the sake of the other holds;
/// and of a request to another server.
const SHORTEST_ASK: Duration = Duration::from_millis(50);
const SHORTEST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(1);
const PAUSE_OF_A_LOOK: Duration = Duration::from_millis(500);
/// The number of plain commands that are sent together: the server may run commands of other clients in between.
const LOOKS_AT_ONCE: usize = 500;
/// Servers before Redis 7.2 note all keys of a script as watched at each command in it that reads.
const LOCKS_IN_A_REQUEST: usize = 20;
/// The number of renewals that are sent together.
const REQUESTS_AT_ONCE: usize = 100;
/// The answers to so many renewals of one lock each fit into the buffers of a connection.
pub(crate) const MOST_BATCHES_AT_ONCE: usize = 32;
