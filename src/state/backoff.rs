//! Pauses that grow, with jitter, so that many clients do not retry at the same moment.

use std::time::Duration;

use crate::system::random;

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
        share(random(), bound / 2, bound)
    }

    /// Raises the bound of the next pause to at least `bound`.
    pub(crate) fn at_least(&mut self, bound: Duration) {
        self.bound = self.bound.max(bound.min(LONGEST));
    }
}

/// Returns a duration between `least` and `most`, by a random number.
fn share(random: u64, least: Duration, most: Duration) -> Duration {
    let share = u32::try_from(random % 1_000).unwrap_or(0);
    least + most.saturating_sub(least) * share / 1_000
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
