//! The scripts of the fair lock: the plain lock's state, and a queue beside it.

use std::time::Duration;

use super::answer::{Announcement, Attempt, Kept, Told};
use super::call::int;
use super::{Call, Script, lua};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE: Script = lua!("fair/acquire.lua");
static RELEASE: Script = lua!("fair/release.lua");
static LEAVE: Script = lua!("fair/leave.lua");
static FORCE_RELEASE: Script = lua!("fair/force_release.lua");

/// `waits` is the patience of a waiter and the time since it asked before; `None` asks once.
pub(crate) fn acquire(
    name: &LockName,
    owner: &OwnerId,
    lease: Lease,
    waits: Option<(Lease, Duration)>,
    announcement: Announcement<'_>,
) -> Call<Attempt> {
    let (patience_ms, since_ms) = waits.map_or((0, 0), |(patience, since)| (patience.millis(), since.as_millis()));
    ACQUIRE
        .call(name, &[name.key(), name.queue().as_bytes(), name.queue_deadlines().as_bytes()], Attempt::read)
        .arg(lease.millis())
        .arg(owner.as_str())
        .arg(patience_ms)
        .arg(u64::try_from(since_ms).unwrap_or(u64::MAX))
        .announced(announcement)
}

/// Gives one hold back; `remaining` is the count that stays and the lease promised to it.
pub(crate) fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(usize, Lease)>,
    patience: Lease,
    announcement: Announcement<'_>,
) -> Call<Kept<Told>> {
    let (count, lease_ms) = remaining.map_or((0, 0), |(count, lease)| (count, lease.millis()));
    RELEASE
        .call(name, &[name.key(), name.queue().as_bytes(), name.queue_deadlines().as_bytes()], Kept::read_release)
        .arg(owner.as_str())
        .arg(count)
        .arg(lease_ms)
        .announced(announcement)
        .arg(patience.millis())
}

/// Takes a hold and a place in the queue away, whichever there is.
pub(crate) fn leave(name: &LockName, owner: &OwnerId, patience: Lease, announcement: Announcement<'_>) -> Call<()> {
    LEAVE
        .call(name, &[name.key(), name.queue().as_bytes(), name.queue_deadlines().as_bytes()], |reply| {
            int(reply).map(drop)
        })
        .arg(owner.as_str())
        .arg(patience.millis())
        .announced(announcement)
}

pub(crate) fn force_release(name: &LockName, announcement: Announcement<'_>) -> Call<bool> {
    FORCE_RELEASE
        .call(name, &[name.key(), name.queue().as_bytes(), name.queue_deadlines().as_bytes()], |reply| {
            Some(int(reply)? == 1)
        })
        .announced(announcement)
}
