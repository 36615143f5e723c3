//! What scripts are given and what they answer, in the words of locks.

use redis::Value;

use crate::error::{Loss, Refusal};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

/// What Redis said to an attempt to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Granted,
    /// Somebody holds it for this many ms yet; negative where it has no time to live.
    Busy {
        ttl_ms: i64,
    },
}

/// What Redis said to a request about a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept<T> {
    Done(T),
    Lost(Loss),
}

/// How many clients a release told; `None` where Redis refused to tell them.
pub(crate) type Told = Option<u64>;

/// How a release is announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcement<'a> {
    pub(crate) channel: &'a str,
    pub(crate) message: &'a str,
    pub(crate) publish: &'a str,
}

/// One lock to renew.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Lease,
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
    Renewed,
    Lost(Loss),
    Refused(Refusal),
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
