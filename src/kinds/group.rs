//! The group lock: the values of a group are locks of their own under one key.

use std::time::Duration;

use super::{AcquireArgs, Kind, unlocked};
use crate::error::Loss;
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::look::{self, Claim};
use crate::script::{Attempt, Bundle, Call, Counts, IfLock, Raise, Released, Renewal, RenewalAnswer, Side, group};
use crate::time::Lease;

/// One value of Redisson's `getMultiLock(group, values)`. The name has the value.
#[derive(Debug)]
pub(crate) struct Group {
    /// The difference between the clocks of the server and of Redisson clients, which judge deadlines by their own.
    skew_ms: u64,
}

impl Group {
    pub(crate) fn new(peer_clock_skew: Duration) -> Self {
        Self { skew_ms: u64::try_from(peer_clock_skew.as_millis()).unwrap_or(u64::MAX) }
    }
}

impl Kind for Group {
    fn family(&self) -> &'static str {
        "group"
    }

    fn label(&self, _: Side) -> LockKind {
        LockKind::Group
    }

    /// Who removes or takes the field of a value may leave the deadline and the count of its owner.
    fn may_leave_parts(&self) -> bool {
        true
    }

    fn channel(&self, name: &LockName, _: &OwnerId) -> String {
        name.channel()
    }

    fn bundle(&self) -> Option<Bundle> {
        Some(Bundle::Group { skew_ms: self.skew_ms })
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        group::acquire(args.name, args.owner, args.lease, self.skew_ms)
    }

    fn reenter(&self, name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
        group::reenter(name, owner, raise.endless, counts.exclusive, self.skew_ms)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let remaining = remaining.map(|(counts, lease)| (counts.exclusive, lease));
        group::release(name, owner, remaining, &name.channel(), self.skew_ms)
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        group::renew(locks, self.skew_ms)
    }

    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        look::owners(claims)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        group::force_release(name, unlocked(&name.channel())).map(Ok)
    }

    fn is_locked(&self, name: &LockName) -> Call<IfLock<bool>> {
        group::look(name, self.skew_ms, |reply| Some(Ok(group::read_hold(reply)?.is_some())))
    }

    fn time_to_live(&self, name: &LockName) -> Call<Option<Duration>> {
        group::look(name, self.skew_ms, |reply| Some(group::read_hold(reply)?.map(|hold| hold.left)))
    }

    fn holder(&self, name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
        group::look(name, self.skew_ms, |reply| Some(Ok(group::read_hold(reply)?.map(|hold| (hold.owner, hold.count)))))
    }
}

#[cfg(test)]
mod tests;
