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

impl Stop {
    /// Ends the round trips where one of these replies is a refusal.
    pub(crate) fn at_a_refusal<'a>(replies: impl IntoIterator<Item = &'a Value>) -> Result<(), Self> {
        replies.into_iter().find_map(Refusal::in_reply).map_or(Ok(()), |refusal| Err(Self::Refused(refusal)))
    }
}
