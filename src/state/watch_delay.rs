//! The young holds: a hold is watched only after it has lived for a while.

use std::time::Duration;

use crate::time::Instant;

/// The holds that were granted lately. Most holds are released soon and never watched.
#[derive(Debug, Default)]
pub(crate) struct WatchDelay<Hold> {
    /// The holds that were granted since the last step.
    granted: Vec<Hold>,
    /// The holds that were granted in the step before.
    young: Vec<Hold>,
    /// The time of the next step; `None` while no hold is young.
    pub(crate) step_at: Option<Instant>,
    quiet_steps: u32,
}

impl<Hold> WatchDelay<Hold> {
    /// Adds a granted hold. Returns whether no step was to come.
    pub(crate) fn granted(&mut self, now: Instant, hold: Hold) -> bool {
        self.granted.push(hold);
        let rested = self.step_at.is_none();
        self.step_at.get_or_insert(now.after(STEP));
        rested
    }

    /// Takes a step when one is due. Returns the holds that were granted before the previous step.
    pub(crate) fn step(&mut self, now: Instant) -> Vec<Hold> {
        if self.step_at.is_none_or(|at| now < at) {
            return vec![];
        }
        self.quiet_steps = if self.granted.is_empty() { self.quiet_steps + 1 } else { 0 };
        let rests = self.young.is_empty() && self.quiet_steps > MOST_QUIET_STEPS;
        self.step_at = (!rests).then(|| now.after(STEP));
        std::mem::replace(&mut self.young, std::mem::take(&mut self.granted))
    }
}

const STEP: Duration = Duration::from_millis(100);
/// Stepping goes on for a while without grants: otherwise each of several scattered grants would wake the watchdog.
const MOST_QUIET_STEPS: u32 = 10;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(1_000_000 + millis)
    }

    #[test]
    fn a_hold_ripens_after_100_to_200_ms_unless_released() {
        let mut watch_delay = WatchDelay::default();
        let (long, short) = (Arc::new("long"), Arc::new("short"));
        assert!(watch_delay.granted(at(0), Arc::downgrade(&long)), "the steps begin");
        assert!(!watch_delay.granted(at(99), Arc::downgrade(&short)));
        assert_eq!(watch_delay.step_at, Some(at(100)));
        assert!(watch_delay.step(at(99)).is_empty() && watch_delay.step(at(100)).is_empty());
        drop(short);
        assert!(watch_delay.step(at(199)).is_empty(), "no step is due");
        let ripe = watch_delay.step(at(200));
        let ripe: Vec<_> = ripe.iter().filter_map(Weak::upgrade).collect();
        assert_eq!(ripe, [long]);
        assert!(watch_delay.step(at(300)).is_empty(), "it ripens once");
    }

    #[test]
    fn after_a_quiet_second_ripening_rests_until_a_grant() {
        let mut watch_delay = WatchDelay::default();
        watch_delay.granted(at(0), "a hold");
        let mut now = at(0);
        while let Some(step_at) = watch_delay.step_at {
            now = step_at;
            if now == at(500) {
                watch_delay.granted(now, "another hold");
            }
            watch_delay.step(now);
        }
        assert!(now >= at(1_500) && now <= at(1_800), "{now:?}");
        assert!(watch_delay.granted(at(5_000), "a third hold"), "the steps begin again");
        assert_eq!(watch_delay.step_at, Some(at(5_100)));
    }
}
