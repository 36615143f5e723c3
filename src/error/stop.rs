//! Why a request of several round trips ended without an answer.

use redis::Value;

use super::Refusal;

/// The end of several round trips that have no answer.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(Refusal),
    /// The server lacks the command; nothing was changed.
    Unsupported(&'static str),
    /// A reply did not arrive, or the request never has a reply of that shape.
    NoReply,
    /// A reply was longer than any that is read; the replies before it.
    TooLong(Vec<Value>),
    /// The request changed nothing, and the key has more data than any lock.
    NotALock,
}
