//! The size of each measurement.

use std::time::Duration;

/// Counts and times of one run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) pair_rounds: usize,
    pub(crate) pair_batch: usize,
    /// Of a red lock with and without dead servers.
    pub(crate) red_rounds: usize,
    pub(crate) hand_over_rounds: usize,
    pub(crate) hand_over_batch: usize,
    pub(crate) hot_rounds: usize,
    pub(crate) hot_time: Duration,
    pub(crate) distinct_rounds: usize,
    pub(crate) distinct_time: Duration,
    /// How many renewal rounds are watched, once for the processor and once for the times to live.
    pub(crate) renewal_rounds: u32,
    pub(crate) announcement_rounds: usize,
    pub(crate) announcement_time: Duration,
    pub(crate) waiting_time: Duration,
    pub(crate) rest_rounds: usize,
}

impl Plan {
    /// A little under three minutes.
    pub(crate) fn full() -> Self {
        Self {
            pair_rounds: 60,
            pair_batch: 200,
            red_rounds: 20,
            hand_over_rounds: 20,
            hand_over_batch: 100,
            hot_rounds: 7,
            hot_time: Duration::from_secs(2),
            distinct_rounds: 16,
            distinct_time: Duration::from_millis(200),
            renewal_rounds: 6,
            announcement_rounds: 3,
            announcement_time: Duration::from_secs(4),
            waiting_time: Duration::from_secs(4),
            rest_rounds: 5,
        }
    }

    /// Less than one minute; the spreads are wider.
    pub(crate) fn quick() -> Self {
        Self {
            pair_rounds: 20,
            pair_batch: 200,
            red_rounds: 8,
            hand_over_rounds: 4,
            hand_over_batch: 100,
            hot_rounds: 3,
            hot_time: Duration::from_secs(1),
            distinct_rounds: 6,
            distinct_time: Duration::from_millis(100),
            renewal_rounds: 3,
            announcement_rounds: 2,
            announcement_time: Duration::from_secs(2),
            waiting_time: Duration::from_secs(2),
            rest_rounds: 2,
        }
    }
}
