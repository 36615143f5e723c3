//! What belongs to no single hold: greeting servers, trimming idle connections, closing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::conn::{Server, command};
use crate::engine::Engine;
use crate::engine::holds::hold::HoldState;
use crate::engine::node::Node;
use crate::engine::wire;
use crate::error::{Loss, Result};
use crate::state::exchange::Bounds;
use crate::state::ledger::Phase;
use crate::time::Instant;
use crate::transport::{Fault, Limits};

impl Engine {
    /// Makes sure that every server answers and lets us in.
    pub(crate) fn greet(&self) -> Result<()> {
        let ping = command(&["PING"]).get_packed_command();
        for server in self.topology.servers() {
            let deadline = Instant::now().after(self.config.command_timeout);
            server.request(&ping, Limits::by(deadline), |_| Some(())).map_err(Fault::into_error)?;
        }
        Ok(())
    }

    /// Sees to it that connections a burst has left are closed when they stay idle.
    pub(crate) fn after_request(&self, node: &Arc<Node>) {
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

    /// Stops new work, ends every wait and every hold, lets what is under way come to its end, and gives back
    /// what can be; all that within the drop time-out. Then the connections are closed.
    pub(crate) fn close(&self) {
        if self.is_forked() || !self.under_way.close() {
            return;
        }
        let end = Instant::now().after(self.config.drop_timeout);
        self.closing.ring_all();
        // All are told before the first one is given back: that takes a request each.
        let mut held = self.registry.close();
        held.retain(|hold| self.end_hold(hold));
        held.iter().for_each(|hold| self.give_back(hold, end));
        self.under_way.wait_for_others(self.own_operations(), end);
        self.settler.finish(end);
        // Without the mutex: what is settled looks for its server.
        let nodes = self.nodes.lock().clone();
        nodes.iter().for_each(|node| node.settler.finish(end));
        for server in self.topology.servers() {
            server.close();
        }
        for node in &nodes {
            node.hub.close();
            node.lane.close();
        }
        self.timer.finish(Instant::now());
    }

    /// Ends one hold because the client closes; answers whether it was live.
    fn end_hold(&self, hold: &HoldState) -> bool {
        self.with(hold, |ledger, now| {
            let was_live = ledger.look(now) == Phase::Live;
            ledger.lose(Loss::Closed);
            was_live
        })
    }

    /// Gives a hold back that nobody here has any more, if that can be done by `end`.
    fn give_back(&self, hold: &HoldState, end: Instant) {
        let left = Instant::now().until(end);
        if !left.is_zero() {
            // What Redis is not told in time ends with its time to live.
            let call = hold.kind.release(&hold.name, &hold.owner, None);
            let _ = wire::send(&self.node(&hold.name).server, &call, Bounds::within(Instant::now(), left, left), None);
        }
    }
}
