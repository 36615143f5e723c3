//! The watchdog: one lane for each server that has holds, renewing them on a fixed grid.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use once_cell::sync::OnceCell;

use super::Engine;
use super::hold::HoldState;
use super::ledger::Phase;
use super::node::Node;
use super::wire::stopped;
use crate::conn::{Connection, Fault};
use crate::error::{Error, ErrorKind};
use crate::event::RenewalFailed;
use crate::name::LockName;
use crate::script::{Call, Renewal, RenewalAnswer, RenewalAnswers};
use crate::time::{Instant, Lease};

/// The way to the worker of one server; the worker starts at first use.
#[derive(Debug, Default)]
pub(crate) struct Lane(OnceCell<Sender<Note>>);

/// What the worker is told between its rounds.
#[derive(Debug)]
enum Note {
    /// Something was announced about this lock: ask whether we still have it.
    Check(LockName),
    /// The client was closed.
    Close,
}

impl Lane {
    /// Starts the worker if it does not run yet.
    pub(crate) fn start(&self, engine: &Arc<Engine>, node: &Arc<Node>) {
        if self.0.get().is_some() {
            return;
        }
        let _ = self.0.get_or_try_init(|| {
            // A few notes may wait; more would say nothing new, since every round looks at all holds.
            let (notes, inbox) = bounded(64);
            let worker = Worker {
                engine: Arc::downgrade(engine),
                node: Arc::downgrade(node),
                inbox,
                connection: node.server.connection(),
                next_tick: Instant::now().after(engine.config.watchdog_interval),
                interval: engine.config.watchdog_interval,
                clocks: None,
            };
            // Where no thread can be started, holds run out and say so; the next acquire tries again.
            thread::Builder::new().name("lockson-watchdog".into()).spawn(move || worker.run()).map(|_| notes)
        });
    }

    /// Asks soon whether the holds of `name` are still ours.
    pub(crate) fn check(&self, name: &LockName) {
        if let Some(notes) = self.0.get() {
            let _ = notes.try_send(Note::Check(name.clone()));
        }
    }

    /// Has the worker see that the client was closed.
    pub(crate) fn close(&self) {
        if let Some(notes) = self.0.get() {
            let _ = notes.try_send(Note::Close);
        }
    }
}

/// The thread that keeps the holds of one server alive.
struct Worker {
    engine: Weak<Engine>,
    node: Weak<Node>,
    inbox: Receiver<Note>,
    /// Of its own, so that it never waits behind the callers.
    connection: Connection,
    /// The grid: ticks are `interval` apart whatever a round takes.
    next_tick: Instant,
    interval: Duration,
    /// Our clock and the server's at the last answer.
    clocks: Option<(Instant, u64)>,
}

impl Worker {
    fn run(mut self) {
        let mut wake_at = self.next_tick;
        loop {
            let mut asked = vec![];
            match self.inbox.recv_timeout(Instant::now().nap_until(wake_at)) {
                Ok(Note::Check(name)) => asked.push(name),
                Err(RecvTimeoutError::Timeout) if Instant::now() < wake_at => continue,
                Ok(Note::Close) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let (Some(engine), Some(node)) = (self.engine.upgrade(), self.node.upgrade()) else { return };
            if engine.is_closed() {
                return;
            }
            wake_at = self.round(&engine, &node, &asked);
        }
    }

    /// Renews what is due and tells what is lost. Says when to look again.
    fn round(&mut self, engine: &Arc<Engine>, node: &Arc<Node>, asked: &[LockName]) -> Instant {
        let now = Instant::now();
        let tick = now >= self.next_tick;
        while self.next_tick <= now {
            self.next_tick = self.next_tick.after(self.interval);
        }
        let holds: Vec<_> = engine.registry.all().into_iter().filter(|hold| engine.is_on(node, hold)).collect();
        let due = holds.iter().filter_map(|hold| due(engine, hold, tick, asked)).collect();
        self.renew(engine, node, due);
        let next = holds.iter().filter_map(|hold| next_look(engine, hold)).min();
        next.map_or(self.next_tick, |next| next.min(self.next_tick))
    }

    /// Sends batch after batch, those that end first first.
    fn renew(&mut self, engine: &Arc<Engine>, node: &Node, mut due: Vec<Due>) {
        due.sort_by_key(|due| due.good_until);
        let mut by_kind: HashMap<&'static str, Vec<Due>> = HashMap::new();
        for due in due {
            by_kind.entry(due.hold.kind.family()).or_default().push(due);
        }
        let mut batches: Vec<_> = by_kind.values().flat_map(|due| due.chunks(engine.config.watchdog_batch)).collect();
        batches.sort_by_key(|batch| batch[0].good_until);
        let mut waited_in_vain = Duration::ZERO;
        for batch in batches {
            // One mute server costs one time-out a round, however many batches wait.
            if waited_in_vain >= engine.config.command_timeout {
                put_off(engine, batch);
                continue;
            }
            let started = Instant::now();
            if let Err(error) = self.renew_batch(engine, node, batch) {
                waited_in_vain += started.until(Instant::now());
                put_off(engine, batch);
                report(engine, node, batch.len(), error);
            }
        }
    }

    fn renew_batch(&mut self, engine: &Arc<Engine>, node: &Node, batch: &[Due]) -> Result<(), Error> {
        let renewals: Vec<_> = batch
            .iter()
            .map(|due| Renewal { name: due.hold.name.clone(), owner: due.hold.owner.clone(), lease: due.lease })
            .collect();
        let call = batch[0].hold.kind.renew(&renewals);
        let sent = Instant::now();
        // A mute server must not keep us from trying again before the first of them ends.
        let deadline = sent.after(engine.config.command_timeout).min(batch[0].good_until.max(sent.after(SHORTEST_ASK)));
        let answers = self.ask(&call, deadline)?;
        if answers.answers.len() != batch.len() {
            return Err(Error::new(ErrorKind::Unknown, "redis answered for another number of locks"));
        }
        let ahead = self.server_ran_ahead(sent, answers.server_time_ms);
        let mut refusals = vec![];
        for (due, answer) in batch.iter().zip(answers.answers) {
            let Due { hold, lease, .. } = due;
            match answer {
                RenewalAnswer::Renewed => {
                    engine.with(hold, |ledger, _| {
                        ledger.confirmed(sent, *lease);
                        if ahead > lease.margin() {
                            ledger.server_ran_ahead(ahead);
                        }
                    });
                    engine.mind_if_heard(hold);
                }
                RenewalAnswer::Lost(loss) => engine.lose(hold, loss),
                RenewalAnswer::Refused(refusal) => {
                    refusals.push(refusal);
                    put_off(engine, std::slice::from_ref(due));
                }
            }
        }
        if let Some(refusal) = refusals.first() {
            report(engine, node, refusals.len(), Error::refused(refusal.clone()));
        }
        Ok(())
    }

    fn ask(&mut self, call: &Call<RenewalAnswers>, deadline: Instant) -> Result<RenewalAnswers, Error> {
        let read = |reply: &_| call.read(reply);
        let mut answer = match call.round_trips() {
            None => self.connection.request(&call.packed(), deadline, read),
            Some(talk) => self.connection.converse(deadline, |say| Some(talk.run(say)?.map_err(stopped))),
        };
        if let Err(Fault::Refused(refusal)) = &answer
            && refusal.word() == "NOSCRIPT"
            && let Some(whole) = call.packed_with_source()
        {
            answer = self.connection.request(&whole, deadline, read);
        }
        match answer {
            Ok(answers) => Ok(answers),
            Err(Fault::Refused(refusal)) => Err(Error::refused(refusal)),
            // A renewal that arrives late finds its owner or nothing, so it needs no fence.
            Err(Fault::NotSent(error) | Fault::Unanswered(_, error)) => Err(error),
        }
    }

    /// By how much the server's clock ran faster than ours since the last answer.
    fn server_ran_ahead(&mut self, sent: Instant, server_ms: u64) -> Duration {
        let before = self.clocks.replace((sent, server_ms));
        let Some((ours, theirs)) = before else { return Duration::ZERO };
        let by_theirs = Duration::from_millis(server_ms.saturating_sub(theirs));
        // From the earlier request to now is the longest that can have passed here.
        by_theirs.saturating_sub(ours.until(Instant::now()))
    }
}

/// A hold whose turn it is.
struct Due {
    hold: Arc<HoldState>,
    lease: Lease,
    /// Its deadline when it was looked at.
    good_until: Instant,
}

/// What to renew a hold with, if it is its turn. A thread that ended leaves nothing to renew.
fn due(engine: &Arc<Engine>, hold: &Arc<HoldState>, tick: bool, asked: &[LockName]) -> Option<Due> {
    if hold.thread.as_ref().is_some_and(crate::owner::ThreadId::has_ended) {
        engine.abandon(hold);
        return None;
    }
    let (lease, good_until) = engine.with(hold, |ledger, now| {
        let asked = asked.contains(&hold.name);
        let turn = tick || asked || ledger.retry_at().is_some_and(|at| at <= now);
        let lease = if turn { ledger.renewal(now) } else { None };
        // A lease is never renewed, but it can be asked about: so short a one raises nothing.
        let question = || (asked && ledger.look(now) == Phase::Live).then_some(Lease::SHORTEST);
        (lease.or_else(question), ledger.good_until())
    });
    lease.map(|lease| Due { hold: Arc::clone(hold), lease, good_until })
}

/// When a hold whose renewal failed is looked at again: soon, at the latest when its deadline comes.
fn next_look(engine: &Arc<Engine>, hold: &HoldState) -> Option<Instant> {
    engine.with(hold, |ledger, now| {
        ledger.renewal(now)?;
        ledger.retry_at().map(|at| at.min(ledger.good_until()))
    })
}

/// An unknown answer is no loss: it is asked again soon, until the hold's own deadline.
fn put_off(engine: &Arc<Engine>, batch: &[Due]) {
    for due in batch {
        let pause = (due.lease.duration() / 30).clamp(SHORTEST_RETRY, LONGEST_RETRY);
        engine.with(&due.hold, |ledger, now| ledger.renewal_failed(now.after(pause)));
    }
}

fn report(engine: &Arc<Engine>, node: &Node, locks: usize, error: Error) {
    engine.observe(|observer| {
        observer.renewal_failed(&RenewalFailed { server: node.server.label(), locks, error });
    });
}

impl Engine {
    /// The thread of this hold ended without giving it back: it is left to its time to live.
    fn abandon(&self, hold: &Arc<HoldState>) {
        self.registry.remove(hold);
        self.observe(|observer| {
            observer
                .abandoned(&crate::event::LockAbandoned { name: hold.name.to_string(), owner: hold.owner.to_string() });
        });
    }
}

/// A batch whose first hold is about to end is asked about all the same, for the sake of the others.
const SHORTEST_ASK: Duration = Duration::from_millis(50);
const SHORTEST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(1);
