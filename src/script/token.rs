//! The scripts of the token lock: the key holds the value of the holder.

use redis::Value;

use super::answer::{Attempt, IfLock, Released, Renewal, RenewalAnswer, read_forced, read_outcome, without_receivers};
use super::{Call, Script, lua};
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE: Script = lua!("token/acquire.lua");
static REENTER: Script = lua!("token/reenter.lua");
static RELEASE: Script = lua!("token/release.lua");
static RENEW: Script = lua!("token/renew.lua");
static FORCE_RELEASE: Script = lua!("token/force_release.lua");

/// With `repairs`, a key without time to live gets the lease.
pub(crate) fn acquire(name: &LockName, owner: &OwnerId, lease: Lease, repairs: bool) -> Call<Attempt> {
    ACQUIRE.call(name, &[name.key()], Attempt::read).arg(lease.millis()).arg(owner.as_str()).arg(if repairs {
        1
    } else {
        0
    })
}

pub(crate) fn reenter(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Result<(), Loss>> {
    REENTER.call(name, &[name.key()], read_outcome).arg(lease.millis()).arg(owner.as_str())
}

/// Releases one hold count. `remaining` is the lease for the hold counts that stay.
pub(crate) fn release(name: &LockName, owner: &OwnerId, remaining: Option<Lease>) -> Call<Released> {
    RELEASE
        .call(name, &[name.key()], |reply| Some(without_receivers(read_outcome(reply)?)))
        .arg(owner.as_str())
        .arg(remaining.map_or(0, Lease::millis))
}

/// Renews the given holds on one server. `locks` must not be empty.
pub(crate) fn renew(locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
    let keys: Vec<&[u8]> = locks.iter().map(|lock| lock.name.key()).collect();
    let call = RENEW.call(&locks[0].name, &keys, RenewalAnswer::read_all);
    locks.iter().fold(call, |call, lock| call.arg(lock.owner.as_str()).arg(lock.lease_ms()))
}

pub(crate) fn force_release(name: &LockName) -> Call<IfLock<bool>> {
    FORCE_RELEASE.call(name, &[name.key()], read_forced)
}

/// Reads the value of the holder. The hold count is not stored, so it counts as 1.
pub(crate) fn holder(name: &LockName) -> Call<Option<(String, u64)>> {
    Call::plain(&["GET"], name, |reply| match reply {
        Value::Nil => Some(None),
        Value::BulkString(value) => Some(Some((String::from_utf8_lossy(value).into_owned(), 1))),
        _ => None,
    })
}
