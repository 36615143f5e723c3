//! Which holds are renewed when, and what the answers mean for them; decides, and leaves the doing to others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::hold::HoldState;
use super::ledger::{Ledger, Phase};
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::owner::ThreadId;
use crate::script::{RenewalAnswer, RenewalAnswers};
use crate::time::{Instant, Lease};

/// What a round needs from its surroundings; tests drive it with a model of a server on virtual time.
pub(super) trait Upkeep {
    /// The holds of this server.
    fn holds(&self) -> Vec<Arc<HoldState>>;

    /// Uses a ledger under its mutex; a loss that comes to light by that is told.
    fn with<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T;

    /// The thread of this hold ended without giving it back: it is left to its time to live.
    fn abandon(&self, hold: &Arc<HoldState>);

    /// Asks once for all of these, at least one.
    fn ask(&mut self, batch: &[&Due], deadline: Instant) -> Result<RenewalAnswers, Error>;

    /// The deadline of this hold was put off.
    fn renewed(&self, hold: &Arc<HoldState>);

    /// So many locks could not be renewed.
    fn failed(&self, locks: usize, error: Error);
}

/// A hold whose turn it is.
pub(super) struct Due {
    pub(super) hold: Arc<HoldState>,
    pub(super) lease: Lease,
    /// Its deadline when it was looked at.
    good_until: Instant,
}

/// The rounds over the holds of one server.
#[derive(Debug)]
pub(super) struct Rounds {
    grid: Grid,
    clocks: Clocks,
    /// How many locks one request renews.
    batch: usize,
    command_timeout: Duration,
}

impl Rounds {
    pub(super) fn new(now: Instant, interval: Duration, batch: usize, command_timeout: Duration) -> Self {
        let grid = Grid { next: now.after(interval), interval };
        Self { grid, clocks: Clocks::default(), batch, command_timeout }
    }

    /// When the first round is due.
    pub(super) fn start(&self) -> Instant {
        self.grid.next
    }

    /// Renews what is due, and what is asked for. Says when to look again.
    pub(super) fn round(&mut self, upkeep: &mut impl Upkeep, asked: &[LockName]) -> Instant {
        let tick = self.grid.tick(Instant::now());
        let mut holds = upkeep.holds();
        holds.retain(|hold| {
            let ended = hold.thread.as_ref().is_some_and(ThreadId::has_ended);
            if ended {
                upkeep.abandon(hold);
            }
            !ended
        });
        let due = |hold: &Arc<HoldState>| {
            let asked = asked.contains(&hold.name);
            let turn = |ledger: &mut Ledger, now| Some((turn(ledger, now, tick, asked)?, ledger.good_until()));
            let (lease, good_until) = upkeep.with(hold, turn)?;
            Some(Due { hold: Arc::clone(hold), lease, good_until })
        };
        let due = holds.iter().filter_map(due).collect();
        self.renew(upkeep, due);
        let next = holds.iter().filter_map(|hold| upkeep.with(hold, next_look)).min();
        next.map_or(self.grid.next, |next| next.min(self.grid.next))
    }

    /// Sends batch after batch, those that end first first.
    fn renew(&mut self, upkeep: &mut impl Upkeep, mut due: Vec<Due>) {
        due.sort_by_key(|due| due.good_until);
        let mut by_kind: HashMap<&'static str, Vec<Due>> = HashMap::new();
        for due in due {
            by_kind.entry(due.hold.kind.family()).or_default().push(due);
        }
        let mut batches: Vec<_> = by_kind.values().flat_map(|due| due.chunks(self.batch)).collect();
        batches.sort_by_key(|batch| batch[0].good_until);
        let mut waited_in_vain = Duration::ZERO;
        for batch in batches {
            // What was given back while the batches before this one were under way is left out.
            let wanted = |due: &&Due| upkeep.with(&due.hold, |ledger, now| is_still_due(ledger, now, due.lease));
            let batch: Vec<&Due> = batch.iter().filter(wanted).collect();
            if batch.is_empty() {
                continue;
            }
            // One mute server costs one time-out a round, however many batches wait.
            if waited_in_vain >= self.command_timeout {
                put_off(upkeep, &batch);
                continue;
            }
            let started = Instant::now();
            if let Err(error) = self.renew_batch(upkeep, &batch) {
                waited_in_vain += started.until(Instant::now());
                put_off(upkeep, &batch);
                upkeep.failed(batch.len(), error);
            }
        }
    }

    fn renew_batch(&mut self, upkeep: &mut impl Upkeep, batch: &[&Due]) -> Result<(), Error> {
        let sent = Instant::now();
        // A mute server must not keep us from trying again before the first of them ends.
        let deadline = sent.after(self.command_timeout).min(batch[0].good_until.max(sent.after(SHORTEST_ASK)));
        let answers = upkeep.ask(batch, deadline)?;
        if answers.answers.len() != batch.len() {
            return Err(Error::new(ErrorKind::Unknown, "redis answered for another number of locks"));
        }
        let (ahead, within) = self.clocks.server_ran_ahead(sent, Instant::now(), answers.server_time_ms);
        let mut refusals = vec![];
        for (&due, answer) in batch.iter().zip(answers.answers) {
            let Due { hold, lease, .. } = due;
            match answer {
                RenewalAnswer::Renewed => {
                    upkeep.with(hold, |ledger, now| {
                        ledger.renewed(sent, *lease);
                        ledger.server_ran_ahead(now, ahead, within);
                    });
                    upkeep.renewed(hold);
                }
                RenewalAnswer::Lost(loss) => upkeep.with(hold, |ledger, _| ledger.lose(loss)),
                RenewalAnswer::Refused(refusal) => {
                    refusals.push(refusal);
                    put_off(upkeep, &[due]);
                }
            }
        }
        if let Some(refusal) = refusals.first() {
            upkeep.failed(refusals.len(), Error::refused(refusal.clone()));
        }
        Ok(())
    }
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

/// Our clock and the server's at the last answer.
#[derive(Debug, Default)]
struct Clocks(Option<(Instant, u64)>);

impl Clocks {
    /// By how much the server's clock ran faster than ours since the last answer, and how long that is ago.
    fn server_ran_ahead(&mut self, sent: Instant, now: Instant, server_ms: u64) -> (Duration, Duration) {
        let before = self.0.replace((sent, server_ms));
        let Some((ours, theirs)) = before else { return (Duration::ZERO, Duration::ZERO) };
        let by_theirs = Duration::from_millis(server_ms.saturating_sub(theirs));
        // From the earlier request to now is the longest that can have passed here.
        let by_ours = ours.until(now);
        (by_theirs.saturating_sub(by_ours), by_ours)
    }
}

/// What to renew a hold with, if it is its turn.
fn turn(ledger: &mut Ledger, now: Instant, tick: bool, asked: bool) -> Option<Lease> {
    let turn = tick || asked || ledger.retry_at().is_some_and(|at| at <= now);
    let lease = if turn { ledger.renewal(now) } else { None };
    // A lease is never renewed, but it can be asked about: so short a one raises nothing.
    lease.or_else(|| (asked && ledger.look(now) == Phase::Live).then_some(Lease::SHORTEST))
}

/// Whether this lease is still what to ask with.
fn is_still_due(ledger: &mut Ledger, now: Instant, lease: Lease) -> bool {
    ledger.renewal(now) == Some(lease) || (lease == Lease::SHORTEST && ledger.look(now) == Phase::Live)
}

/// When a hold whose renewal failed is looked at again: soon, at the latest when its deadline comes.
fn next_look(ledger: &mut Ledger, now: Instant) -> Option<Instant> {
    ledger.renewal(now)?;
    ledger.retry_at().map(|at| at.min(ledger.good_until()))
}

/// An unknown answer is no loss: it is asked again soon, until the hold's own deadline.
fn put_off(upkeep: &impl Upkeep, batch: &[&Due]) {
    for due in batch {
        let pause = (due.lease.duration() / 30).clamp(SHORTEST_RETRY, LONGEST_RETRY);
        upkeep.with(&due.hold, |ledger, now| ledger.renewal_failed(now.after(pause)));
    }
}

/// A batch whose first hold is about to end is asked about all the same, for the sake of the others.
const SHORTEST_ASK: Duration = Duration::from_millis(50);
const SHORTEST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
