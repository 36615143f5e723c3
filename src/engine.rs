//! The engine: takes, holds and releases locks of any kind.

mod acquire;
mod background;
mod caller;
mod cells;
mod closing;
mod examination;
mod handle;
mod hold;
mod inquiry;
mod keeper;
mod life;
mod node;
mod release;
mod request;
#[cfg(all(test, shuttle))]
mod schedules;
mod sender;
pub(crate) mod several;

pub(crate) use acquire::counted::{CountedRequest, Reply};
pub(crate) use cells::taken::{Taken, Ticket};
pub(crate) use handle::Handle;
pub(crate) use hold::HoldState;
pub(crate) use inquiry::{Inquiry, Verdict};
pub(crate) use request::{AcquireRequest, Grant, Wait};
pub(crate) use sender::numbered::Numbered;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::bell::Bells;
use crate::config::Config;
use crate::conn::{Server, Topology};
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::event::{ListeningFailed, Observer};
use crate::kinds::Kind;
use crate::name::LockName;
use crate::owner::{HoldNumber, Home, OwnerId, Owners, ThreadId, ThreadNumber};
use crate::script::{Call, IfLock, NotALock};
use crate::state::exchange::Bounds;
use crate::sync::Mutex;
use crate::time::{Instant, Lease};
use crate::transport::Slot;
use background::Background;
use caller::Caller;
use cells::hub::{Hub, Reports};
use cells::local_queues::LocalQueues;
use cells::registry::Registry;
use cells::stand_backs::StandBacks;
use cells::waiters::Waiters;
use keeper::callbacks::Callbacks;
use keeper::heartbeat::Heartbeat;
use keeper::watchdog::thread::Watchdog;
use life::UnderWay;
use node::Node;

/// The state of one client.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) owners: Owners,
    pub(crate) registry: Registry,
    pub(crate) waiters: Waiters,
    watchdog_lease: Lease,
    pub(crate) fair_patience: Lease,
    topology: Box<dyn Topology>,
    /// The nodes that were made, each at the number of its server.
    nodes: Mutex<Vec<Option<Arc<Node>>>>,
    local_queues: LocalQueues,
    pub(crate) counted_queues: cells::counted_queues::Queues,
    numbers: sender::numbered::Numbers,
    pub(crate) taken: cells::taken::AllTaken,
    stand_backs: StandBacks,
    cleaner: Background,
    callbacks: Callbacks,
    timer: Background,
    trimming: AtomicBool,
    under_way: UnderWay,
    heartbeat: Arc<Heartbeat>,
    /// The bells of pausing callers; `close()` rings them.
    closing: Bells,
    has_observer: bool,
    home: Home,
    myself: Weak<Self>,
}

impl Engine {
    pub(crate) fn new(config: Config, owners: Owners, topology: Box<dyn Topology>) -> Result<Arc<Self>> {
        let watchdog_lease = config.watchdog_lease()?;
        let fair_patience = Lease::new(config.fair_patience)?;
        Ok(Arc::new_cyclic(|myself| Self {
            watchdog_lease,
            fair_patience,
            owners,
            registry: Registry::default(),
            waiters: Waiters::default(),
            heartbeat: Arc::default(),
            topology,
            nodes: Mutex::default(),
            local_queues: LocalQueues::default(),
            counted_queues: Default::default(),
            numbers: Default::default(),
            taken: Default::default(),
            stand_backs: StandBacks::default(),
            cleaner: Background::new("lockson-cleanup"),
            callbacks: Callbacks::default(),
            timer: Background::new("lockson-timer"),
            trimming: AtomicBool::new(false),
            under_way: UnderWay::default(),
            closing: Bells::default(),
            has_observer: config.has_observer,
            home: Home::here(),
            myself: Weak::clone(myself),
            config,
        }))
    }

    /// Runs a query, which changes nothing in Redis.
    pub(crate) fn ask<T>(&self, call: &Call<T>) -> Result<T> {
        self.ask_within(call, self.config.command_timeout)
    }

    /// Runs a query within `limit`.
    pub(crate) fn ask_within<T>(&self, call: &Call<T>, limit: Duration) -> Result<T> {
        // A query has no effect, so its failure leaves no doubt.
        self.send(call, true, limit).map_err(Error::without_effect)
    }

    /// Takes the answer about a lock of whatever owner.
    pub(crate) fn of_lock<T>(&self, name: &LockName, answer: Result<IfLock<T>>) -> Result<T> {
        answer?.map_err(|NotALock| self.other_kind(name))
    }

    pub(crate) fn other_kind(&self, name: &LockName) -> Error {
        let text = format!(
            "redis at {} has another kind of lock under this name, or data that is no lock; use another name",
            self.topology.route(name.key()).server.label()
        );
        Error::new(ErrorKind::OtherKind, text)
    }

    /// Runs a request once, whatever owner it concerns, within `limit`.
    pub(crate) fn command_within<T>(&self, call: &Call<T>, limit: Duration) -> Result<T> {
        self.send(call, false, limit)
    }

    fn send<T>(&self, call: &Call<T>, repeat: bool, limit: Duration) -> Result<T> {
        let node = self.node(call.route());
        let caller = Caller::new(self, None);
        let bounds = Bounds { repeat, fences: !repeat, ..Bounds::within(Instant::now(), limit, limit) };
        let answer = sender::exactly_once::send(&*self.topology, call, bounds, Some(&caller));
        self.after_request(&node);
        answer.map(|answer| answer.value).map_err(|failed| {
            if let Some(in_doubt) = failed.in_doubt.filter(|_| !repeat) {
                self.fence_later(call.route().clone(), in_doubt);
            }
            failed.error
        })
    }

    /// Schedules a check of the holds of this lock, after a change by another client.
    pub(crate) fn verify_holds(&self, name: &LockName) {
        if !self.registry.under(name).is_empty() {
            self.node(name).watchdog.verify([name.clone()]);
        }
    }

    /// Adds the prefix to a name. An empty name stays empty, because the prefix alone is not a valid lock name.
    pub(crate) fn full_name(&self, name: &str) -> Arc<str> {
        if name.is_empty() { name.into() } else { format!("{}{name}", self.config.name_prefix).into() }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.under_way.is_closed()
    }

    /// Whether this engine is a copy in a forked child, which must not use the holds of the parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.home.is_elsewhere()
    }

    /// Calls the observer. A panic of the observer must not end a thread of the client or a request of a caller.
    pub(crate) fn observe(&self, event: impl FnOnce(&dyn Observer)) {
        if self.has_observer {
            let _ = catch_unwind(AssertUnwindSafe(|| event(&*self.config.observer)));
        }
    }

    fn draw_owner(&self, kind: &dyn Kind, thread: Option<&ThreadId>) -> (HoldNumber, OwnerId) {
        // An owned hold belongs to no thread; no thread has the number zero.
        let (number, owner) = self.owners.draw(thread.map_or(ThreadNumber(0), ThreadId::number));
        (number, kind.encode_owner(owner))
    }

    /// Returns the server that stores a name at present, with its hub and its watchdog.
    fn node(&self, name: &LockName) -> Arc<Node> {
        self.node_of(self.topology.route(name.key()).server)
    }

    /// Returns a server with its hub and its watchdog, which are made at the first use.
    fn node_of(&self, server: Arc<Server>) -> Arc<Node> {
        let number = server.number().0;
        let mut nodes = self.nodes.lock();
        if let Some(Some(node)) = nodes.get(number) {
            return Arc::clone(node);
        }
        if nodes.len() <= number {
            nodes.resize(number + 1, None);
        }
        let watchdog = Arc::new(Watchdog::default());
        let reports = Box::new(EngineReports { engine: Weak::clone(&self.myself), watchdog: Arc::clone(&watchdog) });
        let hub = Arc::new(Hub::new(Arc::clone(&server), self.config.command_timeout, reports));
        let node = Arc::new(Node::new(server, hub, watchdog));
        nodes[number] = Some(Arc::clone(&node));
        node
    }

    /// What locks must have in common that one request can take; `None` for a kind that is asked for one at a time.
    fn bundle_of(&self, kind: &dyn Kind, name: &LockName) -> Option<Bundle> {
        let slot = self.topology.slot(name.key());
        kind.bundles().then(|| Bundle { engine: ptr::from_ref(self).addr(), slot, family: kind.family() })
    }

    fn is_on(&self, server: &Arc<Server>, hold: &HoldState) -> bool {
        Arc::ptr_eq(server, &self.topology.route(hold.name.key()).server)
    }
}

/// A client, a part of its keys that is on one server at all times, and the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bundle {
    /// The address in memory, which identifies the client.
    engine: usize,
    slot: Slot,
    family: &'static str,
}

/// Passes the reports of the hub to the engine and to the watchdog.
#[derive(Debug)]
struct EngineReports {
    engine: Weak<Engine>,
    watchdog: Arc<Watchdog>,
}

impl Reports for EngineReports {
    fn announced(&self, name: &LockName) {
        if let Some(engine) = self.engine.upgrade() {
            engine.stand_backs.heard(name);
            engine.verify_holds(name);
        }
    }

    fn counted(&self, channel: &str, payload: &[u8], announced: Option<&LockName>) {
        if let Some(engine) = self.engine.upgrade() {
            if let Some(name) = announced {
                engine.stand_backs.heard(name);
            }
            engine.counted_queues.message(channel, payload);
        }
    }

    fn invalidated(&self, keys: Option<&[String]>) {
        let Some(keys) = keys else { return self.watchdog.verify_all() };
        let Some(engine) = self.engine.upgrade() else { return };
        let names = engine.registry.watched(keys);
        if !names.is_empty() {
            self.watchdog.verify(names);
        }
    }

    fn ear_changed(&self, lost: bool) {
        self.watchdog.ear_changed(lost);
    }

    fn elsewhere(&self, server: &Server, refusal: &Refusal) {
        if let Some(engine) = self.engine.upgrade() {
            engine.topology.heed(server.number(), refusal);
        }
    }

    fn listening_failed(&self, server: &Server, error: Error) {
        if let Some(engine) = self.engine.upgrade() {
            engine.topology.doubt(server.number());
            engine.observe(|observer| observer.listening_failed(&ListeningFailed { server: server.label(), error }));
        }
    }
}
