//! The request of a caller: the lock, the lease, and the longest wait.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::durability::Durability;
use crate::engine::hold::HoldState;
use crate::engine::parts::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::kinds::Kind;
use crate::name::LockName;
use crate::owner::ThreadId;
use crate::state::ledger::{GuardNumber, Promise};
use crate::state::wait_loop::{TakeOutcome, WaitLoop, wait_loop};
use crate::time::{Deadline, Instant, Lease};

/// The modifiers of a handle, which count for its locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modifiers {
    /// `None` leaves the lease to the watchdog.
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) cancel: Option<Cancel>,
    /// `None` leaves the durability to the client.
    pub(crate) durability: Option<Durability>,
    /// Whether a hold belongs to its guard instead of the calling thread.
    pub(crate) owned: bool,
}

/// The request of a caller.
pub(crate) struct AcquireRequest<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) name: &'a LockName,
    pub(crate) kind: &'a Arc<dyn Kind>,
    pub(crate) modifiers: &'a Modifiers,
    /// The lease of the modifiers, or that of the watchdog.
    pub(crate) lease: Lease,
    /// The copies without which a grant does not count: the durability of the modifiers, or that of the client.
    pub(crate) needs: Option<Durability>,
    /// The group that the lock is taken with.
    pub(crate) group: Option<&'a Arc<str>>,
}

/// The wait of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The caller asks once.
    Not,
    /// The caller gives up at the deadline, or earlier if its kind bounds the tries. Without a deadline it does not.
    Until(Deadline),
}

impl Modifiers {
    /// The modifiers of a lock in a group that has these: a lease or a limit of the group replaces both of the lock.
    pub(crate) fn over(&self, own: &Self) -> Self {
        let limits = if self.lease.or(self.max_hold).is_some() { self } else { own };
        let durability = self.durability.or(own.durability);
        Self { lease: limits.lease, max_hold: limits.max_hold, durability, ..self.clone() }
    }
}

impl AcquireRequest<'_> {
    /// The hold that this thread has; an owned hold belongs to no thread.
    pub(crate) fn held_by(&self, thread: Option<&ThreadId>) -> Option<Arc<HoldState>> {
        self.engine.cells.registry.find(self.name, thread?.number())
    }

    /// Returns the promise to a guard whose request was sent at `sent`.
    pub(super) fn promise(&self, sent: Instant) -> Promise {
        match self.modifiers.lease {
            Some(_) => Promise::Leased { until: sent.after(self.lease.duration()) },
            None => Promise::Renewed { until: self.modifiers.max_hold.map(|most| sent.after(most)) },
        }
    }
}

impl Wait {
    pub(crate) const FOR_EVER: Self = Self::Until(Deadline::Never);

    /// A wait of zero asks once.
    pub(crate) fn within(wait: Duration) -> Self {
        if wait.is_zero() { Self::Not } else { Self::Until(Deadline::after(wait)) }
    }

    /// Takes what the caller waits for.
    pub(crate) fn take<Host: WaitLoop>(self, host: &mut Host) -> Result<Option<Host::Grant>> {
        if self != Self::Not {
            return wait_loop(host, self.deadline());
        }
        Ok(if let TakeOutcome::Taken(grant) = host.attempt()? { Some(grant) } else { None })
    }

    pub(crate) fn deadline(self) -> Deadline {
        match self {
            Self::Not => Deadline::after(Duration::ZERO),
            Self::Until(deadline) => deadline,
        }
    }
}

/// A hold, and the guard for the caller.
pub(crate) type Grant = (Arc<HoldState>, GuardNumber);

impl Engine {
    /// Returns the request for a lock; refuses modifiers without meaning for the lock.
    pub(crate) fn request<'a>(
        &'a self,
        name: &'a LockName,
        kind: &'a Arc<dyn Kind>,
        modifiers: &'a Modifiers,
        group: Option<&'a Arc<str>>,
    ) -> Result<AcquireRequest<'a>> {
        let bad = |why| Error::new(ErrorKind::BadInput, why);
        let lease = modifiers.lease.map(Lease::new).transpose()?;
        if modifiers.max_hold.is_some_and(|most| most.is_zero()) {
            return Err(bad("with_max_hold() cannot be zero; give the longest time that the work may take"));
        }
        if lease.is_some() && modifiers.max_hold.is_some() {
            let why = "a lease is never renewed, so with_max_hold() cannot limit it; leave one of them out";
            return Err(bad(why));
        }
        kind.check_lease(lease).map_err(bad)?;
        let lease = lease.unwrap_or(self.keeper.watchdog_lease);
        let needs = match (modifiers.durability, self.config.durability) {
            (Some(needs), _) => Some(needs.checked(ErrorKind::BadInput, lease.duration())?),
            (None, usual) => usual.map(|usual| usual.at_most(lease.duration() / 2)),
        };
        Ok(AcquireRequest { engine: self, name, kind, modifiers, lease, needs, group })
    }
}
