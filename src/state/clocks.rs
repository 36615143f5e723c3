//! How much faster the clock of a server runs than the local clock.

use std::time::Duration;

use crate::time::Instant;
use crate::transport::MachineNumber;

/// The readings from which the pace of the clock of a server is computed. Each reply is a reading, also several in
/// one renewal round.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// The least time between two readings: over a shorter time a slow or rounded reply would look like a fast clock.
    shortest: Duration,
    /// The reading with which the next reading is compared.
    base: Option<Reading>,
    /// The reading that replaces the base as soon as it is old enough.
    newer: Option<Reading>,
    /// The machine of the readings.
    machine: MachineNumber,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    ours: Instant,
    theirs_ms: u64,
}

/// The clock of the server gained `ahead` on the local clock in the time `within`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) ahead: Duration,
    pub(crate) within: Duration,
}

impl Clocks {
    /// Makes readings for renewal rounds at this interval.
    pub(crate) fn new(interval: Duration) -> Self {
        Self { shortest: interval / 2, base: None, newer: None, machine: MachineNumber::default() }
    }

    /// Takes the server time from the reply of this machine to a request that was sent at `sent`. The readings begin
    /// anew with another machine, whose clock may be ahead without going fast.
    pub(crate) fn read(&mut self, machine: MachineNumber, sent: Instant, now: Instant, theirs_ms: u64) -> Pace {
        if machine != self.machine {
            (self.base, self.newer, self.machine) = (None, None, machine);
        }
        let reading = Reading { ours: sent, theirs_ms };
        if self.newer.is_none_or(|newer| newer.ours.after(self.shortest) <= sent) {
            self.base = self.newer.replace(reading);
        }
        self.base.map_or_else(Pace::default, |base| base.until(now, theirs_ms))
    }
}

impl Reading {
    fn until(self, now: Instant, theirs_ms: u64) -> Pace {
        // Two readings in whole milliseconds may differ by a millisecond more than the clock moved.
        let theirs = Duration::from_millis(theirs_ms.saturating_sub(self.theirs_ms).saturating_sub(1));
        // The longest local time between the two readings: from the earlier request to now.
        let ours = self.ours.until(now);
        // A clock that gained more than this was set by hand.
        Pace { ahead: theirs.saturating_sub(ours).min(ours), within: ours }
    }
}

impl Pace {
    /// Returns the local time that passes while the server counts `time`, at this pace.
    pub(crate) fn ours(self, time: Duration) -> Duration {
        if self.ahead.is_zero() {
            return time;
        }
        time.mul_f64(self.within.div_duration_f64(self.within + self.ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_millis(1_000_000);
    const HERE: MachineNumber = MachineNumber(0);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn pace(ahead: u64, within: u64) -> Pace {
        Pace { ahead: ms(ahead), within: ms(within) }
    }

    #[test]
    fn a_reading_is_compared_with_one_of_half_an_interval_ago() {
        let mut clocks = Clocks::new(ms(10_000));
        let mut read = |at, theirs| clocks.read(HERE, START.after(ms(at)), START.after(ms(at + 2)), theirs);
        assert_eq!(read(0, 50_000), Pace::default());
        assert_eq!(read(4_999, 57_499), Pace::default(), "too soon to tell");
        assert_eq!(read(9_998, 65_001), pace(5_000, 10_000), "the reading before does not hide the first one");
        assert_eq!(read(9_999, 65_002), pace(5_000, 10_001), "nor does another batch of this round");
        assert_eq!(read(20_000, 75_001), pace(0, 10_004), "it goes well again");
        assert_eq!(read(30_000, 50_000), pace(0, 10_002), "it was set back");
        assert_eq!(read(40_000, 99_000_000), pace(10_002, 10_002), "it was set forward");
    }

    #[test]
    fn clocks_of_two_machines_are_not_compared() {
        let mut clocks = Clocks::new(ms(10_000));
        let next = MachineNumber(1);
        let mut read = |machine, at, theirs| clocks.read(machine, START.after(ms(at)), START.after(ms(at)), theirs);
        assert_eq!(read(HERE, 0, 50_000), Pace::default());
        assert_eq!(read(HERE, 10_000, 60_001), pace(0, 10_000));
        assert_eq!(read(next, 20_000, 110_000), Pace::default(), "40 seconds ahead, but not fast");
        assert_eq!(read(next, 30_000, 125_001), pace(5_000, 10_000), "the new clock goes fast");
    }

    #[test]
    fn the_time_of_a_clock_that_runs_fast_is_shorter_here() {
        assert_eq!(pace(5_000, 10_000).ours(ms(30_000)), ms(20_000));
        assert_eq!(pace(0, 10_000).ours(ms(30_000)), ms(30_000));
        assert_eq!(Pace::default().ours(ms(30_000)), ms(30_000));
    }
}
