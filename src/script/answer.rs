//! What scripts are given and what they answer, in the words of locks.

use redis::Value;

use super::call::{int, list};
use crate::error::{Loss, Refusal};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

/// What Redis said to an attempt to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It is ours, with a fencing token where the kind has them.
    Granted { token: Option<u64> },
    /// Somebody holds it for this many ms yet; negative where it has no time to live.
    Busy { ttl_ms: i64 },
    /// The name is in use by another kind of lock.
    OtherKind,
}

/// How often an owner holds each side of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) exclusive: usize,
    pub(crate) shared: usize,
}

impl Counts {
    pub(crate) fn of(self, side: Side) -> usize {
        match side {
            Side::Exclusive => self.exclusive,
            Side::Shared => self.shared,
        }
    }

    pub(crate) fn of_mut(&mut self, side: Side) -> &mut usize {
        match side {
            Side::Exclusive => &mut self.exclusive,
            Side::Shared => &mut self.shared,
        }
    }
}

/// The sides of a lock that can be held in two ways; most locks have only the exclusive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Exclusive,
    Shared,
}

impl Attempt {
    pub(super) fn read(reply: &Value) -> Option<Self> {
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
pub(super) fn read_outcome(reply: &Value) -> Option<Result<(), Loss>> {
    match int(reply)? {
        1 => Some(Ok(())),
        0 => Some(Err(Loss::Gone)),
        2 => Some(Err(Loss::Taken)),
        _ => None,
    }
}

/// Reads the reply to a release: {1, receivers} = done | {0} = lost, the lock is free | {2} = lost, another owner has it.
pub(super) fn read_release(reply: &Value) -> Option<Released> {
    match list(reply)? {
        [Value::Int(1), receivers] => Some(Ok(u64::try_from(int(receivers)?).ok())),
        [Value::Int(0)] => Some(Err(Loss::Gone)),
        [Value::Int(2)] => Some(Err(Loss::Taken)),
        _ => None,
    }
}

/// The answer to a release that publishes no message.
pub(super) fn without_receivers(outcome: Result<(), Loss>) -> Released {
    outcome.map(|()| Some(0))
}

/// The message that a release publishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publication<'a> {
    pub(crate) channel: &'a str,
    pub(crate) message: &'a str,
}

/// One lock to renew.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
    pub(crate) raise: Raise,
}

/// What a time to live is raised to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raise {
    pub(crate) lease: Lease,
    /// What a lock gets that has none because somebody took it away: as much as its holder believes in, so not
    /// less than the lease.
    pub(crate) endless: Lease,
}

impl Renewal {
    /// One lease for both, as scripts take it that raise one time to live.
    pub(super) fn lease_ms(&self) -> u64 {
        self.raise.endless.millis()
    }
}

/// What a renewal of several locks answered.
#[derive(Debug)]
pub(crate) struct RenewalAnswers {
    /// The server's own clock, ms since 1970.
    pub(crate) server_time_ms: u64,
    /// One answer for each lock, in order.
    pub(crate) answers: Vec<RenewalAnswer>,
}

/// What the renewal of one lock answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenewalAnswer {
    /// Renewed, or still there where that was all that was asked.
    Renewed,
    Lost(Loss),
    Refused(Refusal),
}

impl RenewalAnswers {
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let (time, answers) = list(reply)?.split_first()?;
        let answers = answers.iter().map(RenewalAnswer::read).collect::<Option<_>>()?;
        Some(Self { server_time_ms: u64::try_from(int(time)?).ok()?, answers })
    }
}

impl RenewalAnswer {
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Int(1) => Some(Self::Renewed),
            Value::Int(0) => Some(Self::Lost(Loss::Gone)),
            Value::Int(2) => Some(Self::Lost(Loss::Taken)),
            Value::BulkString(text) => Some(Self::of_refusal(Refusal::from_text(&String::from_utf8_lossy(text)))),
            Value::ServerError(error) => Some(Self::of_refusal(Refusal::new(error))),
            _ => None,
        }
    }

    /// What an error about this one key means: a key of another type is no lock of ours any more.
    fn of_refusal(refusal: Refusal) -> Self {
        if refusal.word() == "WRONGTYPE" { Self::Lost(Loss::Taken) } else { Self::Refused(refusal) }
    }
}
