//! The plain lock: exclusive, with re-entry or without.

use super::{only_once, unlocked};
use crate::engine::{AcquireArgs, Kind};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::{Attempt, Call, Counts, Released, Side, reentrant};
use crate::time::Lease;

/// Redisson's `RLock`, and its non-reentrant lock: the same state in Redis, but a second take is an error.
#[derive(Debug)]
pub(crate) struct Reentrant {
    pub(crate) once: bool,
}

impl Kind for Reentrant {
    fn label(&self, _: Side) -> LockKind {
        if self.once { LockKind::NonReentrant } else { LockKind::Plain }
    }

    fn check_reentry(&self, held: Counts) -> Result<(), &'static str> {
        if self.once { only_once(held) } else { Ok(()) }
    }

    fn channel(&self, name: &LockName, _: &OwnerId) -> String {
        name.channel()
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        reentrant::acquire(args.name, args.owner, args.lease)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let remaining = remaining.map(|(counts, lease)| (counts.exclusive, lease));
        reentrant::release(name, owner, remaining, unlocked(&name.channel()))
    }

    fn force_release(&self, name: &LockName) -> Call<bool> {
        reentrant::force_release(name, unlocked(&name.channel()))
    }
}
