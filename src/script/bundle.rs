//! Several locks in one call: taken if all of them are free, or released.

use redis::Value;

use super::answer::{Attempt, Released, read_release};
use crate::error::Refusal;
use crate::name::{Joined, LockName};
use crate::owner::OwnerId;
use crate::reply::{int, list};

/// The most locks in one call.
pub(crate) const MOST_PARTS: usize = 1_000;

/// A lock to release, with a hold count of one.
pub(crate) struct BundleRelease<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: &'a OwnerId,
    /// The channel for the release; empty for a kind without messages.
    pub(crate) channel: Joined<'a>,
}

/// The reply to an attempt to take one or several locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BundleAttempt {
    /// All locks were granted, a single one perhaps with a fencing token.
    Granted { token: Option<u64> },
    /// At least one lock is not free, and nothing was changed: the state of each lock, in order.
    Refused(Vec<PartState>),
}

/// The state of one lock of a bundle that was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartState {
    Free,
    /// As an attempt to take this lock alone would be told: another owner has it, or a lock of another kind.
    Told(Attempt),
    /// This owner holds the lock: an earlier copy of the request was granted, and its reply was lost.
    Ours,
    /// The key cannot be read as a lock, for example a key of another type. A group reports such a key as a refusal of
    /// the whole request.
    Unreadable(Refusal),
}

impl BundleAttempt {
    /// The reply to an attempt to take one lock.
    pub(crate) fn of_one(attempt: Attempt) -> Self {
        match attempt {
            Attempt::Granted { token } => Self::Granted { token },
            told => Self::Refused(vec![PartState::Told(told)]),
        }
    }

    pub(crate) fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }

    pub(crate) fn read(reply: &Value) -> Option<Self> {
        match list(reply)?.split_first()? {
            (Value::Int(1), []) => Some(Self::Granted { token: None }),
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
            -3 => Some(Self::Told(Attempt::OtherKind)),
            -4 => Some(Self::Ours),
            ttl_ms if ttl_ms >= -1 => Some(Self::Told(Attempt::Busy { ttl_ms })),
            _ => None,
        }
    }
}

pub(crate) fn read_releases(reply: &Value) -> Option<Vec<Released>> {
    list(reply)?.iter().map(read_release).collect()
}
