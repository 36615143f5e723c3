//! The plain lock: exclusive, with re-entry or without.

use super::{AcquireArgs, Kind, hash, only_once, unlocked};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::{Attempt, Bundle, Call, Counts, IfLock, Released, Side};
use crate::time::Lease;

/// Redisson's `RLock`, and its non-reentrant lock: the same state in Redis, but a second take is an error.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) reentrant: bool,
}

impl Kind for Plain {
    fn label(&self, _: Side) -> LockKind {
        if self.reentrant { LockKind::Plain } else { LockKind::NonReentrant }
    }

    fn check_reentry(&self, held: Counts) -> Result<(), &'static str> {
        if self.reentrant { Ok(()) } else { only_once(held) }
    }

    fn channel(&self, name: &LockName, _: &OwnerId) -> String {
        name.channel()
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        hash::acquire(args.name, args.owner, args.lease)
    }

    fn bundle(&self) -> Option<Bundle> {
        Some(Bundle::Plain)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let remaining = remaining.map(|(counts, lease)| (counts.exclusive, lease));
        hash::release(name, owner, remaining, unlocked(&name.channel()))
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        hash::force_release(name, unlocked(&name.channel()))
    }
}
