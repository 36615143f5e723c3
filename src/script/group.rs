//! The scripts of the group lock: one hash for all values of a group, with owner, deadline and hold count of each.

use std::time::Duration;

use redis::Value;

use super::answer::{Attempt, Publication, Released, Renewal, RenewalAnswer, read_outcome};
use super::bundle::{self, BundleAttempt, BundlePart, PartState};
use super::reply::{int, list};
use super::{Call, Script, lua};
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static REENTER: Script = lua!("group/reenter.lua");
static RENEW: Script = lua!("group/renew.lua");
static FORCE_RELEASE: Script = lua!("group/force_release.lua");
static LOOK: Script = lua!("group/look.lua");

/// The hold of a value, as Redis has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueHold {
    pub(crate) owner: String,
    pub(crate) count: u64,
    pub(crate) left: Duration,
}

/// In all functions, `skew_ms` is the difference of the clocks of server and peers that holders and waiters allow for.
pub(crate) fn acquire(name: &LockName, owner: &OwnerId, lease: Lease, skew_ms: u64) -> Call<Attempt> {
    bundle::acquire_values(&[BundlePart { name, owner, lease }], skew_ms, |reply| match BundleAttempt::read(reply)? {
        BundleAttempt::Granted => Some(Attempt::Granted { token: None }),
        BundleAttempt::Refused(states) => match states[..] {
            [PartState::Busy { ttl_ms }] => Some(Attempt::Busy { ttl_ms }),
            [PartState::OtherKind] => Some(Attempt::OtherKind),
            _ => None,
        },
    })
}

pub(crate) fn reenter(
    name: &LockName,
    owner: &OwnerId,
    lease: Lease,
    count: usize,
    skew_ms: u64,
) -> Call<Result<(), Loss>> {
    REENTER
        .call(name, &[name.key()], read_outcome)
        .arg(name.field())
        .arg(owner.as_str())
        .arg(lease.millis())
        .arg(count)
        .arg(skew_ms)
}

/// Releases one hold count. `remaining` is the hold count that stays, with the lease for it.
pub(crate) fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(usize, Lease)>,
    channel: &str,
    skew_ms: u64,
) -> Call<Released> {
    let first = |reply: &Value| bundle::read_releases(reply)?.into_iter().next();
    bundle::release_values(&[(name, owner, remaining, channel)], skew_ms, first)
}

/// Renews the given holds on one server. `locks` must not be empty.
pub(crate) fn renew(locks: &[Renewal], skew_ms: u64) -> Call<Vec<RenewalAnswer>> {
    let keys: Vec<&[u8]> = locks.iter().map(|lock| lock.name.key()).collect();
    let call = RENEW.call(&locks[0].name, &keys, RenewalAnswer::read_all);
    let with_lock =
        |call: Call<_>, lock: &Renewal| call.arg(lock.name.field()).arg(lock.owner.as_str()).arg(lock.lease_ms());
    locks.iter().fold(call, with_lock).arg(skew_ms)
}

pub(crate) fn force_release(name: &LockName, publication: Publication<'_>) -> Call<bool> {
    let call = FORCE_RELEASE.call(name, &[name.key()], |reply| Some(int(reply)? == 1));
    call.arg(name.field()).arg(publication.channel).arg(publication.message).publish_command()
}

/// Reads the hold of a value, with the part of the reply that `read` takes.
pub(crate) fn look<T>(name: &LockName, skew_ms: u64, read: fn(&Value) -> Option<T>) -> Call<T> {
    LOOK.call(name, &[name.key()], read).arg(name.field()).arg(skew_ms)
}

/// Reads the reply to [`look`].
pub(crate) fn read_hold(reply: &Value) -> Option<Option<ValueHold>> {
    match list(reply)? {
        [] => Some(None),
        [Value::BulkString(owner), count, left] => Some(Some(ValueHold {
            owner: String::from_utf8_lossy(owner).into_owned(),
            count: u64::try_from(int(count)?).ok()?,
            left: Duration::from_millis(u64::try_from(int(left)?).ok()?),
        })),
        _ => None,
    }
}

#[cfg(test)]
mod java;
#[cfg(test)]
mod tests;
