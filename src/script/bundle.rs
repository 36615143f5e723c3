//! Several locks in one call: taken if all of them are free, or released.

use redis::Value;

use super::answer::{Released, read_release};
use super::call::PUBLISH;
use super::reply::{int, list};
use super::{Call, Script, lua};
use crate::error::Refusal;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE_ALL: Script = lua!("plain/acquire_all.lua");
static RELEASE_ALL: Script = lua!("plain/release_all.lua");

/// The scripts that take and release several locks of a kind. Locks of one server with equal bundles can be asked for
/// in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bundle {
    /// Locks that are stored as a hash of one owner and its hold count.
    Plain,
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
    /// The key cannot be read as a lock, for example a key of another type.
    Unreadable(Refusal),
}

impl Bundle {
    /// Takes all locks for new holds, or none. `parts` are locks of one server with different names, at least one and
    /// at most [`MOST_PARTS`].
    pub(crate) fn acquire(self, parts: &[BundlePart<'_>]) -> Call<BundleAttempt> {
        let Self::Plain = self;
        let call = ACQUIRE_ALL.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), BundleAttempt::read);
        parts.iter().fold(call, |call, part| call.arg(part.owner.as_str()).arg(part.lease.millis()))
    }

    /// Releases all locks, also when some of them are lost. The same rules apply to `parts`.
    pub(crate) fn release(self, parts: &[BundleRelease<'_>]) -> Call<Vec<Released>> {
        let Self::Plain = self;
        let call = RELEASE_ALL.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), read_releases);
        let call = parts.iter().fold(call, |call, part| call.arg(part.owner.as_str()).arg(part.channel));
        call.arg(UNLOCKED).arg(PUBLISH)
    }
}

fn keys<'a>(names: impl Iterator<Item = &'a LockName>) -> Vec<&'a [u8]> {
    names.map(LockName::key).collect()
}

impl BundleAttempt {
    fn read(reply: &Value) -> Option<Self> {
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
            ttl_ms if ttl_ms >= -1 => Some(Self::Busy { ttl_ms }),
            _ => None,
        }
    }
}

fn read_releases(reply: &Value) -> Option<Vec<Released>> {
    list(reply)?.iter().map(read_release).collect()
}

/// The message "unlocked", as every client of these locks understands it.
const UNLOCKED: &str = "0";

#[cfg(test)]
mod tests;
