//! Runs the renewal rounds: sends the requests, updates the ledgers, and reports.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::holds::hold::HoldState;
use crate::error::Error;
use crate::owner::ThreadId;
use crate::script::{Renewal, RenewalAnswer, RenewalAnswers};
use crate::state::clocks::Pace;
use crate::state::ledger::Ledger;
use crate::state::renewal::{self, Lesson, Outcome, Rounds, Turn, next_look};
use crate::state::watch::All;
use crate::time::Instant;
use crate::transport::MachineNumber;

/// The surroundings of a round; tests use a model of a server in virtual time.
pub(crate) trait RenewalHost {
    /// Returns the holds of this server.
    fn holds(&self) -> Vec<Arc<HoldState>>;

    /// Returns the holds that came into question since the start of the round.
    fn urgent(&mut self) -> Vec<Arc<HoldState>>;

    /// Uses a ledger under its mutex, and reports a loss that this use detects.
    fn with_ledger<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T;

    /// Records that the thread of this hold has ended: an unreleased hold is left to expire.
    fn abandon(&self, hold: &Arc<HoldState>);

    /// Renews these holds with one request. The slice must not be empty.
    fn renew(&mut self, batch: &[&Due], deadline: Instant) -> Result<RenewalAnswers, Error>;

    /// Checks once whether these holds still exist. The slice must not be empty.
    fn look(&mut self, batch: &[&Due], deadline: Instant) -> Result<Vec<RenewalAnswer>, Error>;

    /// Returns the machine that answered last.
    fn machine(&self) -> MachineNumber;

    /// Reports that the deadline of this hold moved.
    fn renewed(&self, hold: &Arc<HoldState>);

    /// Reports a failed renewal of this many locks, the first of which expires in `remaining`.
    fn failed(&self, locks: usize, remaining: Duration, error: Error);

    /// Reports the number of locks that this round renewed.
    fn renewed_in_round(&self, locks: usize);

    /// Reports that renewals work again, after they had failed for this time.
    fn recovered(&self, outage: Duration);
}

/// The work of a round in addition to due renewals.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The request about all holds.
    pub(crate) all: Option<All>,
    /// The holds in question.
    pub(crate) holds: Vec<Arc<HoldState>>,
}

/// A due hold.
pub(crate) type Due = renewal::Due<Arc<HoldState>>;

/// Renews and checks the holds of one server, round after round.
#[derive(Debug)]
pub(crate) struct Renewer {
    rounds: Rounds,
    /// The holds whose last request failed.
    retrying: Vec<Weak<HoldState>>,
}

impl Renewer {
    pub(crate) fn new(now: Instant, interval: Duration, batch: usize, command_timeout: Duration) -> Self {
        Self { rounds: Rounds::new(now, interval, batch, command_timeout), retrying: vec![] }
    }

    /// The time of the next renewal of all holds.
    pub(crate) fn next_tick(&self) -> Instant {
        self.rounds.next_tick()
    }

    /// Runs a round: renews due holds and checks holds in question. Returns the time of the next round.
    pub(crate) fn round(&mut self, host: &mut impl RenewalHost, asked: &Asked) -> Instant {
        let scope = self.rounds.begin(Instant::now(), asked.all);
        let retrying: Vec<_> = std::mem::take(&mut self.retrying).iter().filter_map(Weak::upgrade).collect();
        let all = if scope.is_everything { host.holds() } else { vec![] };
        let mut seen = HashSet::new();
        let mut due = vec![];
        let named = asked.holds.iter().map(|hold| (hold, true));
        let others = all.iter().chain(&retrying).map(|hold| (hold, asked.all.is_some()));
        // At a mere tick no hold occurs twice.
        let twice = !(asked.holds.is_empty() && retrying.is_empty());
        for (hold, asked) in named.chain(others) {
            if !twice || seen.insert(hold.number) {
                abandon_if_ended(host, hold);
                let turn = host.with_ledger(hold, |ledger, now| Turn::of(ledger, now, scope.renews, asked));
                due.extend(turn.map(|turn| due_for(hold, turn)));
            }
        }
        self.send(host, due);
        let Outcome { renewed, recovered } = self.rounds.end(Instant::now());
        if renewed > 0 {
            host.renewed_in_round(renewed);
        }
        if let Some(outage) = recovered {
            host.recovered(outage);
        }
        self.retrying.extend(retrying.iter().map(Arc::downgrade));
        self.next_round(host)
    }

    /// The time of the next round: soon after a failure, otherwise at the next tick.
    fn next_round(&mut self, host: &impl RenewalHost) -> Instant {
        let mut next = self.rounds.next_tick();
        let mut seen = HashSet::new();
        self.retrying.retain(|hold| {
            let is_new = |hold: &Arc<HoldState>| seen.insert(hold.number);
            let Some(hold) = hold.upgrade().filter(is_new) else { return false };
            let look = host.with_ledger(&hold, next_look);
            next = look.map_or(next, |look| next.min(look));
            look.is_some()
        });
        next
    }

    /// Sends batch after batch. Holds that come into question meanwhile do not wait for the last batch.
    fn send(&mut self, host: &mut impl RenewalHost, due: Vec<Due>) {
        for batch in self.rounds.in_batches(due) {
            let urgent = host.urgent();
            let look = |hold: &Arc<HoldState>| Some(due_for(hold, host.with_ledger(hold, Turn::look)?));
            let urgent = urgent.iter().filter_map(look).collect();
            for batch in self.rounds.in_batches(urgent).into_iter().chain([batch]) {
                self.send_batch(host, &batch.iter().collect::<Vec<_>>());
            }
        }
    }

    fn send_batch(&mut self, host: &mut impl RenewalHost, batch: &[&Due]) {
        // Holds that were released during the earlier batches are left out.
        let wanted = |due: &&Due| host.with_ledger(&due.hold, |ledger, now| due.turn().is_still_due(ledger, now));
        let batch: Vec<&Due> = batch.iter().copied().filter(wanted).collect();
        let Some(first) = batch.first().map(|due| due.turn()) else { return };
        let sent = Instant::now();
        let Some(deadline) = self.rounds.ask_until(sent, first) else {
            batch.iter().for_each(|due| self.learn(host, due, due.turn().put_off()));
            return;
        };
        match ask(host, &batch, deadline) {
            Ok((server_time_ms, answers)) => {
                let machine = host.machine();
                let pace = |time_ms| self.rounds.pace(machine, sent, Instant::now(), time_ms);
                let pace = server_time_ms.map_or_else(Pace::default, pace);
                self.take_answers(host, &batch, answers, sent, pace);
            }
            // Redis refuses the whole request for one key, so the others are asked about without it.
            Err(error) if error.forbids_a_key() && batch.len() > 1 => {
                let (one, other) = batch.split_at(batch.len() / 2);
                self.send_batch(host, one);
                self.send_batch(host, other);
            }
            Err(error) => {
                let now = Instant::now();
                self.rounds.failed(sent, now, first);
                batch.iter().for_each(|due| self.learn(host, due, due.turn().after_failure(&error)));
                host.failed(batch.len(), first.remaining(now), error);
            }
        }
    }

    fn take_answers(
        &mut self,
        host: &impl RenewalHost,
        batch: &[&Due],
        answers: Vec<RenewalAnswer>,
        sent: Instant,
        pace: Pace,
    ) {
        let mut refusals = vec![];
        for (&due, answer) in batch.iter().zip(answers) {
            let lesson = self.rounds.answered(due.turn(), &answer, sent, pace);
            self.learn(host, due, lesson);
            if let RenewalAnswer::Refused(refusal) = answer {
                refusals.push((refusal, due.turn().remaining(Instant::now())));
            }
        }
        // Holds with earlier deadlines come first.
        if let Some((refusal, remaining)) = refusals.first() {
            host.failed(refusals.len(), *remaining, Error::refused(refusal.clone()));
        }
    }

    fn learn(&mut self, host: &impl RenewalHost, due: &Due, lesson: Lesson) {
        host.with_ledger(&due.hold, |ledger, now| lesson.teach(ledger, now));
        match lesson {
            Lesson::Renewed { .. } => host.renewed(&due.hold),
            Lesson::RenewAgain(_) | Lesson::LookAgain(_) => self.retrying.push(Arc::downgrade(&due.hold)),
            Lesson::Looked | Lesson::Lost(_) => {}
        }
    }
}

/// Sends a batch. Returns the time of the server, where the reply contains it, and one answer for each hold.
fn ask(
    host: &mut impl RenewalHost,
    batch: &[&Due],
    deadline: Instant,
) -> Result<(Option<u64>, Vec<RenewalAnswer>), Error> {
    let (server_time_ms, answers) = if batch.first().is_some_and(|due| due.turn().is_look()) {
        (None, host.look(batch, deadline)?)
    } else {
        let RenewalAnswers { server_time_ms, answers } = host.renew(batch, deadline)?;
        (Some(server_time_ms), answers)
    };
    if answers.len() != batch.len() {
        return Err(Error::odd_count());
    }
    Ok((server_time_ms, answers))
}

fn due_for(hold: &Arc<HoldState>, turn: Turn) -> Due {
    Due::new(Arc::clone(hold), hold.kind.family(), turn)
}

/// The content of the renewal of a hold, if the hold is to be renewed.
pub(crate) fn renewal(host: &impl RenewalHost, due: &Due) -> Option<Renewal> {
    let lease = due.turn().lease()?;
    let raise = host.with_ledger(&due.hold, |ledger, now| ledger.raise(now, lease));
    Some(Renewal { name: due.hold.name.clone(), owner: due.hold.owner.clone(), raise })
}

/// Leaves a hold to expire whose thread has ended: the hold is renewed no more, but its loss is still told.
fn abandon_if_ended(host: &impl RenewalHost, hold: &Arc<HoldState>) {
    let has_ended = hold.thread.as_ref().is_some_and(ThreadId::has_ended);
    if has_ended && host.with_ledger(hold, |ledger, _| ledger.abandon()) {
        host.abandon(hold);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
