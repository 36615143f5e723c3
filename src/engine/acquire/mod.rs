//! Taking a lock: re-entry by what this process knows, everything else by asking Redis.

mod contender;
pub(super) mod line;
pub(super) mod stand_back;
pub(super) mod waiters;

use std::sync::Arc;
use std::time::Duration;

use super::caller::Caller;
use super::exchange::Bounds;
use super::kind::Kind;
use super::node::Node;
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::engine::holds::hold::HoldState;
use crate::engine::release::still_kept;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::owner::ThreadId;
use crate::state::ledger::{GuardNumber, Promise};
use crate::time::{Deadline, Instant, Lease};
use contender::Contender;

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
    /// Takes or re-enters the lock; `None` when somebody else kept it until the deadline.
    pub(crate) fn acquire(self: &Arc<Self>, wish: &Wish<'_>, wait: Wait) -> Result<Option<Grant>> {
        let caller = Caller::new(self, wish.cancel);
        caller.check()?;
        let thread = (!wish.owned).then(ThreadId::current);
        if let Some(thread) = &thread
            && let Some(hold) = self.registry.find(wish.name, thread.number())
        {
            return self.reenter(wish, hold, &caller, wait.deadline()).map(Some);
        }
        Contender::new(self, wish, thread, &caller, wait).run()
    }

    fn reenter(
        self: &Arc<Self>,
        wish: &Wish<'_>,
        hold: Arc<HoldState>,
        caller: &Caller<'_>,
        deadline: Deadline,
    ) -> Result<Grant> {
        let side = wish.kind.side();
        let (held, counts) = self.with(&hold, |ledger, now| (ledger.counts(), ledger.counts_after_reentry(now, side)));
        let counts = counts.map_err(|loss| self.lost(&hold, loss))?;
        if hold.kind.family() != wish.kind.family() {
            return Err(Error::new(ErrorKind::OtherKind, "this thread holds another kind of lock of this name"));
        }
        wish.kind.check_reentry(held).map_err(|why| Error::new(ErrorKind::AlreadyHeld, why))?;
        let lease = self.lease_of(wish);
        let raise = self.with(&hold, |ledger, now| ledger.raise(now, lease));
        let node = self.node(wish.name);
        let call = hold.kind.reenter(wish.name, &hold.owner, raise, counts);
        let interrupted = || caller.check().err();
        let bounds =
            Bounds { caller: Some(caller), interrupted: &interrupted, ..self.bounds(&node, Instant::now(), deadline) };
        let reentered = self.ask_about(&hold, &call, &bounds, |ledger, now, answer| {
            still_kept(ledger, now, &answer.value)?;
            ledger.reentered(now, answer.sent, lease, side, promise(wish, lease, answer.sent))
        });
        // Written or not, it is not what this hold was promised.
        let guard = reentered.inspect_err(|_| self.repeat_release(&hold))?;
        let guard = guard.map_err(|loss| self.lost(&hold, loss))?;
        Ok((hold, guard))
    }

    pub(crate) fn lease_of(&self, wish: &Wish<'_>) -> Lease {
        wish.lease.unwrap_or(self.watchdog_lease)
    }

    /// How long a request of a call with this deadline may take.
    pub(crate) fn bounds<'a>(&self, node: &Node, started: Instant, deadline: Deadline) -> Bounds<'a> {
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
        Bounds {
            retry_until,
            end,
            repeat: true,
            fences: true,
            command_timeout: self.config.command_timeout,
            caller: None,
            interrupted: &|| None,
        }
    }
}

pub(crate) fn promise(wish: &Wish<'_>, lease: Lease, sent: Instant) -> Promise {
    match wish.lease {
        Some(_) => Promise::Leased { until: sent.after(lease.duration()) },
        None => Promise::Renewed { until: wish.max_hold.map(|most| sent.after(most)) },
    }
}
