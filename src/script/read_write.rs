//! The scripts of the read-write lock: one hash for both sides, and a key for each read hold.

use super::answer::{
    Attempt, Counts, Publication, Raise, Released, Renewal, RenewalAnswer, RenewalAnswers, read_outcome, read_release,
};
use super::look::{self, Claim};
use super::reply::int;
use super::{Call, Script, lua};
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE_READ: Script = lua!("read_write/acquire_read.lua");
static ACQUIRE_WRITE: Script = lua!("read_write/acquire_write.lua");
static REENTER: Script = lua!("read_write/reenter.lua");
static RELEASE: Script = lua!("read_write/release.lua");
static RENEW: Script = lua!("read_write/renew.lua");
static FORCE_RELEASE: Script = lua!("read_write/force_release.lua");
static IS_LOCKED: Script = lua!("read_write/is_locked.lua");

pub(crate) fn acquire_read(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    let first_hold = format!("{}1", name.read_holds_of(owner));
    ACQUIRE_READ.call(name, &[name.key(), first_hold.as_bytes()], Attempt::read).arg(lease.millis()).arg(owner.as_str())
}

pub(crate) fn acquire_write(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    ACQUIRE_WRITE.call(name, &[name.key()], Attempt::read).arg(lease.millis()).arg(format!("{owner}:write"))
}

pub(crate) fn reenter(name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
    REENTER
        .call(name, &[name.key()], read_outcome)
        .arg(raise.lease.millis())
        .arg(owner.as_str())
        .arg(counts.exclusive)
        .arg(counts.shared)
        .arg(name.read_holds_of(owner))
        .arg(raise.endless.millis())
}

/// Releases one hold count. `remaining` are the hold counts that stay, with the lease for them.
pub(crate) fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(Counts, Lease)>,
    channel: &str,
) -> Call<Released> {
    let (counts, lease_ms) = remaining.map_or((Counts::default(), 0), |(counts, lease)| (counts, lease.millis()));
    RELEASE
        .call(name, &[name.key()], read_release)
        .arg(owner.as_str())
        .arg(counts.exclusive)
        .arg(counts.shared)
        .arg(lease_ms)
        .arg(name.read_holds())
        .arg(channel)
        .publish_command()
}

/// Renews the given holds on one server. `locks` must not be empty.
pub(crate) fn renew(locks: &[Renewal]) -> Call<RenewalAnswers> {
    let keys: Vec<&[u8]> = locks.iter().map(|lock| lock.name.key()).collect();
    let call = RENEW.call(&locks[0].name, &keys, RenewalAnswers::read);
    locks.iter().fold(call, |call, lock| {
        let Raise { lease, endless } = lock.raise;
        let call = call.arg(lock.owner.as_str()).arg(lease.millis()).arg(endless.millis());
        call.arg(lock.name.read_holds_of(&lock.owner))
    })
}

/// Checks whether these owners still hold either side. `claims` must not be empty.
pub(crate) fn look(claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
    // The write side first: a hold may go on as a reader between the two commands, and never becomes a writer again.
    look::fields(claims, |owner| vec![format!("{owner}:write"), owner.to_string()])
}

/// Releases the side `mode` of whatever owner.
pub(crate) fn force_release(name: &LockName, mode: &str, publication: Publication<'_>) -> Call<bool> {
    FORCE_RELEASE.call(name, &[name.key()], |reply| Some(int(reply)? == 1)).arg(mode).publishing(publication)
}

pub(crate) fn is_locked(name: &LockName, mode: &str) -> Call<bool> {
    IS_LOCKED.call(name, &[name.key()], |reply| Some(int(reply)? == 1)).arg(mode)
}
