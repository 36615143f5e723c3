//! The scripts of the plain lock.

use redis::Value;

use super::answer::{Announcement, Attempt, Kept, Renewal, RenewalAnswer, RenewalAnswers, Told};
use super::call::{int, list};
use super::{Call, Script, lua};
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE: Script = lua!("reentrant/acquire.lua");
static REENTER: Script = lua!("reentrant/reenter.lua");
static RELEASE: Script = lua!("reentrant/release.lua");
static RENEW: Script = lua!("reentrant/renew.lua");
static FORCE_RELEASE: Script = lua!("reentrant/force_release.lua");

pub(crate) fn acquire(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    ACQUIRE.call(&[name], read_attempt).arg(lease.millis()).arg(owner.as_str())
}

pub(crate) fn reenter(name: &LockName, owner: &OwnerId, lease: Lease, count: usize) -> Call<Kept<()>> {
    REENTER.call(&[name], read_kept).arg(lease.millis()).arg(owner.as_str()).arg(count)
}

/// Gives one hold back; `remaining` is the count that stays and the lease promised to it.
pub(crate) fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(usize, Lease)>,
    announcement: Announcement<'_>,
) -> Call<Kept<Told>> {
    let (count, lease_ms) = remaining.map_or((0, 0), |(count, lease)| (count, lease.millis()));
    RELEASE
        .call(&[name], read_release)
        .arg(owner.as_str())
        .arg(count)
        .arg(lease_ms)
        .arg(announcement.channel)
        .arg(announcement.message)
        .arg(announcement.publish)
}

/// Renews several locks of one server, at least one.
pub(crate) fn renew(locks: &[Renewal]) -> Call<RenewalAnswers> {
    let names: Vec<&LockName> = locks.iter().map(|lock| &lock.name).collect();
    locks
        .iter()
        .fold(RENEW.call(&names, read_renewals), |call, lock| call.arg(lock.owner.as_str()).arg(lock.lease.millis()))
}

pub(crate) fn force_release(name: &LockName, announcement: Announcement<'_>) -> Call<bool> {
    FORCE_RELEASE
        .call(&[name], |reply| Some(int(reply)? == 1))
        .arg(announcement.channel)
        .arg(announcement.message)
        .arg(announcement.publish)
}

fn read_attempt(reply: &Value) -> Option<Attempt> {
    match list(reply)? {
        [Value::Int(1)] => Some(Attempt::Granted),
        [Value::Int(0), ttl_ms] => Some(Attempt::Busy { ttl_ms: int(ttl_ms)? }),
        _ => None,
    }
}

fn read_kept(reply: &Value) -> Option<Kept<()>> {
    match int(reply)? {
        1 => Some(Kept::Done(())),
        0 => Some(Kept::Lost(Loss::Gone)),
        2 => Some(Kept::Lost(Loss::Taken)),
        _ => None,
    }
}

fn read_release(reply: &Value) -> Option<Kept<Told>> {
    match list(reply)? {
        [Value::Int(1), told] => Some(Kept::Done(u64::try_from(int(told)?).ok())),
        [Value::Int(0)] => Some(Kept::Lost(Loss::Gone)),
        [Value::Int(2)] => Some(Kept::Lost(Loss::Taken)),
        _ => None,
    }
}

fn read_renewals(reply: &Value) -> Option<RenewalAnswers> {
    let (time, answers) = list(reply)?.split_first()?;
    let answers = answers.iter().map(RenewalAnswer::read).collect::<Option<_>>()?;
    Some(RenewalAnswers { server_time_ms: u64::try_from(int(time)?).ok()?, answers })
}
