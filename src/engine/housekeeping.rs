//! What belongs to no single hold: greeting servers, trimming idle connections, closing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Engine;
use super::hold::HoldState;
use super::ledger::Phase;
use super::node::Node;
use super::wire::{self, Bounds};
use crate::conn::{Fault, Server, command};
use crate::error::{Loss, Result};
use crate::time::Instant;

impl Engine {
    /// Makes sure that every server answers and lets us in.
    pub(crate) fn greet(&self) -> Result<()> {
        let ping = command(&["PING"]).get_packed_command();
        for server in self.topology.servers() {
            let deadline = Instant::now().after(self.config.command_timeout);
            server.request(&ping, deadline, |_| Some(())).map_err(Fault::into_error)?;
        }
        Ok(())
    }

    /// Sees to it that connections a burst has left are closed when they stay idle.
    pub(super) fn after_request(&self, node: &Arc<Node>) {
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

    /// Ends every wait and every hold, and gives back what can be within the drop time-out.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.closing.ring_all();
        self.settler.clear();
        self.timer.clear();
        let end = Instant::now().after(self.config.drop_timeout);
        for hold in self.registry.all() {
            self.end_hold(&hold, end);
        }
        for server in self.topology.servers() {
            server.close();
        }
        for node in self.nodes.lock().iter() {
            node.hub.close();
            node.lane.close();
        }
    }

    /// Ends one hold because the client is closed, and gives it back if that can be done by `end`.
    pub(super) fn end_hold(&self, hold: &HoldState, end: Instant) {
        let held = self.with(hold, |ledger, now| {
            let held = ledger.look(now) == Phase::Live;
            ledger.lose(Loss::Closed);
            held
        });
        let left = Instant::now().until(end);
        if held && !left.is_zero() {
            // Whoever cannot be reached in time frees itself at the end of its time to live.
            let call = hold.kind.release(&hold.name, &hold.owner, None);
            let _ = wire::send(&self.node(&hold.name).server, &call, &Bounds::within(left, left));
        }
    }
}
