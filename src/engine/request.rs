//! The request of a caller: the lock, the lease, and the longest wait.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::durability::Durability;
use crate::engine::hold::HoldState;
use crate::engine::parts::Engine;
use crate::error::{ErrorKind, Result};
use crate::kinds::Kind;
use crate::name::LockName;
use crate::state::ledger::{GuardNumber, Promise};
use crate::time::{Deadline, Instant, Lease};

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
    pub(crate) fn lease_of(&self, request: &AcquireRequest<'_>) -> Lease {
        request.lease.unwrap_or(self.keeper.watchdog_lease)
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
}
