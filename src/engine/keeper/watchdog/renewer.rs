//! Runs the renewal rounds: sends the requests, updates the ledgers, and reports.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::hold::HoldState;
use crate::error::{Error, Refusal};
use crate::owner::{HoldNumber, ThreadId};
use crate::script::{Renewal, RenewalAnswer};
use crate::state::ledger::Ledger;
use crate::state::renewal::{self, Batch, Lesson, RenewalRounds, RenewalTurn, next_look};
use crate::state::watch::AllHolds;
use crate::system::HashSet;
use crate::time::Instant;
use crate::transport::Slot;

/// The surroundings of a round; tests use a model of a server in virtual time.
pub(crate) trait RenewalHost {
    /// Returns the holds of this server.
    fn holds(&mut self) -> Vec<Arc<HoldState>>;

    /// Returns the holds that came into question since the start of the round.
    fn urgent(&mut self) -> Vec<Arc<HoldState>>;

    /// Uses a ledger under its mutex, and reports a loss that this use detects.
    fn with_ledger<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T;

    /// Records that the thread of this hold has ended: an unreleased hold is left to expire, and is forgotten once it is
    /// over. `is_new` where the end was not seen before.
    fn abandon(&self, hold: &Arc<HoldState>, is_new: bool);

    /// Renews holds by several requests in one write, or checks by one request whether holds still exist. No request
    /// must be empty.
    fn ask(&mut self, requests: &[Vec<&Due>], deadline: Instant) -> Result<Vec<RequestOutcome>, Error>;

    /// Renews or checks a hold over the way that its key has at present, by a few requests if necessary.
    fn ask_by_route(&mut self, due: &Due, deadline: Instant) -> Result<RenewalAnswer, Error>;

    /// Learns from a refusal, and tells what it means for the holds of the request.
    fn detour(&self, refusal: &Refusal) -> Detour;

    /// Hands a hold over to the watchdog of another server, if the hold's key is there.
    fn hand_over(&self, hold: &Arc<HoldState>) -> bool;

    /// Returns the keys that may share a request with the key of this hold.
    fn slot(&self, hold: &HoldState) -> Slot;

    /// Reports that the deadline of this hold moved.
    fn renewed(&self, hold: &Arc<HoldState>);

    /// Reports a failed renewal of this many locks, the first of which expires in `remaining`.
    fn failed(&self, locks: usize, remaining: Duration, error: Error);

    /// Reports the number of locks that this round renewed.
    fn renewed_in_round(&self, locks: usize);

    /// Reports that renewals work again, or that other servers have all holds whose renewals failed, after so long.
    fn recovered(&self, outage: Duration);
}

/// The answers to one of several requests in one write, one for each hold.
pub(crate) type RequestOutcome = Result<Vec<RenewalAnswer>, Refusal>;

/// What a refusal means for the holds of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detour {
    /// It is final, or passes on its own.
    None,
    /// Some keys are on another server now, so each key is asked about by itself.
    ByKey,
    /// All keys moved to another server.
    Moved,
}

/// The work of a round in addition to due renewals.
#[derive(Default)]
pub(crate) struct Asked {
    /// The request about all holds.
    pub(crate) all: Option<AllHolds>,
    /// The holds in question.
    pub(crate) holds: Vec<Arc<HoldState>>,
    /// The holds that were handed over by other watchdogs.
    pub(crate) moved: Vec<Arc<HoldState>>,
}

/// A due hold.
pub(crate) type Due = renewal::Due<Arc<HoldState>>;

/// Renews and checks the holds of one server, round after round.
pub(crate) struct Renewer {
    pub(super) rounds: RenewalRounds,
    /// The holds whose last request failed.
    retrying: BTreeMap<HoldNumber, Weak<HoldState>>,
    /// The holds of this round that are asked about by themselves, after the batches: another server may answer late.
    by_key: Vec<Due>,
    /// The time of the next round: soon after a failure, otherwise at the next tick.
    pub(crate) next_round: Instant,
}

impl Renewer {
    pub(crate) fn new(now: Instant, interval: Duration, batch: usize, command_timeout: Duration) -> Self {
        let rounds = RenewalRounds::new(now, interval, batch, command_timeout);
        Self { next_round: rounds.next_tick, rounds, retrying: BTreeMap::new(), by_key: vec![] }
    }

    /// Runs a round: renews due holds and checks holds in question.
    pub(crate) fn round(&mut self, host: &mut impl RenewalHost, asked: &Asked) {
        let tick = self.rounds.begin(Instant::now());
        let renews = tick || asked.all == Some(AllHolds::Renew);
        let mut retrying: Vec<_> = std::mem::take(&mut self.retrying).values().filter_map(Weak::upgrade).collect();
        let had_failed = !retrying.is_empty();
        retrying.retain(|hold| !host.hand_over(hold));
        if had_failed
            && retrying.is_empty()
            && let Some(outage) = self.rounds.left(Instant::now())
        {
            host.recovered(outage);
        }
        let all = if tick || asked.all.is_some() { host.holds() } else { vec![] };
        let mut seen = HashSet::default();
        let mut due = vec![];
        let moved = asked.moved.iter().map(|hold| (hold, true, true));
        let named = asked.holds.iter().map(|hold| (hold, renews, true));
        let others = all.iter().chain(&retrying).map(|hold| (hold, renews, asked.all.is_some()));
        for (hold, renews, asked) in moved.chain(named).chain(others) {
            if seen.insert(hold.number) {
                abandon_if_ended(host, hold);
                let turn = host.with_ledger(hold, |ledger, now| RenewalTurn::of(ledger, now, renews, asked));
                due.extend(turn.map(|turn| due_for(host, hold, turn)));
            }
        }
        self.send(host, due);
        let (renewed, recovered) = self.rounds.end(Instant::now());
        if renewed > 0 {
            host.renewed_in_round(renewed);
        }
        if let Some(outage) = recovered {
            host.recovered(outage);
        }
        self.retrying.extend(retrying.iter().map(|hold| (hold.number, Arc::downgrade(hold))));
        self.next_round = self.rounds.next_tick;
        self.retrying.retain(|_, hold| {
            let look = hold.upgrade().and_then(|hold| host.with_ledger(&hold, next_look));
            self.next_round = look.map_or(self.next_round, |look| self.next_round.min(look));
            look.is_some()
        });
    }

    /// Sends batch after batch, on a slow link several by one write. Holds that come into question meanwhile do not
    /// wait for the last batch.
    fn send(&mut self, host: &mut impl RenewalHost, due: Vec<Due>) {
        let mut batches = self.rounds.in_batches(due).into_iter().peekable();
        while let Some(mut batch) = batches.next() {
            let mut together = usize::from(!batch[0][0].turn.is_look());
            for _ in 1..self.rounds.batches_at_once(batches.len() + 1) {
                let is_like = |next: &Batch<_>| !batch[0][0].turn.is_look() && !next[0][0].turn.is_look();
                let Some(next) = batches.next_if(is_like) else { break };
                batch.extend(next);
                together += 1;
            }
            let urgent = host.urgent();
            let look = |hold: &Arc<HoldState>| Some(due_for(host, hold, host.with_ledger(hold, RenewalTurn::look)?));
            let urgent = urgent.iter().filter_map(look).collect();
            let urgent = self.rounds.in_batches(urgent).into_iter().map(|batch| (batch, 0));
            for (batch, renewals) in urgent.chain([(batch, together)]) {
                self.send_batch(host, batch.iter().map(|request| request.iter().collect()).collect(), renewals);
            }
        }
        let began = Instant::now();
        for due in std::mem::take(&mut self.by_key) {
            self.ask_by_route(host, &due, began);
        }
    }

    /// Sends a write, which puts so many batches of renewals together, or none.
    fn send_batch(&mut self, host: &mut impl RenewalHost, mut requests: Vec<Vec<&Due>>, renewals: usize) {
        // Holds that were released during the earlier batches are left out.
        requests.iter_mut().for_each(|request| request.retain(|due| is_still_due(host, due)));
        requests.retain(|request| !request.is_empty());
        let sent = Instant::now();
        let Some(first) = self.rounds.first_of(requests.iter().flatten().map(|due| due.turn), sent) else { return };
        let Some(deadline) = self.rounds.ask_until(sent, first) else {
            requests.iter().flatten().for_each(|due| self.learn(host, due, due.turn.put_off()));
            return;
        };
        let outcomes = host.ask(&requests, deadline);
        let answered = Instant::now();
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => {
                if answered >= deadline {
                    self.rounds.timed_out(renewals);
                }
                return self.failed(host, (sent, answered), &requests.concat(), error);
            }
        };
        self.rounds.wrote(sent.until(answered), renewals);
        let (mut parted, mut failed, mut cause) = (vec![], vec![], None);
        for (request, outcome) in requests.iter().zip(outcomes) {
            let error = match outcome {
                Ok(answers) if answers.len() == request.len() => {
                    self.take_answers(host, request, answers, sent);
                    continue;
                }
                Ok(_) => Error::odd_count(),
                Err(refusal) if self.takes_detour(host, &refusal, request) => continue,
                Err(refusal) => Error::refused(refusal),
            };
            // Redis refuses the whole request for one key, so the others are asked about without it.
            if error.forbids_a_key() && request.len() > 1 {
                parted.push(request);
            } else {
                failed.extend(request);
                cause.get_or_insert(error);
            }
        }
        if let Some(error) = cause {
            self.failed(host, (sent, answered), &failed, error);
        }
        for request in parted {
            let alone = request.iter().map(|due| vec![*due]);
            if request[0].turn.is_look() {
                alone.for_each(|one| self.send_batch(host, vec![one], 0));
            } else {
                self.send_batch(host, alone.collect(), 1);
            }
        }
    }

    /// Asks about a hold whose key may be on another server while its slot moves.
    fn ask_by_route(&mut self, host: &mut impl RenewalHost, due: &Due, began: Instant) {
        if !is_still_due(host, due) {
            return;
        }
        let sent = Instant::now();
        let Some(deadline) = self.rounds.ask_elsewhere_until(began, sent, due.turn) else {
            return self.learn(host, due, due.turn.put_off());
        };
        match host.ask_by_route(due, deadline) {
            Ok(answer) => {
                let lesson = match self.rounds.answered(due.turn, &answer, sent) {
                    Lesson::Looked => self.rounds.look_at_tick(Instant::now()),
                    lesson => lesson,
                };
                self.learn(host, due, lesson);
                if let RenewalAnswer::Refused(refusal) = answer {
                    tell_failure(host, 1, due.turn, Error::refused(refusal));
                }
            }
            Err(error) => {
                let (turn, now) = (due.turn, Instant::now());
                self.rounds.failed_elsewhere(sent, now, turn);
                // Any refusal passes when the slot has moved.
                self.learn(host, due, turn.put_off());
                tell_failure(host, 1, turn, error);
            }
        }
    }

    /// Sends holds where their keys are, if the refusal of their request names another way. A hold is left to the
    /// watchdog of another server; as long as its route is not known there, it is tried again.
    fn takes_detour(&mut self, host: &impl RenewalHost, refusal: &Refusal, holds: &[&Due]) -> bool {
        let detour = host.detour(refusal);
        for &due in holds {
            match detour {
                Detour::None => {}
                Detour::ByKey => self.by_key.push(due.clone()),
                Detour::Moved if host.hand_over(&due.hold) => {}
                Detour::Moved => self.learn(host, due, due.turn.put_off()),
            }
        }
        detour != Detour::None
    }

    /// Takes the failure of requests that were sent and failed at these times.
    fn failed(&mut self, host: &impl RenewalHost, (sent, now): (Instant, Instant), holds: &[&Due], error: Error) {
        let Some(first) = holds.iter().map(|due| due.turn).min_by_key(|turn| turn.good_until) else { return };
        self.rounds.failed(sent, now, first);
        holds.iter().for_each(|due| self.learn(host, due, due.turn.after_failure(&error)));
        tell_failure(host, holds.len(), first, error);
    }

    /// Takes the answers of a request.
    fn take_answers(&mut self, host: &impl RenewalHost, request: &[&Due], answers: Vec<RenewalAnswer>, sent: Instant) {
        let mut refusals = vec![];
        for (&due, answer) in request.iter().zip(answers) {
            if let RenewalAnswer::Refused(refusal) = &answer
                && self.takes_detour(host, refusal, &[due])
            {
                continue;
            }
            let lesson = self.rounds.answered(due.turn, &answer, sent);
            self.learn(host, due, lesson);
            if let RenewalAnswer::Refused(refusal) = answer {
                refusals.push((refusal, due.turn));
            }
        }
        // Holds with earlier deadlines come first.
        if let Some((refusal, first)) = refusals.first() {
            tell_failure(host, refusals.len(), *first, Error::refused(refusal.clone()));
        }
    }

    fn learn(&mut self, host: &impl RenewalHost, due: &Due, lesson: Lesson) {
        host.with_ledger(&due.hold, |ledger, now| lesson.teach(ledger, now));
        match lesson {
            Lesson::Renewed { .. } => host.renewed(&due.hold),
            Lesson::RenewAgain(_) | Lesson::LookAgain(_) => {
                self.retrying.insert(due.hold.number, Arc::downgrade(&due.hold));
            }
            Lesson::Looked | Lesson::Lost(_) => {}
        }
    }
}

/// Tells of failed renewals; `first` was the first. A check renews nothing, and its failure is not told: no recovery
/// would follow.
fn tell_failure(host: &impl RenewalHost, locks: usize, first: RenewalTurn, error: Error) {
    if !first.is_look() {
        host.failed(locks, first.remaining(Instant::now()), error);
    }
}

fn is_still_due(host: &impl RenewalHost, due: &Due) -> bool {
    host.with_ledger(&due.hold, |ledger, now| due.turn.is_still_due(ledger, now))
}

fn due_for(host: &impl RenewalHost, hold: &Arc<HoldState>, turn: RenewalTurn) -> Due {
    Due { hold: Arc::clone(hold), family: hold.kind.family(), slot: host.slot(hold), turn }
}

/// The content of the renewal of a hold, if the hold is to be renewed.
pub(crate) fn renewal(host: &impl RenewalHost, due: &Due) -> Option<Renewal> {
    let lease = due.turn.lease?;
    let (raise, reads) =
        host.with_ledger(&due.hold, |ledger, now| (ledger.raise(now, lease), ledger.counts_on_wire(now).shared));
    Some(Renewal { name: due.hold.name.clone(), owner: due.hold.owner.clone(), raise, reads })
}

/// Leaves a hold to expire whose thread has ended: the hold is renewed no more, but its loss is still told.
fn abandon_if_ended(host: &impl RenewalHost, hold: &Arc<HoldState>) {
    if hold.thread.as_ref().is_some_and(ThreadId::has_ended) {
        host.abandon(hold, host.with_ledger(hold, |ledger, _| ledger.abandon()));
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
