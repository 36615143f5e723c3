//! Cleanup in the background of requests in doubt.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::sender::Sender;
use crate::engine::sender::exactly_once;
use crate::kinds::Kind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::state::exchange::{Bounds, InDoubt};
use crate::time::Instant;

/// An owner without guards that may still hold the lock in Redis.
pub(crate) struct Cleanup {
    pub(crate) name: LockName,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) owner: OwnerId,
    pub(crate) in_doubt: InDoubt,
    /// The time by which the lease has expired.
    pub(crate) until: Instant,
}

impl Sender {
    pub(crate) fn clean_up(&self, cleanup: Cleanup) {
        self.clean_up_at(Instant::now(), cleanup);
    }

    fn clean_up_at(&self, at: Instant, cleanup: Cleanup) {
        self.later(&self.node(&cleanup.name).cleaner, at, move |sender| sender.clean_up_once(cleanup));
    }

    fn clean_up_once(&self, mut cleanup: Cleanup) {
        if Instant::now() >= cleanup.until {
            return;
        }
        let limit = self.config.command_timeout;
        let deadline = Instant::now().after(limit);
        let fenced = exactly_once::fence(&*self.topology, cleanup.name.key(), &mut cleanup.in_doubt, deadline).is_ok();
        let call = cleanup.kind.withdraw(&cleanup.name, &cleanup.owner);
        let released = fenced && self.send(&call, Bounds::within(Instant::now(), limit, limit), None).is_ok();
        // Without a fence the acquire may still run, so the release is repeated until the lease has expired.
        let is_clean = released && !cleanup.in_doubt.unfenceable;
        if !is_clean && !self.life.is_closed() {
            self.clean_up_at(Instant::now().after(PAUSE), cleanup);
        }
    }

    /// Fences copies in doubt, so that the server does not run them later.
    pub(crate) fn fence_later(&self, name: LockName, in_doubt: InDoubt) {
        let until = Instant::now().after(self.config.watchdog_timeout);
        self.fence_at(Instant::now(), until, name, in_doubt);
    }

    fn fence_at(&self, at: Instant, until: Instant, name: LockName, mut in_doubt: InDoubt) {
        self.later(&self.node(&name).cleaner, at, move |sender| {
            if Instant::now() >= until {
                return;
            }
            let deadline = Instant::now().after(sender.config.command_timeout);
            let fenced = exactly_once::fence(&*sender.topology, name.key(), &mut in_doubt, deadline).is_ok();
            if !fenced && !sender.life.is_closed() {
                sender.fence_at(Instant::now().after(PAUSE), until, name, in_doubt);
            }
        });
    }
}

const PAUSE: Duration = Duration::from_millis(500);
