//! Clears away, in the background, what requests without an answer may have left behind.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Engine;
use super::hold::HoldState;
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

    /// Sees to it that requests which were given up are not carried out later.
    pub(crate) fn fence_later(&self, name: LockName, loose: Loose) {
        let until = Instant::now().after(self.watchdog_lease.duration());
        self.fence_at(Instant::now(), until, name, loose);
    }

    fn fence_at(&self, at: Instant, until: Instant, name: LockName, mut loose: Loose) {
        let engine = Weak::clone(&self.myself);
        self.settler.run_at(at, move || {
            let Some(engine) = engine.upgrade() else { return };
            let deadline = Instant::now().after(engine.config.command_timeout);
            let fenced = wire::fence(&engine.node(&name).server, &mut loose, deadline).is_ok();
            if !fenced && Instant::now() < until && !engine.is_closed() {
                engine.fence_at(Instant::now().after(PAUSE), until, name, loose);
            }
        });
    }

    /// Writes in the background what a partial release could not, as it stands by then.
    pub(super) fn repeat_release(&self, hold: &Arc<HoldState>) {
        let (engine, hold) = (Weak::clone(&self.myself), Arc::downgrade(hold));
        self.settler.run_at(Instant::now().after(PAUSE), move || {
            let (Some(engine), Some(hold)) = (engine.upgrade(), hold.upgrade()) else { return };
            let left = engine.with(&hold, |ledger, now| ledger.repeated_release(now));
            let Some((counts, lease)) = left.filter(|_| !engine.is_closed()) else { return };
            let call = hold.kind.release(&hold.name, &hold.owner, Some((counts, lease)));
            let limit = engine.config.command_timeout;
            match engine.ask_about(&hold, &call, &Bounds::within(limit, limit)) {
                // A loss is told by that; there is nobody here to hear of it.
                Ok(answer) => drop(engine.done_or_lost(&hold, answer.value)),
                Err(_) => engine.repeat_release(&hold),
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
