//! How locks are waited for, kept and given back; knows no kind of lock, only what kinds answer.

mod acquire;
mod background;
mod backoff;
mod bell;
mod cancel;
mod hold;
mod kind;
mod ledger;
mod line;
mod node;
mod registry;
mod release;
mod settle;
mod wake;
mod watchdog;
mod wire;

pub(crate) use acquire::{Grant, Wish};
pub use cancel::Cancel;
pub(crate) use hold::HoldState;
pub(crate) use kind::{Kind, Queueing};
pub(crate) use ledger::{GuardNumber, Phase};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::Config;
use crate::conn::{Fault, Server, Topology};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::{ListeningFailed, LockLost, Observer};
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, Owners, ThreadId, ThreadNumber};
use crate::script::{Call, Renewal, RenewalAnswer};
use crate::time::{Instant, Lease};
use background::Background;
use bell::Bells;
use hold::News;
use line::Lines;
use node::Node;
use registry::Registry;
use wake::{Hub, Reports};
use watchdog::Lane;
use wire::Bounds;

/// Everything that belongs to one client.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) owners: Owners,
    pub(crate) registry: Registry,
    watchdog_lease: Lease,
    topology: Box<dyn Topology>,
    nodes: Mutex<Vec<Arc<Node>>>,
    lines: Lines,
    settler: Background,
    teller: Background,
    trimming: AtomicBool,
    closing: Bells,
    closed: AtomicBool,
    has_observer: bool,
    myself: Weak<Self>,
}

impl Engine {
    pub(crate) fn new(config: Config, topology: Box<dyn Topology>) -> Result<Arc<Self>> {
        let watchdog_lease = config.watchdog_lease()?;
        Ok(Arc::new_cyclic(|myself| Self {
            watchdog_lease,
            owners: Owners::new(),
            registry: Registry::default(),
            topology,
            nodes: Mutex::default(),
            lines: Lines::default(),
            settler: Background::new("lockson-settle"),
            teller: Background::new("lockson-tell"),
            trimming: AtomicBool::new(false),
            closing: Bells::default(),
            closed: AtomicBool::new(false),
            has_observer: config.has_observer,
            myself: Weak::clone(myself),
            config,
        }))
    }

    /// Asks Redis something that is no step of a hold's life. `Err` with kind `Unknown` only where
    /// the call changes something.
    pub(crate) fn ask<T>(&self, call: &Call<T>) -> Result<(T, bool)> {
        let limit = self.config.command_timeout;
        let node = self.node(call.route());
        let answer = wire::send(&node.server, call, &Bounds::within(limit, limit));
        self.after_request(&node);
        answer.map(|answer| (answer.value, answer.repeated)).map_err(|failed| failed.error)
    }

    /// Makes sure that every server answers and lets us in.
    pub(crate) fn greet(&self) -> Result<()> {
        let limit = self.config.command_timeout;
        for server in self.topology.servers() {
            let deadline = Instant::now().after(limit);
            server
                .request(&crate::conn::command(&["PING"]).get_packed_command(), deadline)
                .map_err(Fault::into_error)?;
        }
        Ok(())
    }

    /// Raises the time to live of a hold.
    pub(crate) fn extend(&self, hold: &Arc<HoldState>, lease: Lease) -> Result<()> {
        let (phase, news) = hold.with(|ledger, now| ledger.look(now));
        self.tell(hold, news);
        match phase {
            Phase::Live => {}
            Phase::Lost(loss) => return Err(Error::lost(loss)),
            Phase::Releasing | Phase::Done => {
                return Err(Error::new(ErrorKind::NotHeld, "this hold was given back already"));
            }
        }
        let limit = self.config.command_timeout;
        let call = hold.kind.renew(&[Renewal { name: hold.name.clone(), owner: hold.owner.clone(), lease }]);
        let answer = wire::send(&self.node(&hold.name).server, &call, &Bounds::within(limit, limit))
            .map_err(|failed| failed.error)?;
        match answer.value.answers.first() {
            Some(RenewalAnswer::Renewed) => {
                let ((), news) = hold.with(|ledger, _| ledger.extended(answer.sent, lease));
                self.tell(hold, news);
                Ok(())
            }
            Some(RenewalAnswer::Lost(loss)) => {
                self.lose(hold, *loss);
                Err(Error::lost(*loss))
            }
            Some(RenewalAnswer::Refused) | None => {
                Err(Error::new(ErrorKind::Refused, "redis refused to prolong the lock; see its log"))
            }
        }
    }

    /// Has the loss of a hold told at its very moment.
    pub(crate) fn watch(&self, hold: &HoldState) {
        let node = self.node(&hold.name);
        if let Some(engine) = self.myself.upgrade() {
            node.lane.start(&engine, &node);
        }
        node.lane.watch();
    }

    /// Tells a loss to whoever wants to know; `news` come out of a ledger once for each hold.
    pub(crate) fn tell(&self, hold: &HoldState, news: Option<News>) {
        let Some(News { loss, on_lost }) = news else { return };
        for callback in on_lost {
            self.teller.run(move || callback(&loss));
        }
        self.observe(|observer| {
            observer.lost(&LockLost { name: hold.name.to_string(), owner: hold.owner.to_string(), loss });
        });
    }

    /// Runs a callback for a loss that was told before it was registered.
    pub(crate) fn call_back(&self, loss: Loss, callback: hold::OnLost) {
        self.teller.run(move || callback(&loss));
    }

    /// Tells a loss that only the release found out.
    fn tell_late(&self, hold: &HoldState, loss: Loss) {
        self.observe(|observer| {
            observer.lost(&LockLost { name: hold.name.to_string(), owner: hold.owner.to_string(), loss });
        });
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends every wait and every hold, and gives back what can be within the drop time-out.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.closing.ring_all();
        self.settler.clear();
        let end = Instant::now().after(self.config.drop_timeout);
        for hold in self.registry.all() {
            let (held, news) = hold.with(|ledger, now| {
                let held = ledger.look(now) == Phase::Live;
                ledger.lose(Loss::Closed);
                held
            });
            self.tell(&hold, news);
            let left = Instant::now().until(end);
            if held && !left.is_zero() {
                // Whoever cannot be reached in time frees itself at the end of its time to live.
                let call = hold.kind.release(&hold.name, &hold.owner, None);
                let _ = wire::send(&self.node(&hold.name).server, &call, &Bounds::within(left, left));
            }
        }
        for server in self.topology.servers() {
            server.close();
        }
        for node in self.nodes.lock().iter() {
            node.hub.close();
            node.lane.watch();
        }
    }

    pub(crate) fn observe(&self, event: impl FnOnce(&dyn Observer)) {
        if self.has_observer {
            event(&*self.config.observer);
        }
    }

    fn draw_owner(&self, thread: Option<&ThreadId>) -> (HoldNumber, OwnerId) {
        // An owned hold is no thread's; zero is no thread's number.
        self.owners.draw(thread.map_or(ThreadNumber(0), ThreadId::number))
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
        let node = Arc::new(Node { server: Arc::clone(server), hub, lane: Lane::default() });
        nodes.push(Arc::clone(&node));
        node
    }

    fn is_on(&self, node: &Node, hold: &HoldState) -> bool {
        Arc::ptr_eq(&node.server, self.topology.server_for(hold.name.key()))
    }

    /// Sees to it that connections a burst has left are closed when they stay idle.
    fn after_request(&self, node: &Arc<Node>) {
        if node.server.has_spare_connections() && !self.trimming.swap(true, Ordering::AcqRel) {
            self.trim_later(Instant::now().after(self.config.idle_timeout));
        }
    }

    fn trim_later(&self, at: Instant) {
        let engine = Weak::clone(&self.myself);
        self.settler.run_at(at, move || {
            let Some(engine) = engine.upgrade() else { return };
            let limit = engine.config.idle_timeout.max(Duration::from_millis(10));
            let trim = |server: Arc<Server>| server.trim(Instant::now(), limit);
            engine.trimming.store(false, Ordering::Release);
            if let Some(next) = engine.topology.servers().into_iter().filter_map(trim).min()
                && !engine.trimming.swap(true, Ordering::AcqRel)
            {
                engine.trim_later(next);
            }
        });
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
        if let Some(engine) = self.0.upgrade()
            && !engine.registry.under(name).is_empty()
        {
            engine.node(name).lane.check(name);
        }
    }

    fn listening_failed(&self, server: &Server, error: Error) {
        if let Some(engine) = self.0.upgrade() {
            engine.observe(|observer| observer.listening_failed(&ListeningFailed { server: server.label(), error }));
        }
    }
}
