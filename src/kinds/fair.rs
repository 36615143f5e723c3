//! The fair lock: the plain lock with a queue in Redis.

use super::{AcquireArgs, Kind, Queueing, Waking, only_once, unlocked};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::{Attempt, Call, Counts, IfLock, Released, Side, fair};
use crate::time::Lease;

/// Redisson's fair lock, and its non-reentrant sister.
#[derive(Debug)]
pub(crate) struct Fair {
    /// How long a silent waiter keeps its place in the queue.
    pub(crate) patience: Lease,
    pub(crate) reentrant: bool,
}

impl Kind for Fair {
    fn label(&self, _: Side) -> LockKind {
        if self.reentrant { LockKind::Fair } else { LockKind::NonReentrantFair }
    }

    fn queueing(&self) -> Queueing {
        Queueing::InRedis
    }

    fn waking(&self) -> Waking {
        Waking::OwnMessage
    }

    fn check_reentry(&self, held: Counts) -> Result<(), &'static str> {
        if self.reentrant { Ok(()) } else { only_once(held) }
    }

    fn channel(&self, name: &LockName, owner: &OwnerId) -> String {
        format!("{}:{owner}", name.channel())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        let patience = args.waits.then_some(self.patience);
        fair::acquire(args.name, args.owner, args.lease, patience, unlocked(&args.name.channel()))
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let remaining = remaining.map(|(counts, lease)| (counts.exclusive, lease));
        fair::release(name, owner, remaining, self.patience, unlocked(&name.channel()))
    }

    fn withdraw(&self, name: &LockName, owner: &OwnerId) -> Call<()> {
        fair::leave(name, owner, self.patience, unlocked(&name.channel()))
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        fair::force_release(name, unlocked(&name.channel()))
    }
}
