//! Clears away, in the background, what requests without an answer may have left behind.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::kind::Kind;
use super::wire::{self, Bounds, Loose};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Instant;

/// An owner that nobody uses any more and that may still stand in Redis.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) name: LockName,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) owner: OwnerId,
    pub(crate) loose: Loose,
    /// From here on the lease has cleared it away.
    pub(crate) until: Instant,
}

impl Engine {
    pub(crate) fn settle(self: &Arc<Self>, settlement: Settlement) {
        self.settle_at(Instant::now(), settlement);
    }

    fn settle_at(self: &Arc<Self>, at: Instant, settlement: Settlement) {
        let engine = Arc::downgrade(self);
        self.settler.run_at(at, move || {
            if let Some(engine) = engine.upgrade() {
                engine.settle_once(settlement);
            }
        });
    }

    fn settle_once(self: &Arc<Self>, mut settlement: Settlement) {
        let limit = self.config.command_timeout;
        let server = &self.node(&settlement.name).server;
        let fenced = wire::fence(server, &mut settlement.loose, Instant::now().after(limit)).is_ok();
        let call = settlement.kind.withdraw(&settlement.name, &settlement.owner);
        let released = fenced && wire::send(server, &call, &Bounds::within(limit, limit)).is_ok();
        // Without a fence the original may still arrive: the release is repeated until its lease is over.
        let settled = released && !settlement.loose.haunted;
        if !settled && Instant::now() < settlement.until && !self.is_closed() {
            self.settle_at(Instant::now().after(PAUSE), settlement);
        }
    }
}

const PAUSE: Duration = Duration::from_millis(500);
