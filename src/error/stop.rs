//! Why a request of several round trips ended without an answer.

use super::Refusal;

/// The end of several round trips that have no answer.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(Refusal),
    /// The server lacks the command; nothing was changed.
    Unsupported(&'static str),
    /// A reply did not arrive, or the request never has a reply of that shape.
    NoReply,
}
