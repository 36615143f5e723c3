//! How locks are waited for, kept and given back; knows no kind of lock, only what kinds answer.

mod acquire;
mod background;
mod backoff;
mod bell;
mod cancel;
mod contend;
mod contender;
mod hold;
mod housekeeping;
mod hub;
mod kind;
mod ledger;
mod line;
mod loss;
mod node;
mod registry;
mod release;
mod renewal;
#[cfg(all(test, shuttle))]
mod schedules;
mod settle;
mod topics;
mod watchdog;
mod wire;

pub(crate) use acquire::{Grant, Wait, Wish};
pub use cancel::Cancel;
pub(crate) use hold::HoldState;
pub(crate) use kind::{Ask, Kind, Pauses, Queueing, Waking};
pub(crate) use ledger::{GuardNumber, Phase};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::config::Config;
use crate::conn::{Server, Topology};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{ListeningFailed, Observer};
use crate::name::LockName;
use crate::owner::{HoldNumber, Home, OwnerId, Owners, ThreadId, ThreadNumber};
use crate::script::Call;
use crate::sync::Mutex;
use crate::time::Lease;
use background::Background;
use bell::Bells;
use hub::{Hub, Reports};
use line::Lines;
use node::Node;
use registry::Registry;
use wire::Bounds;

/// Everything that belongs to one client.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) owners: Owners,
    pub(crate) registry: Registry,
    watchdog_lease: Lease,
    pub(crate) fair_patience: Lease,
    topology: Box<dyn Topology>,
    nodes: Mutex<Vec<Arc<Node>>>,
    lines: Lines,
    settler: Background,
    teller: Background,
    timer: Background,
    trimming: AtomicBool,
    closing: Bells,
    closed: AtomicBool,
    has_observer: bool,
    home: Home,
    myself: Weak<Self>,
}

impl Engine {
    pub(crate) fn new(config: Config, topology: Box<dyn Topology>) -> Result<Arc<Self>> {
        let watchdog_lease = config.watchdog_lease()?;
        let fair_patience = Lease::new(config.fair_patience)?;
        Ok(Arc::new_cyclic(|myself| Self {
            watchdog_lease,
            fair_patience,
            owners: Owners::new(),
            registry: Registry::default(),
            topology,
            nodes: Mutex::default(),
            lines: Lines::default(),
            settler: Background::new("lockson-settle"),
            teller: Background::new("lockson-tell"),
            timer: Background::new("lockson-timer"),
            trimming: AtomicBool::new(false),
            closing: Bells::default(),
            closed: AtomicBool::new(false),
            has_observer: config.has_observer,
            home: Home::here(),
            myself: Weak::clone(myself),
            config,
        }))
    }

    /// Asks Redis a question that changes nothing.
    pub(crate) fn ask<T>(&self, call: &Call<T>) -> Result<T> {
        let unanswered = |error: Error| match error.kind() {
            // Nothing had any effect, so nothing is unknown.
            ErrorKind::Unknown => Error::with_source(ErrorKind::Connection, "redis did not answer the question", error),
            _ => error,
        };
        self.send(call, true).map_err(unanswered)
    }

    /// Has Redis do something once, no matter whose hold it concerns.
    pub(crate) fn command<T>(&self, call: &Call<T>) -> Result<T> {
        self.send(call, false)
    }

    fn send<T>(&self, call: &Call<T>, repeat: bool) -> Result<T> {
        let limit = self.config.command_timeout;
        let node = self.node(call.route());
        let answer = wire::send(&node.server, call, &Bounds { repeat, ..Bounds::within(limit, limit) });
        self.after_request(&node);
        answer.map(|answer| answer.value).map_err(|failed| {
            if let Some(loose) = failed.loose.filter(|_| !repeat) {
                self.fence_later(call.route().clone(), loose);
            }
            failed.error
        })
    }

    /// Something happened to this lock that we did not do: asks soon whether our holds are still ours.
    pub(crate) fn check(&self, name: &LockName) {
        if self.registry.under(name).is_empty() {
            return;
        }
        let node = self.node(name);
        if let Some(engine) = self.myself.upgrade() {
            node.lane.start(&engine, &node);
        }
        node.lane.check(name);
    }

    /// The name that stands in Redis. No name stays none: a prefix alone names no lock.
    pub(crate) fn full_name(&self, name: &str) -> Arc<str> {
        if name.is_empty() { name.into() } else { format!("{}{name}", self.config.name_prefix).into() }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether this is a forked child's copy: what the parent holds is not the child's.
    pub(crate) fn is_forked(&self) -> bool {
        self.home.is_elsewhere()
    }

    /// Tells the observer. A panic of it must end neither a thread of the client nor a caller's request.
    pub(crate) fn observe(&self, event: impl FnOnce(&dyn Observer)) {
        if self.has_observer {
            let _ = catch_unwind(AssertUnwindSafe(|| event(&*self.config.observer)));
        }
    }

    fn draw_owner(&self, kind: &dyn Kind, thread: Option<&ThreadId>) -> (HoldNumber, OwnerId) {
        // An owned hold is no thread's; zero is no thread's number.
        let (number, owner) = self.owners.draw(thread.map_or(ThreadNumber(0), ThreadId::number));
        (number, kind.written(owner))
    }

    /// The server of a name, with its hub and its lane.
    fn node(&self, name: &LockName) -> Arc<Node> {
        let server = self.topology.server_for(name.key());
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.iter().find(|node| Arc::ptr_eq(&node.server, server)) {
            return Arc::clone(node);
        }
        let reports = Box::new(EngineReports(Weak::clone(&self.myself)));
        let hub = Arc::new(Hub::new(Arc::clone(server), self.config.command_timeout, reports));
        let node = Arc::new(Node::new(Arc::clone(server), hub));
        nodes.push(Arc::clone(&node));
        node
    }

    fn is_on(&self, node: &Node, hold: &HoldState) -> bool {
        Arc::ptr_eq(&node.server, self.topology.server_for(hold.name.key()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the hub reports, brought to the engine.
#[derive(Debug)]
struct EngineReports(Weak<Engine>);

impl Reports for EngineReports {
    fn announced(&self, name: &LockName) {
        if let Some(engine) = self.0.upgrade() {
            engine.check(name);
        }
    }

    fn listening_failed(&self, server: &Server, error: Error) {
        if let Some(engine) = self.0.upgrade() {
            engine.observe(|observer| observer.listening_failed(&ListeningFailed { server: server.label(), error }));
        }
    }
}
