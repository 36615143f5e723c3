//! The scripts of locks that are stored as a hash of one owner and its hold count.

use crate::error::Loss;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::answer::{
    Attempt, IfLock, Publication, Released, Renewal, RenewalAnswer, read_forced, read_outcome, read_release,
};
use crate::script::{Call, Script, lua};
use crate::time::Lease;

static ACQUIRE: Script = lua!("plain/acquire.lua");
static REENTER: Script = lua!("plain/reenter.lua");
static RELEASE: Script = lua!("plain/release.lua");
static RENEW: Script = lua!("plain/renew.lua");
static FORCE_RELEASE: Script = lua!("plain/force_release.lua");

pub(crate) fn acquire(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    ACQUIRE.call(name, &[name.key()], Attempt::read).arg(lease.millis()).arg(owner.as_str())
}

pub(crate) fn reenter(name: &LockName, owner: &OwnerId, lease: Lease, count: usize) -> Call<Result<(), Loss>> {
    REENTER.call(name, &[name.key()], read_outcome).arg(lease.millis()).arg(owner.as_str()).arg(count)
}

/// Releases one hold count. `remaining` is the hold count that stays, with the lease for it.
pub(crate) fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(usize, Lease)>,
    publication: Publication<'_>,
) -> Call<Released> {
    let (count, lease_ms) = remaining.map_or((0, 0), |(count, lease)| (count, lease.millis()));
    RELEASE.call(name, &[name.key()], read_release).arg(owner.as_str()).arg(count).arg(lease_ms).publishing(publication)
}

/// Renews the given holds on one server. `locks` must not be empty.
pub(crate) fn renew(locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
    let keys: Vec<&[u8]> = locks.iter().map(|lock| lock.name.key()).collect();
    let call = RENEW.call(&locks[0].name, &keys, RenewalAnswer::read_all);
    locks.iter().fold(call, |call, lock| call.arg(lock.owner.as_str()).arg(lock.lease_ms()))
}

pub(crate) fn force_release(name: &LockName, publication: Publication<'_>) -> Call<IfLock<bool>> {
    FORCE_RELEASE.call(name, &[name.key()], read_forced).publishing(publication)
}
