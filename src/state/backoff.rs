//! Pauses that grow, with jitter, so that many clients do not retry at the same moment.

use std::time::Duration;

use crate::system::random;
use crate::time::up_to;

/// Pauses under a bound that doubles.
pub(crate) struct RetryPause {
    bound: Duration,
}

impl RetryPause {
    pub(crate) fn new() -> Self {
        Self { bound: FIRST }
    }

    /// Returns the next pause: between half of the bound and the bound.
    pub(crate) fn next(&mut self) -> Duration {
        let bound = self.bound;
        self.bound = (bound * 2).min(LONGEST);
        bound / 2 + up_to(bound / 2, random())
    }

    /// Raises the bound of the next pause to at least `bound`.
    pub(crate) fn at_least(&mut self, bound: Duration) {
        self.bound = self.bound.max(bound.min(LONGEST));
    }
}

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        let mut pause = RetryPause::new();
        let pauses: Vec<_> = (0..12).map(|_| pause.next()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST, "{pauses:?}");
        assert!(pauses[11] >= LONGEST / 2 && pauses[11] <= LONGEST, "{pauses:?}");
    }
}
