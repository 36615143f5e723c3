//! The sender: requests to the servers of a client, each exactly once, and what requests in doubt leave behind.

mod cleanup;
pub(crate) mod exactly_once;
mod idle;
pub(crate) mod node;
pub(crate) mod numbered;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::config::Config;
use crate::conn::{Server, Topology};
use crate::durability::{Copies, Durability};
use crate::engine::background::Background;
use crate::engine::caller::Caller;
use crate::engine::life::Life;
use crate::engine::per_server::PerServer;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Observer, ServerTrouble};
use crate::name::LockName;
use crate::script::{Call, IfLock, NotALock};
use crate::state::exchange::{Bounds, InDoubt};
use crate::state::slots::Slots;
use crate::sync::Mutex;
use crate::time::{Deadline, Instant};
use crate::transport::Fitness;
use exactly_once::{Outgoing, SendResult};
use node::Node;

/// Sends the requests of one client.
pub(crate) struct Sender {
    config: Arc<Config>,
    life: Arc<Life>,
    /// The uuid at the start of every owner id.
    client: String,
    pub(crate) topology: Box<dyn Topology>,
    nodes: PerServer<Node>,
    /// The idempotency keys of the client.
    numbers: Mutex<Slots>,
    cleaner: Background,
    trimming: AtomicBool,
    myself: Weak<Self>,
}

impl Sender {
    pub(crate) fn new(config: Arc<Config>, life: Arc<Life>, client: &str, topology: Box<dyn Topology>) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            config,
            life,
            client: client.to_owned(),
            topology,
            nodes: PerServer::default(),
            numbers: Mutex::default(),
            cleaner: Background::new("lockson-cleanup", false),
            trimming: AtomicBool::new(false),
            myself: Weak::clone(myself),
        })
    }

    /// Works in the background, unless the client is gone by then.
    fn later(&self, background: &Background, at: Instant, work: impl FnOnce(&Self) + Send + 'static) {
        let myself = Weak::clone(&self.myself);
        background.run_at(at, move || {
            if let Some(sender) = myself.upgrade() {
                work(&sender);
            }
        });
    }

    /// Works in the background from `at` on, again and again, until the work is done or the client closes. The second
    /// time comes after the first of the pauses; each pause is twice the last one, up to the second of the pauses.
    pub(crate) fn until_done(
        &self,
        name: LockName,
        at: Instant,
        (pause, longest): (Duration, Duration),
        mut is_done: impl FnMut(&Self) -> bool + Send + 'static,
    ) {
        self.later(&self.node(&name).cleaner, at, move |sender| {
            if !is_done(sender) && !sender.life.is_closed() {
                let pauses = ((pause * 2).min(longest), longest);
                sender.until_done(name, Instant::now().after(pause), pauses, is_done);
            }
        });
    }

    /// Checks that a server answers and accepts the login, for a caller that `began` then.
    pub(crate) fn greet(&self, began: Instant) -> Result<()> {
        self.topology.greet(Instant::now().until(began.after(self.config.command_timeout)))
    }

    /// Sends a call until a reply arrives or the bounds are reached.
    pub(crate) fn send<T: Send>(&self, call: &Call<T>, bounds: Bounds, caller: Option<&Caller<'_>>) -> SendResult<T> {
        self.send_after(InDoubt::default(), call, bounds, caller)
    }

    /// Fences the copies that earlier requests left in doubt, then sends a call.
    pub(crate) fn send_after<T: Send>(
        &self,
        in_doubt: InDoubt,
        call: &Call<T>,
        bounds: Bounds,
        caller: Option<&Caller<'_>>,
    ) -> SendResult<T> {
        exactly_once::send(self.outgoing(in_doubt, call, bounds), caller)
    }

    /// One of several calls that are sent at once.
    pub(crate) fn outgoing<'a, T>(&'a self, in_doubt: InDoubt, call: &'a Call<T>, bounds: Bounds) -> Outgoing<'a, T> {
        Outgoing::new(&*self.topology, in_doubt, call, bounds)
    }

    /// Runs a query, which changes nothing in Redis.
    pub(crate) fn ask<T: Send>(&self, call: &Call<T>) -> Result<T> {
        self.ask_within(call, self.config.command_timeout)
    }

    /// Runs a query within `limit`.
    pub(crate) fn ask_within<T: Send>(&self, call: &Call<T>, limit: Duration) -> Result<T> {
        // A query has no effect, so its failure leaves no doubt.
        self.request(call, true, limit).map_err(Error::without_effect)
    }

    /// Runs a request once, whatever owner it concerns, within `limit`.
    pub(crate) fn command_within<T: Send>(&self, call: &Call<T>, limit: Duration) -> Result<T> {
        self.request(call, false, limit)
    }

    fn request<T: Send>(&self, call: &Call<T>, repeat: bool, limit: Duration) -> Result<T> {
        let node = self.node(call.route());
        let caller = Caller::new(&self.life, None, false);
        let bounds = Bounds { repeat, fences: !repeat, ..Bounds::within(Instant::now(), limit, limit) };
        let answer = self.send(call, bounds, Some(&caller));
        self.after_request(node);
        answer.map(|answer| answer.value).map_err(|failed| {
            if let Some(in_doubt) = failed.in_doubt.filter(|_| !repeat) {
                self.fence_later(call.route().clone(), in_doubt);
            }
            failed.error
        })
    }

    /// Takes the answer about a lock of whatever owner.
    pub(crate) fn of_lock<T>(&self, name: &LockName, answer: Result<IfLock<T>>) -> Result<T> {
        answer?.map_err(|NotALock| self.other_kind(name))
    }

    pub(crate) fn other_kind(&self, name: &LockName) -> Error {
        self.has_other(name, "another kind of lock under this name, or data that is no lock")
    }

    /// The error of a name under which the server has something else.
    fn has_other(&self, name: &LockName, what: &str) -> Error {
        let text = format!("redis at {} has {what}; use another name", self.server(name).label());
        Error::new(ErrorKind::OtherKind, text)
    }

    /// The server that stores a name at present.
    pub(crate) fn server(&self, name: &LockName) -> Arc<Server> {
        self.topology.route(name.key()).server
    }

    /// Whether the server stores keys at present.
    pub(crate) fn is_in_use(&self, server: &Arc<Server>) -> bool {
        self.topology.servers().iter().any(|other| Arc::ptr_eq(other, server))
    }

    pub(crate) fn node(&self, name: &LockName) -> &Arc<Node> {
        let server = self.server(name);
        self.nodes.get(server.number(), || Node::new(server.clone()))
    }

    /// Judges how far a request about the lock has come, where the lock needs replicas or disks. `consequence` tells
    /// what becomes of the lock otherwise. Returns what the observer is to be told.
    pub(crate) fn judge(
        &self,
        name: &LockName,
        needs: Option<Durability>,
        copies: Option<&Copies>,
        consequence: &str,
    ) -> Result<Option<Error>> {
        needs.map_or(Ok(None), |needs| needs.judge(copies, &self.server(name).label(), consequence))
    }

    /// Tells the observer once that the server of this lock cannot wait for replicas.
    pub(crate) fn tell_missing(&self, name: &LockName, missing: Option<Error>) {
        let Some(error) = missing else { return };
        let node = self.node(name);
        if node.cannot_wait() {
            let event = || ServerTrouble { server: node.server.label(), error };
            self.config.observe(Observer::durability_missing, event);
        }
    }

    /// Returns the time limits of a request that is sent now, in a call with this deadline, to a server that is mute
    /// since `mute_since`.
    pub(crate) fn bounds(&self, mute_since: Instant, started: Instant, now: Instant, deadline: Deadline) -> Bounds {
        let command_timeout = self.config.command_timeout;
        let outage_ends = mute_since.max(started).after(self.config.outage_limit);
        let (retry_until, end) = match deadline {
            Deadline::At(at) => (at, at.max(now).after(command_timeout)),
            // A wait without limit ends in an outage: a server without any reply for this time is an error, not a
            // busy lock.
            Deadline::Never => (outage_ends, outage_ends.max(now.after(command_timeout))),
        };
        Bounds { retry_until, end, repeat: true, fences: true, command_timeout, fitness: Fitness::default() }
    }

    /// The end of a call without limit that began at `began`, if this server stays mute; `None` while it replies.
    pub(crate) fn outage_ends(&self, node: &Node, began: Instant) -> Option<Instant> {
        node.mute_since().map(|since| since.max(began).after(self.config.outage_limit))
    }

    /// The bounds of a call that begins now.
    pub(crate) fn bounds_of_call(&self, name: &LockName, deadline: Deadline) -> Bounds {
        let now = Instant::now();
        self.bounds(self.node(name).mute_since().unwrap_or(now), now, now, deadline)
    }

    /// Runs the cleanup of every server now: none waits for another server.
    pub(crate) fn hurry(&self) {
        self.nodes.all().for_each(|node| node.cleaner.hurry());
    }

    /// Finishes the cleanup by `end`, and closes the connections.
    pub(crate) fn close(&self, end: Instant) {
        self.cleaner.finish(end);
        // Called without the mutex, because the cleanup looks up the server of the name.
        self.nodes.all().for_each(|node| node.cleaner.finish(end));
        self.topology.close();
    }
}
