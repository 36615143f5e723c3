//! The watchdog: one lane for each server that has holds, renewing them on a fixed grid.

use std::sync::{Arc, Weak};
use std::thread;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use once_cell::sync::OnceCell;

use super::Engine;
use super::hold::HoldState;
use super::ledger::Ledger;
use super::node::Node;
use super::renewal::{Due, Rounds, Upkeep};
use super::wire::stopped;
use crate::conn::{Connection, Fault};
use crate::error::Error;
use crate::event::{LockAbandoned, RenewalFailed};
use crate::name::LockName;
use crate::script::{Renewal, RenewalAnswer, RenewalAnswers};
use crate::time::Instant;

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
                rounds: Rounds::new(
                    Instant::now(),
                    engine.config.watchdog_interval,
                    engine.config.watchdog_batch,
                    engine.config.command_timeout,
                ),
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
    rounds: Rounds,
}

impl Worker {
    fn run(mut self) {
        let mut wake_at = self.rounds.start();
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
            let mut upkeep = Visit { engine: &engine, node: &node, connection: &mut self.connection };
            wake_at = self.rounds.round(&mut upkeep, &asked);
        }
    }
}

/// One round's time with the engine and the server.
struct Visit<'a> {
    engine: &'a Arc<Engine>,
    node: &'a Arc<Node>,
    connection: &'a mut Connection,
}

impl Upkeep for Visit<'_> {
    fn holds(&self) -> Vec<Arc<HoldState>> {
        self.engine.registry.all().into_iter().filter(|hold| self.engine.is_on(self.node, hold)).collect()
    }

    fn with<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        self.engine.with(hold, use_ledger)
    }

    fn abandon(&self, hold: &Arc<HoldState>) {
        self.engine.registry.remove(hold);
        self.engine.outlast(hold);
        self.engine.observe(|observer| {
            observer.abandoned(&LockAbandoned { name: hold.name.to_string(), owner: hold.owner.to_string() });
        });
    }

    fn ask(&mut self, batch: &[&Due], deadline: Instant) -> Result<RenewalAnswers, Error> {
        let renewals: Vec<_> = batch
            .iter()
            .map(|due| Renewal { name: due.hold.name.clone(), owner: due.hold.owner.clone(), lease: due.lease })
            .collect();
        let call = batch[0].hold.kind.renew(&renewals);
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
            Ok(answers) => {
                let refused = |answer: &_| matches!(answer, RenewalAnswer::Refused(why) if why.is_of_replica());
                if answers.answers.iter().any(refused) {
                    self.connection.hang_up();
                }
                Ok(answers)
            }
            Err(Fault::Refused(refusal)) => Err(Error::refused(refusal)),
            // A renewal that arrives late finds its owner or nothing, so it needs no fence.
            Err(Fault::NotSent(error) | Fault::Unanswered(_, error)) => Err(error),
        }
    }

    fn renewed(&self, hold: &Arc<HoldState>) {
        self.engine.mind_if_heard(hold);
    }

    fn failed(&self, locks: usize, error: Error) {
        self.engine.observe(|observer| {
            observer.renewal_failed(&RenewalFailed { server: self.node.server.label(), locks, error });
        });
    }
}
