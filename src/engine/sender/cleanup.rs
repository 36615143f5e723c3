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

/// An owner, with the kind of its lock.
type Withdrawn = (Arc<dyn Kind>, OwnerId);

impl Sender {
    /// Fences copies in doubt, so that the server does not run them later.
    pub(crate) fn fence_later(&self, name: LockName, in_doubt: InDoubt) {
        self.clean_up(name, None, in_doubt, Instant::now().after(self.config.watchdog_timeout));
    }

    /// Fences copies in doubt, and withdraws their owner, if there is one without guards that may still hold the lock,
    /// again and again until that is done. The lease has expired by `until`.
    pub(crate) fn clean_up(&self, name: LockName, owner: Option<Withdrawn>, mut in_doubt: InDoubt, until: Instant) {
        // Parts live for longer than their lease where clocks may differ.
        let has_parts = owner.as_ref().is_some_and(|(kind, _)| kind.may_leave_parts());
        let until = if has_parts { until.after(self.config.peer_clock_skew) } else { until };
        self.until_done(name.clone(), Instant::now(), (PAUSE, PAUSE), move |sender| {
            let (now, limit) = (Instant::now(), sender.config.command_timeout);
            if now >= until {
                return true;
            }
            let fenced = exactly_once::fence(&*sender.topology, name.key(), &mut in_doubt, now.after(limit)).is_ok();
            let is_withdrawn = |(kind, owner): &Withdrawn| {
                let bounds = Bounds::within(Instant::now(), limit, limit);
                // Without a fence the acquire may still run, so the release is repeated until the lease has expired.
                sender.send(&kind.withdraw(&name, owner), bounds, None).is_ok() && !in_doubt.unfenceable
            };
            fenced && owner.as_ref().is_none_or(is_withdrawn)
        });
    }
}

const PAUSE: Duration = Duration::from_millis(500);
