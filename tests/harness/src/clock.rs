//! The clock that all processes of one machine share.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn nanos() -> u64 {
    let reading = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(reading.tv_nsec).unwrap_or(0)
}

/// From `earlier` to `later` in milliseconds; negative if `later` is before `earlier`.
pub fn millis_between(earlier: u64, later: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "years of nanoseconds fit with a microsecond to spare")]
    let nanos = |reading: u64| reading as f64;
    (nanos(later) - nanos(earlier)) / 1e6
}
