//! The only clocks: instants that count suspended time, deadlines, leases.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, ErrorKind};

/// A reading of a clock that never goes back and goes on while the machine sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        #[cfg(test)]
        if let Some(pretended) = pretended::NOW.get() {
            return pretended;
        }
        #[cfg(target_os = "linux")]
        const CLOCK: ClockId = ClockId::Boottime;
        // Elsewhere the monotonic clock is the one that counts suspended time (macOS).
        #[cfg(not(target_os = "linux"))]
        const CLOCK: ClockId = ClockId::Monotonic;
        let reading = clock_gettime(CLOCK);
        let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(reading.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanos))
    }

    /// The instant `duration` after this one; the far end of the clock instead of an overflow.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The instant `duration` before this one; the start of the clock instead of an overflow.
    pub(crate) fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// How long to sleep at a stretch when the sleep is to end at `end`.
    ///
    /// The clocks that sleeping goes by stand still while the machine is suspended; short naps
    /// bring the sleeper back to this one.
    pub(crate) fn nap_until(self, end: Self) -> Duration {
        self.until(end).min(LONGEST_NAP)
    }

    /// How long it is from here to `later`; zero when `later` is not later.
    pub(crate) fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

const LONGEST_NAP: Duration = Duration::from_secs(1);

#[cfg(test)]
impl Instant {
    /// A made-up reading, for state machines that run on virtual time.
    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Has the clock of this thread stand still, here at first, until the answer is dropped.
    pub(crate) fn pretend(self) -> pretended::Pretence {
        self.comes();
        pretended::Pretence
    }

    /// Moves the clock of this thread, which stands still, to this reading.
    pub(crate) fn comes(self) {
        pretended::NOW.set(Some(self));
    }
}

#[cfg(test)]
mod pretended {
    use std::cell::Cell;

    thread_local! {
        pub(super) static NOW: Cell<Option<super::Instant>> = const { Cell::new(None) };
    }

    /// Ends a pretended time when dropped.
    #[must_use]
    pub(crate) struct Pretence;

    impl Drop for Pretence {
        fn drop(&mut self) {
            NOW.set(None);
        }
    }
}

/// When a caller stops waiting: a moment, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    At(Instant),
    Never,
}

impl Deadline {
    /// Turns a caller's wait into a deadline; a wait too long for the clock means "for ever".
    pub(crate) fn after(wait: Duration) -> Self {
        if wait > Lease::LONGEST.saturating_mul(1_000) {
            return Self::Never;
        }
        Self::At(Instant::now().after(wait))
    }

    pub(crate) fn passed(self, now: Instant) -> bool {
        matches!(self, Self::At(at) if at <= now)
    }

    /// The sooner of this deadline and `other`.
    pub(crate) fn sooner(self, other: Instant) -> Instant {
        match self {
            Self::At(at) => at.min(other),
            Self::Never => other,
        }
    }
}

/// A time to live that Redis is asked for: whole milliseconds, 1 ms to 365 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease(u64);

impl Lease {
    pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    pub(crate) fn new(duration: Duration) -> Result<Self, Error> {
        let fits = duration >= Duration::from_millis(1) && duration <= Self::LONGEST;
        match u64::try_from(duration.as_millis()) {
            Ok(millis) if fits => Ok(Self(millis)),
            _ => Err(Error::new(
                ErrorKind::BadInput,
                format!("a lease of {duration:?} is not possible; give one of 1 ms to 365 days"),
            )),
        }
    }

    /// The lease that ends at `end`, seen from `now`; at least one millisecond.
    pub(crate) fn until(now: Instant, end: Instant) -> Self {
        let left = now.until(end).min(Self::LONGEST);
        // Rounded up: a lease must never end before what was promised.
        let millis = left.as_micros().div_ceil(1_000);
        Self(u64::try_from(millis).unwrap_or(1).max(1))
    }

    pub(crate) fn millis(self) -> u64 {
        self.0
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// How much earlier than the server the holder stops believing in this lease.
    ///
    /// It covers the granularity and the drift of two clocks: 1 %, at least 50 ms, but never more
    /// than a tenth of the lease.
    pub(crate) fn margin(self) -> Duration {
        let lease = self.duration();
        (lease / 100).max(Duration::from_millis(50)).min(lease / 10)
    }

    /// When a holder stops believing in this lease, if it was asked for at `sent`.
    pub(crate) fn good_until(self, sent: Instant) -> Instant {
        sent.after(self.duration()).before(self.margin())
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_margin_is_one_per_cent_at_least_50_ms_at_most_a_tenth() {
        let check = |lease: u64, margin: u64| {
            let lease = Lease::new(Duration::from_millis(lease)).unwrap();
            assert_eq!(lease.margin(), Duration::from_millis(margin), "{lease}");
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
