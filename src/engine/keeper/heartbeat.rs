//! Detects that this process was stopped, from the times at which the watchdog rests and wakes.
//!
//! A process that is stopped, suspended with its machine or not scheduled wakes late from a rest. Before the first
//! hold of a client no watchdog runs, and during a request it does not rest: a stop is not detected then.

use std::time::Duration;

use crate::sync::Mutex;
use crate::time::Instant;

/// The rests of the watchdog: the present one, and the last one that ended late.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat(Mutex<[Option<Rest>; 2]>);

/// A sleep, with its latest end in a process that runs.
#[derive(Clone, Copy, Debug)]
struct Rest {
    from: Instant,
    until: Instant,
    /// Its end; the latest one while the sleep lasts.
    ended: Instant,
}

impl Heartbeat {
    /// Records a rest from now until `until` at most.
    pub(crate) fn rests(&self, now: Instant, until: Instant) {
        self.0.lock()[0] = Some(Rest { from: now, until, ended: until });
    }

    /// Records that the thread is awake. The duration of its work says nothing about the process.
    pub(crate) fn wakes(&self, now: Instant) {
        let [present, late] = &mut *self.0.lock();
        let ended = present.take().map(|rest| Rest { ended: now, ..rest });
        *late = ended.filter(|rest| rest.delay() >= LEAST_DELAY).or(*late);
    }

    /// Returns the approximate time for which the process was stopped, if it was stopped at `moment` in the past.
    pub(crate) fn standstill_at(&self, moment: Instant, now: Instant) -> Option<Duration> {
        let [present, late] = *self.0.lock();
        // The calling thread may wake before the watchdog.
        let present = present.map(|rest| Rest { ended: now, ..rest });
        let covers = |rest: &Rest| rest.delay() >= LEAST_DELAY && rest.from <= moment && moment <= rest.ended;
        let rest = present.into_iter().chain(late).find(covers)?;
        // The stop began at an unknown time within the rest.
        Some(rest.delay().saturating_add(rest.from.until(rest.until) / 2))
    }
}

impl Rest {
    fn delay(self) -> Duration {
        self.until.until(self.ended)
    }
}

/// A busy machine wakes threads late, but not by this much.
const LEAST_DELAY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_rest_that_ends_late_is_a_standstill() {
        let heartbeat = Heartbeat::default();
        assert_eq!(heartbeat.standstill_at(at(5_000), at(9_000)), None, "no watchdog, no word");
        heartbeat.rests(at(1_000), at(2_000));
        assert_eq!(heartbeat.standstill_at(at(2_500), at(2_999)), None, "a busy machine");
        let about = Some(Duration::from_millis(8_500));
        assert_eq!(heartbeat.standstill_at(at(5_000), at(10_000)), about, "asked before the watchdog woke");
        heartbeat.wakes(at(10_000));
        assert_eq!(heartbeat.standstill_at(at(5_000), at(60_000)), about);
        assert_eq!(heartbeat.standstill_at(at(999), at(60_000)), None, "it ran then");
        assert_eq!(heartbeat.standstill_at(at(10_001), at(60_000)), None, "it ran again");
    }

    #[test]
    fn long_work_is_no_standstill() {
        let heartbeat = Heartbeat::default();
        heartbeat.rests(at(1_000), at(2_000));
        heartbeat.wakes(at(2_000));
        assert_eq!(heartbeat.standstill_at(at(5_000), at(60_000)), None);
        heartbeat.rests(at(60_000), at(61_000));
        heartbeat.wakes(at(60_001));
        assert_eq!(heartbeat.standstill_at(at(5_000), at(60_001)), None);
    }
}
