//! How long one request may take.

use std::time::Duration;

use crate::time::Instant;

/// The deadline of a request, and the time that the server has for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    end: Instant,
    answer: Option<Duration>,
}

impl Limits {
    /// Sets one deadline for the whole request.
    pub(crate) fn by(end: Instant) -> Self {
        Self { end, answer: None }
    }

    /// Sets a deadline for the whole request, and for the reply a limit that starts when the request was sent.
    pub(crate) fn answered_within(end: Instant, answer: Duration) -> Self {
        Self { end, answer: Some(answer) }
    }

    /// The deadline of the whole request.
    pub(super) fn end(self) -> Instant {
        self.end
    }

    /// The deadline of the reply to a request that was sent at `sent`.
    #[cfg(test)]
    pub(crate) fn for_test(self, sent: Instant) -> Instant {
        self.answer.map_or(self.end, |answer| sent.after(answer).min(self.end))
    }

    /// The time that the server had for its reply, if `left` was left for the whole request.
    pub(super) fn of(self, left: Duration) -> Duration {
        self.answer.map_or(left, |answer| answer.min(left))
    }

    /// The deadline of the reply to a request that is sent now.
    pub(super) fn answer_by(self) -> Instant {
        self.answer.map_or(self.end, |answer| Instant::now().after(answer).min(self.end))
    }
}
