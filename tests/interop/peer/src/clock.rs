//! The clock that all processes of one machine share.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn nanos() -> u64 {
    let reading = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(reading.tv_nsec).unwrap_or(0)
}
