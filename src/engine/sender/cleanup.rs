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

impl Sender {
    /// Clears away an owner without guards that may still hold the lock in Redis. The lease has expired by `until`.
    pub(crate) fn clean_up(
        &self,
        name: LockName,
        kind: Arc<dyn Kind>,
        owner: OwnerId,
        in_doubt: InDoubt,
        until: Instant,
    ) {
        self.clear_at(Instant::now(), until, name, in_doubt, Some((kind, owner)));
    }

    /// Fences copies in doubt, so that the server does not run them later.
    pub(crate) fn fence_later(&self, name: LockName, in_doubt: InDoubt) {
        let now = Instant::now();
        self.clear_at(now, now.after(self.config.watchdog_timeout), name, in_doubt, None);
    }

    /// Fences copies in doubt, and withdraws their owner, if there is one, again and again until that is done.
    fn clear_at(
        &self,
        at: Instant,
        until: Instant,
        name: LockName,
        mut in_doubt: InDoubt,
        owner: Option<(Arc<dyn Kind>, OwnerId)>,
    ) {
        self.later(&self.node(&name).cleaner, at, move |sender| {
            let (now, limit) = (Instant::now(), sender.config.command_timeout);
            if now >= until {
                return;
            }
            let fenced = exactly_once::fence(&*sender.topology, name.key(), &mut in_doubt, now.after(limit)).is_ok();
            let is_withdrawn = |(kind, owner): &(Arc<dyn Kind>, OwnerId)| {
                let bounds = Bounds::within(Instant::now(), limit, limit);
                // Without a fence the acquire may still run, so the release is repeated until the lease has expired.
                sender.send(&kind.withdraw(&name, owner), bounds, None).is_ok() && !in_doubt.unfenceable
            };
            let is_clean = fenced && owner.as_ref().is_none_or(is_withdrawn);
            if !is_clean && !sender.life.is_closed() {
                sender.clear_at(Instant::now().after(PAUSE), until, name, in_doubt, owner);
            }
        });
    }
}

const PAUSE: Duration = Duration::from_millis(500);
