//! What a caller asks for: which lock, for how long, and how long it waits for it.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::holds::hold::HoldState;
use super::kind::Kind;
use super::node::Node;
use crate::cancel::Cancel;
use crate::name::LockName;
use crate::state::exchange::Bounds;
use crate::state::ledger::{GuardNumber, Promise};
use crate::time::{Deadline, Instant, Lease};

/// What a caller wants.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) kind: &'a Arc<dyn Kind>,
    /// `None` leaves the lease to the watchdog.
    pub(crate) lease: Option<Lease>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) cancel: Option<&'a Cancel>,
    /// The hold belongs to its guard, not to the calling thread.
    pub(crate) owned: bool,
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It asks once.
    Not,
    /// It gives up at the deadline, or earlier if its kind bounds the tries.
    Until(Deadline),
    /// It does not give up.
    ForEver,
}

impl Wish<'_> {
    /// What a guard is promised whose request was sent at `sent`.
    pub(super) fn promise(&self, lease: Lease, sent: Instant) -> Promise {
        match self.lease {
            Some(_) => Promise::Leased { until: sent.after(lease.duration()) },
            None => Promise::Renewed { until: self.max_hold.map(|most| sent.after(most)) },
        }
    }
}

impl Wait {
    pub(crate) fn deadline(self) -> Deadline {
        match self {
            Self::Not => Deadline::after(Duration::ZERO),
            Self::Until(deadline) => deadline,
            Self::ForEver => Deadline::Never,
        }
    }
}

/// A hold and the guard of it that the caller gets.
pub(crate) type Grant = (Arc<HoldState>, GuardNumber);

impl Engine {
    pub(super) fn lease_of(&self, wish: &Wish<'_>) -> Lease {
        wish.lease.unwrap_or(self.watchdog_lease)
    }

    /// How long a request of a call with this deadline may take.
    pub(super) fn bounds(&self, node: &Node, started: Instant, deadline: Deadline) -> Bounds {
        let now = Instant::now();
        let since = node.mute_since().unwrap_or(now).max(started);
        let (retry_until, end) = match deadline {
            Deadline::At(at) => (at, at.max(now).after(self.config.command_timeout)),
            // Not without end: a server that answers nobody for so long is an error, not a busy lock.
            Deadline::Never => (
                since.after(self.config.outage_limit),
                since.after(self.config.outage_limit).max(now.after(self.config.command_timeout)),
            ),
        };
        Bounds { retry_until, end, repeat: true, fences: true, command_timeout: self.config.command_timeout }
    }
}
