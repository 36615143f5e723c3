//! The scripts of the fair lock: the state of the plain lock, and a queue in keys of its own.

use super::answer::{Attempt, IfLock, Publication, Released, read_forced, read_release};
use super::reply::int;
use super::{Call, Script, lua};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE: Script = lua!("fair/acquire.lua");
static RELEASE: Script = lua!("fair/release.lua");
static LEAVE: Script = lua!("fair/leave.lua");
static FORCE_RELEASE: Script = lua!("fair/force_release.lua");

/// The keys of all scripts of the fair lock.
struct Keys<'a> {
    lock: &'a [u8],
    beside: [String; 3],
}

impl<'a> Keys<'a> {
    fn of(name: &'a LockName) -> Self {
        Self { lock: name.key(), beside: [name.queue(), name.queue_deadlines(), name.queue_alive()] }
    }

    fn list(&self) -> [&[u8]; 4] {
        let [queue, deadlines, alive] = &self.beside;
        [self.lock, queue.as_bytes(), deadlines.as_bytes(), alive.as_bytes()]
    }
}

/// `patience` is the patience of the waiter; `None` asks once without a place in the queue.
pub(crate) fn acquire(
    name: &LockName,
    owner: &OwnerId,
    lease: Lease,
    patience: Option<Lease>,
    publication: Publication<'_>,
) -> Call<Attempt> {
    ACQUIRE
        .call(name, &Keys::of(name).list(), Attempt::read)
        .arg(lease.millis())
        .arg(owner.as_str())
        .arg(patience.map_or(0, Lease::millis))
        .publishing(publication)
}

/// Releases one hold count. `remaining` is the hold count that stays, with the lease for it.
pub(crate) fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(usize, Lease)>,
    patience: Lease,
    publication: Publication<'_>,
) -> Call<Released> {
    let (count, lease_ms) = remaining.map_or((0, 0), |(count, lease)| (count, lease.millis()));
    RELEASE
        .call(name, &Keys::of(name).list(), read_release)
        .arg(owner.as_str())
        .arg(count)
        .arg(lease_ms)
        .publishing(publication)
        .arg(patience.millis())
}

/// Removes the owner as holder and from the queue.
pub(crate) fn leave(name: &LockName, owner: &OwnerId, patience: Lease, publication: Publication<'_>) -> Call<()> {
    LEAVE
        .call(name, &Keys::of(name).list(), |reply| int(reply).map(drop))
        .arg(owner.as_str())
        .arg(patience.millis())
        .publishing(publication)
}

pub(crate) fn force_release(name: &LockName, publication: Publication<'_>) -> Call<IfLock<bool>> {
    FORCE_RELEASE.call(name, &Keys::of(name).list(), read_forced).publishing(publication)
}
