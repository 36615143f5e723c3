//! The lock of an election: the fenced lock, and the text of the candidate that holds it.

use std::sync::Arc;

use super::{AcquireArgs, Kind, unlocked};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::{Attempt, Call, Counts, IfLock, Released, Renewal, RenewalAnswer, Side, leader};
use crate::time::Lease;

/// The lock of an election, for one candidate.
#[derive(Debug)]
pub(crate) struct LeaderLock {
    /// The text that observers read.
    pub(crate) candidate: Arc<str>,
}

impl Kind for LeaderLock {
    fn label(&self, _: Side) -> LockKind {
        LockKind::Leader
    }

    fn family(&self) -> &'static str {
        "leader"
    }

    /// A leadership lasts; nobody takes turns.
    fn stands_back(&self) -> bool {
        false
    }

    fn channel(&self, name: &LockName, _: &OwnerId) -> String {
        name.channel()
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        leader::acquire(args.name, args.owner, args.lease, &self.candidate)
    }

    /// A leadership has one guard and is never re-entered, so nothing remains.
    fn release(&self, name: &LockName, owner: &OwnerId, _: Option<(Counts, Lease)>) -> Call<Released> {
        leader::release(name, owner, unlocked(&name.channel()))
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        leader::renew(locks)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        leader::force_release(name, unlocked(&name.channel()))
    }
}
