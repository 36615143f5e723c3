//! Expiring permits: several owners hold permits of one semaphore, each for a time of its own.

use std::time::Duration;

use super::{AcquireArgs, Kind, Queueing};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::look::Claim;
use crate::script::{Attempt, Call, Counts, IfLock, Released, Renewal, RenewalAnswer, Side, permits};
use crate::time::Lease;

/// Permits of Redisson's permit-expirable semaphore, taken together.
#[derive(Debug)]
pub(crate) struct PermitLock {
    permits: u32,
    /// The time by which permits are taken for longer than their holder believes, because a client of Redisson takes
    /// back expired permits by its own clock.
    skew_ms: u64,
}

impl PermitLock {
    pub(crate) fn new(permits: u32, peer_clock_skew: Duration) -> Self {
        Self { permits, skew_ms: u64::try_from(peer_clock_skew.as_millis()).unwrap_or(u64::MAX) }
    }
}

impl Kind for PermitLock {
    fn label(&self, _: Side) -> LockKind {
        LockKind::Permit
    }

    fn family(&self) -> &'static str {
        "permit"
    }

    /// The owner tells how many permits it has, so that one renewal covers holds of different numbers.
    fn encode_owner(&self, owner: OwnerId) -> OwnerId {
        permits::owner_of(&owner, self.permits)
    }

    /// A hold of several permits is lost with the first of them.
    fn may_leave_parts(&self) -> bool {
        true
    }

    fn queueing(&self) -> Queueing {
        Queueing::Counted(self.permits)
    }

    fn side(&self) -> Side {
        Side::Shared
    }

    fn channel(&self, name: &LockName, _: &OwnerId) -> String {
        name.semaphore_channel()
    }

    /// The counter may be gone while permits are taken.
    fn held_under(&self, name: &LockName) -> Vec<u8> {
        name.taken_permits().into_bytes()
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        permits::acquire(args.name, args.owner, args.lease, self.skew_ms)
    }

    /// Permits have one guard and are never re-entered, so nothing remains.
    fn release(&self, name: &LockName, owner: &OwnerId, _: Option<(Counts, Lease)>) -> Call<Released> {
        permits::release(name, owner)
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        permits::renew(locks, self.skew_ms)
    }

    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        permits::look(claims)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        permits::force_release(name)
    }
}
