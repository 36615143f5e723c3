//! Pauses that grow, with jitter, so that many clients do not come back at once.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Full jitter over a bound that doubles.
#[derive(Debug)]
pub(crate) struct Backoff {
    bound: Duration,
    random: RandomState,
    draws: u64,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { bound: FIRST, random: RandomState::new(), draws: 0 }
    }

    /// The next pause: between half of the bound and the bound.
    pub(crate) fn next(&mut self) -> Duration {
        self.draws += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.draws);
        let half = self.bound / 2;
        let share = u32::try_from(hasher.finish() % 1_000).unwrap_or(0);
        self.bound = (self.bound * 2).min(LONGEST);
        half + half * share / 1_000
    }
}

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..12).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST, "{pauses:?}");
        assert!(pauses[11] >= LONGEST / 2 && pauses[11] <= LONGEST, "{pauses:?}");
    }
}
