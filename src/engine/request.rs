//! The request of a caller: the lock, the lease, and the longest wait.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::durability::{Copies, Durability};
use crate::engine::Engine;
use crate::engine::hold::HoldState;
use crate::engine::node::Node;
use crate::error::{Error, ErrorKind, Result};
use crate::event::DurabilityMissing;
use crate::kinds::Kind;
use crate::name::LockName;
use crate::state::exchange::Bounds;
use crate::state::ledger::{GuardNumber, Promise};
use crate::time::{Deadline, Instant, Lease};
use crate::transport::Voting;

/// The request of a caller.
#[derive(Debug)]
pub(crate) struct AcquireRequest<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) kind: &'a Arc<dyn Kind>,
    /// `None` leaves the lease to the watchdog.
    pub(crate) lease: Option<Lease>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) cancel: Option<&'a Cancel>,
    /// `None` leaves the durability to the client.
    pub(crate) durability: Option<Durability>,
    /// Whether the hold belongs to its guard instead of the calling thread.
    pub(crate) owned: bool,
    /// The group that the lock is taken with.
    pub(crate) group: Option<&'a Arc<str>>,
}

/// The wait of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The caller asks once.
    Not,
    /// The caller gives up at the deadline, or earlier if its kind bounds the tries.
    Until(Deadline),
    /// The caller does not give up.
    ForEver,
}

impl AcquireRequest<'_> {
    /// Returns the promise to a guard whose request was sent at `sent`.
    pub(super) fn promise(&self, lease: Lease, sent: Instant) -> Promise {
        match self.lease {
            Some(_) => Promise::Leased { until: sent.after(lease.duration()) },
            None => Promise::Renewed { until: self.max_hold.map(|most| sent.after(most)) },
        }
    }
}

impl Wait {
    /// A wait of zero asks once.
    pub(crate) fn within(wait: Duration) -> Self {
        if wait.is_zero() { Self::Not } else { Self::Until(Deadline::after(wait)) }
    }

    pub(crate) fn deadline(self) -> Deadline {
        match self {
            Self::Not => Deadline::after(Duration::ZERO),
            Self::Until(deadline) => deadline,
            Self::ForEver => Deadline::Never,
        }
    }
}

/// A hold, and the guard for the caller.
pub(crate) type Grant = (Arc<HoldState>, GuardNumber);

impl Engine {
    pub(super) fn lease_of(&self, request: &AcquireRequest<'_>) -> Lease {
        request.lease.unwrap_or(self.watchdog_lease)
    }

    /// Refuses a durability without meaning for this lock.
    pub(super) fn check_durability(&self, request: &AcquireRequest<'_>) -> Result<()> {
        let lease = self.lease_of(request).duration();
        request.durability.map_or(Ok(()), |needs| needs.checked(ErrorKind::BadInput, lease).map(drop))
    }

    pub(crate) fn durability_of(&self, request: &AcquireRequest<'_>) -> Option<Durability> {
        let usual = || Some(self.config.durability?.at_most(self.lease_of(request).duration() / 2));
        request.durability.or_else(usual)
    }

    /// Judges what a request about this lock has reached, where it must reach anything. `consequence` tells what
    /// becomes of the lock otherwise. Returns what the observer is to be told.
    pub(crate) fn judge(
        &self,
        name: &LockName,
        needs: Option<Durability>,
        copies: Option<&Copies>,
        consequence: &str,
    ) -> Result<Option<Error>> {
        let Some(needs) = needs else { return Ok(None) };
        needs.judge(copies, &self.node(name).server.label(), consequence)
    }

    /// Tells the observer once that the server of this lock cannot wait for replicas.
    pub(super) fn tell_missing(&self, name: &LockName, missing: Option<Error>) {
        let Some(error) = missing else { return };
        let node = self.node(name);
        if node.misses_durability() {
            let server = node.server.label();
            self.observe(|observer| observer.durability_missing(&DurabilityMissing { server, error }));
        }
    }

    /// Returns the time limits of a request in a call with this deadline.
    pub(super) fn bounds(&self, node: &Node, started: Instant, deadline: Deadline) -> Bounds {
        let now = Instant::now();
        let since = node.mute_since().unwrap_or(now).max(started);
        let (retry_until, end) = match deadline {
            Deadline::At(at) => (at, at.max(now).after(self.config.command_timeout)),
            // A wait without limit ends in an outage: a server without any reply for this time is an error, not a
            // busy lock.
            Deadline::Never => (
                since.after(self.config.outage_limit),
                since.after(self.config.outage_limit).max(now.after(self.config.command_timeout)),
            ),
        };
        let command_timeout = self.config.command_timeout;
        Bounds { retry_until, end, repeat: true, fences: true, command_timeout, voting: Voting::default() }
    }
}
