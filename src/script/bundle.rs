//! Several locks in one call: taken if all of them are free, or released.

use redis::Value;

use super::answer::{Released, read_release};
use super::reply::{int, list};
use super::{Call, Script, lua};
use crate::error::Refusal;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE_ALL: Script = lua!("plain/acquire_all.lua");
static RELEASE_ALL: Script = lua!("plain/release_all.lua");
static ACQUIRE_VALUES: Script = lua!("group/acquire.lua");
static RELEASE_VALUES: Script = lua!("group/release.lua");

/// The scripts that take and release several locks of a kind. Locks of one server with equal bundles can be asked for
/// in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bundle {
    /// Locks that are stored as a hash of one owner and its hold count.
    Plain,
    /// Values of group locks, with the difference of clocks that holders and waiters allow for.
    Group { skew_ms: u64 },
}

/// The most locks in one call.
pub(crate) const MOST_PARTS: usize = 1_000;

/// A lock to take, for a new hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BundlePart<'a> {
    pub(crate) name: &'a LockName,
    /// The owner of this part alone: each part becomes a hold of its own.
    pub(crate) owner: &'a OwnerId,
    pub(crate) lease: Lease,
}

/// A lock to release, with a hold count of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BundleRelease<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: &'a OwnerId,
    /// The channel for the release; empty for a kind without messages.
    pub(crate) channel: &'a str,
}

/// The reply to an attempt to take several locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BundleAttempt {
    /// All locks were granted.
    Granted,
    /// At least one lock is not free, and nothing was changed: the state of each lock, in order.
    Refused(Vec<PartState>),
}

/// The state of one lock of a bundle that was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartState {
    Free,
    /// Another owner holds the lock. The time to live is negative for a key without one.
    Busy {
        ttl_ms: i64,
    },
    /// The name belongs to a lock of another kind.
    OtherKind,
    /// This owner holds the lock: an earlier copy of the request was granted, and its reply was lost.
    Ours,
    /// The key cannot be read as a lock, for example a key of another type. A group reports such a key as a refusal of
    /// the whole request.
    Unreadable(Refusal),
}

impl Bundle {
    /// Takes all locks for new holds, or none. `parts` are locks of one server with different names, at least one and
    /// at most [`MOST_PARTS`].
    pub(crate) fn acquire(self, parts: &[BundlePart<'_>]) -> Call<BundleAttempt> {
        match self {
            Self::Plain => {
                let keys = keys(parts.iter().map(|part| part.name));
                let call = ACQUIRE_ALL.call(parts[0].name, &keys, BundleAttempt::read);
                parts.iter().fold(call, |call, part| call.arg(part.owner.as_str()).arg(part.lease.millis()))
            }
            Self::Group { skew_ms } => acquire_values(parts, skew_ms, BundleAttempt::read),
        }
    }

    /// Releases all locks, also when some of them are lost. The same rules apply to `parts`. A message on a channel
    /// that several parts share is published once, and counted for the first part.
    pub(crate) fn release(self, parts: &[BundleRelease<'_>]) -> Call<Vec<Released>> {
        match self {
            Self::Plain => {
                let keys = keys(parts.iter().map(|part| part.name));
                let call = RELEASE_ALL.call(parts[0].name, &keys, read_releases);
                let call = parts.iter().fold(call, |call, part| call.arg(part.owner.as_str()).arg(part.channel));
                call.arg(UNLOCKED).publish_command()
            }
            Self::Group { skew_ms } => {
                let values: Vec<ValueRelease<'_>> =
                    parts.iter().map(|part| (part.name, part.owner, None, part.channel)).collect();
                release_values(&values, skew_ms, read_releases)
            }
        }
    }
}

/// A value to release: name, owner, the hold count that stays with the lease for it, and the channel.
pub(crate) type ValueRelease<'a> = (&'a LockName, &'a OwnerId, Option<(usize, Lease)>, &'a str);

/// Takes values of groups.
pub(crate) fn acquire_values<T>(parts: &[BundlePart<'_>], skew_ms: u64, read: fn(&Value) -> Option<T>) -> Call<T> {
    let call = ACQUIRE_VALUES.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), read);
    let with_part = |call: Call<T>, part: &BundlePart<'_>| {
        call.arg(part.name.field()).arg(part.owner.as_str()).arg(part.lease.millis())
    };
    parts.iter().fold(call, with_part).arg(skew_ms)
}

/// Releases hold counts of values of groups.
pub(crate) fn release_values<T>(values: &[ValueRelease<'_>], skew_ms: u64, read: fn(&Value) -> Option<T>) -> Call<T> {
    let call = RELEASE_VALUES.call(values[0].0, &keys(values.iter().map(|value| value.0)), read);
    let with_value = |call: Call<T>, &(name, owner, remaining, channel): &ValueRelease<'_>| {
        let (count, lease_ms) = remaining.map_or((0, 0), |(count, lease)| (count, lease.millis()));
        call.arg(name.field()).arg(owner.as_str()).arg(count).arg(lease_ms).arg(channel)
    };
    values.iter().fold(call, with_value).arg(skew_ms).arg(UNLOCKED).publish_command()
}

fn keys<'a>(names: impl Iterator<Item = &'a LockName>) -> Vec<&'a [u8]> {
    names.map(LockName::key).collect()
}

impl BundleAttempt {
    pub(crate) fn read(reply: &Value) -> Option<Self> {
        match list(reply)?.split_first()? {
            (Value::Int(1), []) => Some(Self::Granted),
            (Value::Int(0), states) => Some(Self::Refused(states.iter().map(PartState::read).collect::<Option<_>>()?)),
            _ => None,
        }
    }
}

impl PartState {
    fn read(value: &Value) -> Option<Self> {
        if let Value::BulkString(text) = value {
            return Some(Self::Unreadable(Refusal::from_text(&String::from_utf8_lossy(text))));
        }
        match int(value)? {
            -2 => Some(Self::Free),
            -3 => Some(Self::OtherKind),
            -4 => Some(Self::Ours),
            ttl_ms if ttl_ms >= -1 => Some(Self::Busy { ttl_ms }),
            _ => None,
        }
    }
}

pub(crate) fn read_releases(reply: &Value) -> Option<Vec<Released>> {
    list(reply)?.iter().map(read_release).collect()
}

/// The message "unlocked", as every client of these locks understands it.
const UNLOCKED: &str = "0";

#[cfg(test)]
mod tests;
