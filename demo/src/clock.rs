//! The clock that all processes of this machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since a moment that is the same for all processes of the machine.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let micros = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
    u64::try_from(micros).unwrap_or(0)
}

/// The time between two moments; zero if the first moment is the later.
pub fn between(earlier: u64, later: u64) -> Duration {
    Duration::from_micros(later.saturating_sub(earlier))
}
