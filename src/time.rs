//! The only clocks: instants that count suspended time, deadlines, leases, and the wait under a mutex until an instant.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::time::ClockId;
#[cfg(not(simulated))]
use rustix::time::clock_gettime;

use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, MutexGuard};
#[cfg(simulated)]
use crate::system::clock_gettime;

/// A reading of a monotonic clock that goes on while the machine is suspended, in nanoseconds. Never zero, so that a
/// hold keeps each instant that may be missing in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(NonZeroU64);

/// Before every reading.
impl Default for Instant {
    fn default() -> Self {
        Self(NonZeroU64::MIN)
    }
}

impl Instant {
    pub(crate) fn now() -> Self {
        #[cfg(test)]
        if let Some(pretended) = tests::NOW.get() {
            return pretended;
        }
        #[cfg(target_os = "linux")]
        const CLOCK: ClockId = ClockId::Boottime;
        // On other systems (macOS) the monotonic clock counts suspended time.
        #[cfg(not(target_os = "linux"))]
        const CLOCK: ClockId = ClockId::Monotonic;
        let reading = clock_gettime(CLOCK);
        let whole = u64::try_from(reading.tv_sec).unwrap_or(0) * NANOS_IN_A_SECOND;
        Self::at(whole + u64::try_from(reading.tv_nsec).unwrap_or(0))
    }

    const fn at(nanos: u64) -> Self {
        match NonZeroU64::new(nanos) {
            Some(nanos) => Self(nanos),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// Returns the instant `duration` later; saturates at the end of the clock, after 584 years.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the instant `duration` earlier; saturates at the start of the clock.
    pub(crate) fn before(self, duration: Duration) -> Self {
        Self::at(self.0.get().saturating_sub(nanos(duration)))
    }

    /// A number that two readings share by chance only.
    pub(crate) fn scattered(self) -> u64 {
        // The golden ratio spreads neighbours evenly (Knuth, The Art of Computer Programming, 6.4).
        self.0.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }

    /// The length of the next nap of a sleep until `end`.
    ///
    /// The system measures sleeps by clocks that stop while the machine is suspended, so a long sleep is cut into
    /// short naps.
    pub(crate) fn nap_until(self, end: Self) -> Duration {
        self.until(end).min(LONGEST_NAP)
    }

    /// The time from here to `later`; zero if `later` is earlier.
    pub(crate) fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.get().saturating_sub(self.0.get()))
    }
}

/// Sleeps until the guarded value is so, or until `end`.
pub(crate) fn wait_until<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    end: Instant,
    is_so: impl Fn(&T) -> bool,
) -> MutexGuard<'a, T> {
    while !is_so(&guard) {
        let now = Instant::now();
        if now >= end {
            break;
        }
        guard = condvar.wait_for(guard, now.nap_until(end));
    }
    guard
}

const NANOS_IN_A_SECOND: u64 = 1_000_000_000;

/// A time of at most `longest`, by a random number.
pub(crate) fn up_to(longest: Duration, random: u64) -> Duration {
    Duration::from_nanos(random % nanos(longest).saturating_add(1))
}

fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(NANOS_IN_A_SECOND).saturating_add(duration.subsec_nanos().into())
}

const LONGEST_NAP: Duration = Duration::from_secs(1);

/// The time of day, as the time since 1970; set by the system at any time, so fit for comparisons only.
pub(crate) fn since_epoch() -> Duration {
    let reading = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(reading.tv_nsec).unwrap_or(0))
}

/// The moment at which a caller stops waiting, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    At(Instant),
    Never,
}

impl Deadline {
    /// Converts a wait to a deadline; a wait too long for the clock means "for ever".
    pub(crate) fn after(wait: Duration) -> Self {
        if wait > Lease::LONGEST.saturating_mul(1_000) {
            return Self::Never;
        }
        Self::At(Instant::now().after(wait))
    }

    pub(crate) fn passed(self, now: Instant) -> bool {
        matches!(self, Self::At(at) if at <= now)
    }

    /// The earlier of this deadline and `other`.
    pub(crate) fn sooner(self, other: Instant) -> Instant {
        if let Self::At(at) = self { at.min(other) } else { other }
    }
}

/// A time to live to set in Redis: whole milliseconds, 1 ms to 365 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease(NonZeroU64);

impl Lease {
    pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    pub(crate) fn new(duration: Duration) -> Result<Self, Error> {
        let millis = u64::try_from(duration.as_millis()).ok().and_then(NonZeroU64::new);
        let text = || format!("a lease of {duration:?} is not possible; give 1 ms to 365 days");
        let millis = millis.filter(|_| duration <= Self::LONGEST);
        millis.map(Self).ok_or_else(|| Error::new(ErrorKind::BadInput, text()))
    }

    /// The lease that ends at `end`, seen from `now`; at least one millisecond.
    pub(crate) fn until(now: Instant, end: Instant) -> Self {
        let left = now.until(end).min(Self::LONGEST);
        // Rounded up: a lease must not end before the promised time.
        Self(NonZeroU64::new(nanos(left).div_ceil(1_000_000)).unwrap_or(NonZeroU64::MIN))
    }

    pub(crate) fn millis(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.millis())
    }

    /// The time by which the holder gives up its hold before the key expires.
    ///
    /// The margin covers the granularity and the drift of two clocks: 1 %, at least 50 ms, at most a tenth of the
    /// lease.
    pub(crate) fn margin(self) -> Duration {
        let micros = self.millis().saturating_mul(1_000);
        Duration::from_micros((micros / 100).max(50_000).min(micros / 10))
    }

    /// The deadline of a holder whose request was sent at `sent`.
    pub(crate) fn good_until(self, sent: Instant) -> Instant {
        sent.after(self.duration()).before(self.margin())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    impl Instant {
        /// A constructed reading, for state machines in virtual time.
        pub(crate) const fn from_millis(millis: u64) -> Self {
            Self::at(millis.saturating_mul(1_000_000))
        }

        /// Stops the clock of this thread at this reading until the result is dropped.
        pub(crate) fn pretend(self) -> Pretence {
            self.comes();
            Pretence
        }

        /// Sets the stopped clock of this thread to this reading.
        pub(crate) fn comes(self) {
            NOW.set(Some(self));
        }
    }

    thread_local! {
        pub(super) static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    /// Restarts the clock when dropped.
    #[must_use]
    pub(crate) struct Pretence;

    impl Drop for Pretence {
        fn drop(&mut self) {
            NOW.set(None);
        }
    }

    #[test]
    fn a_lease_outside_its_bounds_is_refused() {
        for bad in
            [Duration::ZERO, Duration::from_micros(999), Lease::LONGEST + Duration::from_millis(1), Duration::MAX]
        {
            assert_eq!(Lease::new(bad).unwrap_err().kind(), ErrorKind::BadInput, "{bad:?}");
        }
        assert_eq!(Lease::new(Duration::from_micros(1_999)).unwrap().millis(), 1);
        assert_eq!(Lease::new(Lease::LONGEST).unwrap().duration(), Lease::LONGEST);
    }

    #[test]
    fn a_long_sleep_looks_at_the_clock_each_second() {
        let start = Instant::from_millis(1_000);
        let nap = |millis: u64| start.nap_until(start.after(Duration::from_millis(millis)));
        assert_eq!(nap(3_600_000), Duration::from_secs(1));
        assert_eq!(nap(300), Duration::from_millis(300));
        assert_eq!(start.after(Duration::from_secs(1)).nap_until(start), Duration::ZERO);
    }

    #[test]
    fn the_margin_is_one_per_cent_at_least_50_ms_at_most_a_tenth() {
        let check = |lease: u64, margin: u64| {
            let lease = Lease::new(Duration::from_millis(lease)).unwrap();
            assert_eq!(lease.margin(), Duration::from_millis(margin), "{lease:?}");
        };
        check(30_000, 300);
        check(2_000, 50);
        check(200, 20);
        check(10, 1);
    }

    #[test]
    fn a_wait_that_overflows_means_for_ever() {
        assert_eq!(Deadline::after(Duration::MAX), Deadline::Never);
        assert!(Deadline::after(Duration::ZERO).passed(Instant::now()));
    }

    #[test]
    fn a_lease_until_an_instant_rounds_up() {
        let now = Instant::from_millis(1_000);
        assert_eq!(Lease::until(now, now.after(Duration::from_micros(1_500))).millis(), 2);
        assert_eq!(Lease::until(now, now).millis(), 1);
    }
}
