//! Arguments and replies of scripts, as types.

use redis::Value;

use crate::error::{Loss, Refusal};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::reply::{int, list};
use crate::time::Lease;

/// The reply to an attempt to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The lock was granted, with a fencing token where the kind has tokens.
    Granted { token: Option<u64> },
    /// Another owner holds the lock. The time to live is negative for a key without one.
    Busy { ttl_ms: i64 },
    /// The name belongs to a lock of another kind.
    OtherKind,
}

/// The hold counts of an owner, by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) exclusive: usize,
    pub(crate) shared: usize,
}

impl Counts {
    pub(crate) fn of(mut self, side: Side) -> usize {
        *self.of_mut(side)
    }

    pub(crate) fn of_mut(&mut self, side: Side) -> &mut usize {
        match side {
            Side::Exclusive => &mut self.exclusive,
            Side::Shared => &mut self.shared,
        }
    }
}

/// The sides of a read-write lock; other locks have only the exclusive side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Exclusive,
    Shared,
}

impl Attempt {
    pub(crate) fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }

    pub(crate) fn read(reply: &Value) -> Option<Self> {
        match list(reply)? {
            [Value::Int(1)] => Some(Self::Granted { token: None }),
            [Value::Int(1), token] => Some(Self::Granted { token: Some(u64::try_from(int(token)?).ok()?) }),
            [Value::Int(0), ttl_ms] => Some(Self::Busy { ttl_ms: int(ttl_ms)? }),
            [Value::Int(2)] => Some(Self::OtherKind),
            _ => None,
        }
    }
}

/// The answer to the release of a hold: the number of clients that received the message, or `None` where Redis
/// refused to publish.
pub(crate) type Released = Result<Option<u64>, Loss>;

/// Reads the reply to a request about a hold: 1 = done | 0 = lost, the lock is free | 2 = lost, another owner has it.
pub(crate) fn read_outcome(reply: &Value) -> Option<Result<(), Loss>> {
    match int(reply)? {
        1 => Some(Ok(())),
        0 => Some(Err(Loss::Gone)),
        2 => Some(Err(Loss::Taken)),
        _ => None,
    }
}

/// Reads the reply to a release: {1, receivers} = done | {0} = lost, the lock is free | {2} = lost, another owner has
/// it.
pub(crate) fn read_release(reply: &Value) -> Option<Released> {
    match list(reply)? {
        [Value::Int(1), receivers] => Some(Ok(u64::try_from(int(receivers)?).ok())),
        [loss] => read_outcome(loss)?.err().map(Err),
        _ => None,
    }
}

/// A key that the kind of lock that asks cannot have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotALock;

/// The answer to a question about a lock of whatever owner.
pub(crate) type IfLock<T> = Result<T, NotALock>;

/// Reads the reply to a forced release: 1 = the lock was held | 0 = the lock was free | 2 = the key is no such lock.
pub(crate) fn read_forced(reply: &Value) -> Option<IfLock<bool>> {
    match int(reply)? {
        held @ (0 | 1) => Some(Ok(held == 1)),
        2 => Some(Err(NotALock)),
        _ => None,
    }
}

/// The receivers of a release that publishes no message.
pub(crate) const NO_RECEIVERS: Option<u64> = Some(0);

/// One hold to renew.
pub(crate) struct Renewal {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
    pub(crate) raise: Raise,
    /// The number of read holds, for a lock with sides.
    pub(crate) reads: usize,
}

/// The time to live that a renewal sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raise {
    pub(crate) lease: Lease,
    /// The time to live for a key whose expiry another client removed: the time that the holder still counts on, so
    /// at least the lease.
    pub(crate) endless: Lease,
}

impl Renewal {
    /// One time to live for both cases, for scripts that take one argument.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.raise.endless.millis()
    }
}

/// The result of a renewal or a check for one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenewalAnswer {
    /// The hold was renewed, or still exists where the request only checked.
    Renewed,
    Lost(Loss),
    Refused(Refusal),
}

impl RenewalAnswer {
    /// Reads the answers for several locks, in order.
    pub(crate) fn read_all(reply: &Value) -> Option<Vec<Self>> {
        list(reply)?.iter().map(Self::read).collect()
    }

    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Int(_) => Some(read_outcome(value)?.map_or_else(Self::Lost, |()| Self::Renewed)),
            Value::BulkString(text) => Some(Self::of_refusal(Refusal::from_text(&String::from_utf8_lossy(text)))),
            Value::ServerError(error) => Some(Self::of_refusal(Refusal::new(error))),
            _ => None,
        }
    }

    /// Whether the first hold was renewed; the renewal must reach what the hold needs.
    pub(crate) fn is_renewed(answers: &[Self]) -> bool {
        answers.first() == Some(&Self::Renewed)
    }

    /// Reads an error about one key: a key of another type means that the lock was overwritten.
    pub(crate) fn of_refusal(refusal: Refusal) -> Self {
        if refusal.word() == "WRONGTYPE" { Self::Lost(Loss::Taken) } else { Self::Refused(refusal) }
    }
}
