//! The scripts of locks that are stored as a hash of one owner and its hold count.

use super::{UNLOCKED, stays};
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::answer::{read_forced, read_outcome, read_release};
use crate::script::bundle::{BundleAttempt, BundlePart, BundleRelease, read_releases};
use crate::script::{Attempt, Call, Counts, IfLock, Publication, Released, Renewal, RenewalAnswer, Script, lua};
use crate::time::Lease;

static ACQUIRE: Script = lua!("plain/acquire.lua");
static ACQUIRE_ALL: Script = lua!("plain/acquire_all.lua");
static REENTER: Script = lua!("plain/reenter.lua");
static RELEASE: Script = lua!("plain/release.lua");
static RELEASE_ALL: Script = lua!("plain/release_all.lua");
static RENEW: Script = lua!("plain/renew.lua");
static FORCE_RELEASE: Script = lua!("plain/force_release.lua");

pub(crate) fn acquire(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    ACQUIRE.call(name, &[name.key()], Attempt::read).arg(lease.millis()).arg(owner.as_str())
}

pub(crate) fn acquire_all(parts: &[BundlePart<'_>]) -> Call<BundleAttempt> {
    let call = ACQUIRE_ALL.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), BundleAttempt::read);
    parts.iter().fold(call, |call, part| call.arg(part.owner.as_str()).arg(part.lease.millis()))
}

pub(crate) fn reenter(name: &LockName, owner: &OwnerId, lease: Lease, count: usize) -> Call<Result<(), Loss>> {
    REENTER.call(name, &[name.key()], read_outcome).arg(lease.millis()).arg(owner.as_str()).arg(count)
}

pub(crate) fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(Counts, Lease)>,
    publication: Publication<'_>,
) -> Call<Released> {
    let (count, lease_ms) = stays(remaining);
    RELEASE.call(name, &[name.key()], read_release).arg(owner.as_str()).arg(count).arg(lease_ms).publishing(publication)
}

pub(crate) fn release_all(parts: &[BundleRelease<'_>]) -> Call<Vec<Released>> {
    let call = RELEASE_ALL.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), read_releases);
    let call = parts.iter().fold(call, |call, part| call.arg(part.owner.as_str()).arg(part.channel));
    call.arg(UNLOCKED).publish_command()
}

pub(crate) fn renew(locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
    renew_by(&RENEW, locks)
}

/// Renews by a script that takes a key, an owner and a lease for each hold.
pub(super) fn renew_by(script: &'static Script, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
    let call = script.call(&locks[0].name, &keys(locks.iter().map(|lock| &lock.name)), RenewalAnswer::read_all);
    locks.iter().fold(call, |call, lock| call.arg(lock.owner.as_str()).arg(lock.lease_ms()))
}

pub(crate) fn force_release(name: &LockName, publication: Publication<'_>) -> Call<IfLock<bool>> {
    FORCE_RELEASE.call(name, &[name.key()], read_forced).publishing(publication)
}

/// The keys of these locks.
pub(super) fn keys<'a>(names: impl Iterator<Item = &'a LockName>) -> Vec<&'a [u8]> {
    names.map(LockName::key).collect()
}

#[cfg(test)]
mod tests;
