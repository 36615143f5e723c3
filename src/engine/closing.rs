//! Work beyond a single hold: checking servers at the start, trimming idle connections, closing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::conn::Server;
use crate::engine::cells::taken::AllOfOne;
use crate::engine::hold::HoldState;
use crate::engine::node::Node;
use crate::engine::sender::exactly_once::{self, Send};
use crate::engine::sender::side_by_side::side_by_side;
use crate::engine::{Engine, Numbered};
use crate::error::{Loss, Result};
use crate::name::LockName;
use crate::script::once::Once;
use crate::state::exchange::{Bounds, InDoubt};
use crate::state::ledger::Phase;
use crate::time::Instant;
use crate::transport::Limits;

impl Engine {
    /// Checks that a server answers and accepts the login.
    pub(crate) fn greet(&self) -> Result<()> {
        self.topology.greet(self.config.command_timeout)
    }

    /// Schedules the closing of connections that stay idle after a burst.
    pub(crate) fn after_request(&self, node: &Arc<Node>) {
        if node.server.has_spare_connections() && !self.trimming.swap(true, Ordering::AcqRel) {
            self.trim_later(Instant::now().after(self.config.idle_timeout));
        }
    }

    fn trim_later(&self, at: Instant) {
        let engine = Weak::clone(&self.myself);
        self.cleaner.run_at(at, move || {
            let Some(engine) = engine.upgrade() else { return };
            let limit = engine.config.idle_timeout.max(Duration::from_millis(10));
            let trim = |server: &Server| server.trim(Instant::now(), limit);
            engine.trimming.store(false, Ordering::Release);
            if engine.is_closed() {
                return;
            }
            // A server without keys may still have connections.
            let nodes = engine.nodes.lock().clone();
            if let Some(next) = nodes.iter().flatten().filter_map(|node| trim(&node.server)).min()
                && !engine.trimming.swap(true, Ordering::AcqRel)
            {
                engine.trim_later(next);
            }
        });
    }

    /// Finds out in the background whether a server that is down answers again.
    pub(crate) fn try_again_later(&self, name: &LockName) {
        let now = Instant::now();
        let node = self.node(name);
        let server = Arc::clone(&node.server);
        let limit = self.config.command_timeout;
        // The trial may follow a cleanup, which takes as long. A vote between the end of the time and the end of the
        // trial would wait for the server.
        if server.claim_trial(now, now.after(limit * 3)) {
            node.cleaner.run_at(now, move || server.try_again(Instant::now().after(limit)));
        }
    }

    /// Stops new operations, ends all waits and holds, waits for running operations, and releases the locks, all
    /// within the drop time-out. Then closes the connections.
    pub(crate) fn close(&self) {
        if !self.under_way.close() {
            return;
        }
        let end = Instant::now().after(self.config.drop_timeout);
        self.closing.ring_all();
        // Permits come first: what is not given back in time is lost, while a hold expires.
        let permits = self.give_back_all_permits(end);
        // All losses are reported before the first release, because each release takes a request.
        let mut held = self.registry.close();
        held.retain(|hold| self.end_hold(hold));
        let held = self.by_server(held, |hold| &hold.name);
        side_by_side(&held, |(server, holds)| self.give_back(server, holds, end));
        drop(permits.map(JoinHandle::join));
        self.under_way.wait_for_others(self.own_operations(), end);
        self.cleaner.finish(end);
        // Called without the mutex, because the cleanup looks up the server of the name.
        let nodes: Vec<_> = self.nodes.lock().iter().flatten().cloned().collect();
        nodes.iter().for_each(|node| node.cleaner.finish(end));
        self.topology.close();
        for node in &nodes {
            node.hub.close();
            node.watchdog.close();
        }
        self.timer.finish(Instant::now());
    }

    /// Gives back all permits, if possible on a thread of its own. The caller waits for the thread.
    fn give_back_all_permits(&self, end: Instant) -> Option<JoinHandle<()>> {
        let permits = Arc::new(self.by_server(self.taken.close(), |(name, ..)| name));
        let engine = self.myself.upgrade().filter(|_| !permits.is_empty())?;
        let work = {
            let permits = Arc::clone(&permits);
            move || drop(side_by_side(&permits, |(_, permits)| engine.give_back_permits(permits, end)))
        };
        let started = thread::Builder::new().name("lockson-close".into()).spawn(work);
        started.inspect_err(|_| drop(side_by_side(&permits, |(_, permits)| self.give_back_permits(permits, end)))).ok()
    }

    /// Gives back permits, because the client closes. What is not given back by `end` is lost.
    fn give_back_permits(&self, permits: &[AllOfOne], end: Instant) {
        for (name, give_back, permits) in permits {
            let left = Instant::now().until(end);
            let Some(engine) = self.myself.upgrade().filter(|_| !left.is_zero()) else { return };
            let call = |once: &Once| give_back(name, once, *permits);
            let given_up = |given_up: &Once, _: &Once| call(given_up);
            let request = Numbered { given_up: Some(&given_up), persists: true, ..Numbered::new(name, &call) };
            let _ = engine.once(&request, Bounds::within(Instant::now(), left, left), None);
        }
    }

    /// Ends one hold because the client closes. Returns whether the hold was live.
    fn end_hold(&self, hold: &HoldState) -> bool {
        self.with_ledger(hold, |ledger, now| {
            let was_live = ledger.look(now) == Phase::Live;
            ledger.lose(Loss::Closed);
            was_live
        })
    }

    /// Sorts what a closing client has by server: a mute server must not take the time of the others.
    fn by_server<T>(&self, all: Vec<T>, name: impl Fn(&T) -> &LockName) -> Vec<(Arc<Server>, Vec<T>)> {
        let mut shares: Vec<(Arc<Server>, Vec<T>)> = vec![];
        for one in all {
            let server = self.topology.route(name(&one).key()).server;
            match shares.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &server)) {
                Some((_, share)) => share.push(one),
                None => shares.push((server, vec![one])),
            }
        }
        shares
    }

    /// Releases abandoned holds on one server, if possible by `end`. Locks that are not released in time expire.
    fn give_back(&self, server: &Server, holds: &[Arc<HoldState>], end: Instant) {
        let now = Instant::now();
        let left = now.until(end);
        if left.is_zero() {
            return;
        }
        // Before the choice of the kind of pub/sub, releases would go one by one.
        let _ = server.pub_sub(Limits::answered_within(end, left / 3));
        let calls: Vec<_> = holds.iter().map(|hold| hold.kind.release(&hold.name, &hold.owner, None)).collect();
        let send = |call| Send {
            topology: &*self.topology,
            call,
            bounds: Bounds::within(now, left, left),
            in_doubt: InDoubt::default(),
        };
        drop(exactly_once::send_all(calls.iter().map(send).collect(), None));
    }
}
