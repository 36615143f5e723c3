//! Work beyond a single hold: checking servers at the start, trimming idle connections, closing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::conn::Server;
use crate::engine::Engine;
use crate::engine::exactly_once;
use crate::engine::holds::hold::HoldState;
use crate::engine::node::Node;
use crate::error::{Loss, Result};
use crate::name::LockName;
use crate::state::exchange::Bounds;
use crate::state::ledger::Phase;
use crate::time::Instant;

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
            let trim = |server: Arc<Server>| server.trim(Instant::now(), limit);
            engine.trimming.store(false, Ordering::Release);
            if engine.is_closed() {
                return;
            }
            if let Some(next) = engine.topology.servers().into_iter().filter_map(trim).min()
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
        if self.is_forked() || !self.under_way.close() {
            return;
        }
        let end = Instant::now().after(self.config.drop_timeout);
        self.closing.ring_all();
        // Permits come first: what is not given back in time is lost, while a hold expires.
        self.give_back_permits(end);
        // All losses are reported before the first release, because each release takes a request.
        let mut held = self.registry.close();
        held.retain(|hold| self.end_hold(hold));
        held.iter().for_each(|hold| self.give_back(hold, end));
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

    /// Ends one hold because the client closes. Returns whether the hold was live.
    fn end_hold(&self, hold: &HoldState) -> bool {
        self.with_ledger(hold, |ledger, now| {
            let was_live = ledger.look(now) == Phase::Live;
            ledger.lose(Loss::Closed);
            was_live
        })
    }

    /// Releases an abandoned hold, if possible by `end`.
    fn give_back(&self, hold: &HoldState, end: Instant) {
        let left = Instant::now().until(end);
        if !left.is_zero() {
            // A lock that is not released in time expires.
            let call = hold.kind.release(&hold.name, &hold.owner, None);
            let _ = exactly_once::send(&*self.topology, &call, Bounds::within(Instant::now(), left, left), None);
        }
    }
}
