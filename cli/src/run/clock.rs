//! The clock that the processes of a run share.

use std::time::Duration;

use nix::time::ClockId;

/// A reading of the clock that goes on while the machine is suspended, as the library reads it.
pub(super) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    // On other systems (macOS) the monotonic clock counts suspended time.
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;
    // Without a clock every deadline has passed.
    CLOCK.now().map_or(Duration::MAX, Duration::from)
}

/// Reads what [`write`] wrote.
pub(super) fn read(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_nanos)
}

/// A reading or a duration as text, for another process.
pub(super) fn write(reading: Duration) -> String {
    reading.as_nanos().to_string()
}
