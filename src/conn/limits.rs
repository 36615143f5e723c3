//! How long one request may take.

use std::time::Duration;

use crate::time::Instant;

/// When a request is over, and how long its answer may take once it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    end: Instant,
    answer: Option<Duration>,
}

impl Limits {
    /// Everything by `end`.
    pub(crate) fn by(end: Instant) -> Self {
        Self { end, answer: None }
    }

    /// Everything by `end`, and the answer at most `answer` after the request was sent.
    pub(crate) fn answered_within(end: Instant, answer: Duration) -> Self {
        Self { end, answer: Some(answer) }
    }

    /// When it is over in any case.
    pub(super) fn end(self) -> Instant {
        self.end
    }

    /// When the answer to a request sent at `sent` has to be there.
    #[cfg(test)]
    pub(crate) fn for_test(self, sent: Instant) -> Instant {
        self.answer.map_or(self.end, |answer| sent.after(answer).min(self.end))
    }

    /// How long the server had, where so much was left for everything.
    pub(super) fn of(self, left: Duration) -> Duration {
        self.answer.map_or(left, |answer| answer.min(left))
    }

    /// When the answer to a request sent now has to be there.
    pub(super) fn answer_by(self) -> Instant {
        self.answer.map_or(self.end, |answer| Instant::now().after(answer).min(self.end))
    }
}
