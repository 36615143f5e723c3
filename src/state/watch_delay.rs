//! The young holds: a hold is watched only after it has lived for a while.

use std::time::Duration;

use crate::time::Instant;

/// The holds that were granted lately. Most holds are released soon and never watched.
#[derive(Debug)]
pub(crate) struct WatchDelay<Hold> {
    young: Vec<Hold>,
    /// The time of the next step; `None` while no hold is young.
    step_at: Option<Instant>,
    quiet_steps: u32,
}

impl<Hold> WatchDelay<Hold> {
    pub(crate) fn new(now: Instant) -> Self {
        Self { young: vec![], step_at: Some(now.after(STEP)), quiet_steps: 0 }
    }

    pub(crate) fn step_at(&self) -> Option<Instant> {
        self.step_at
    }

    /// Starts the steps again after a grant.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.step_at.get_or_insert(now.after(STEP));
    }

    /// Whether the steps pause after the next step, unless a hold is granted.
    pub(crate) fn is_about_to_rest(&self) -> bool {
        self.young.is_empty() && self.quiet_steps >= MOST_QUIET_STEPS
    }

    /// Takes a step. Returns the holds that were granted before the previous step.
    pub(crate) fn step(&mut self, now: Instant, granted: Vec<Hold>) -> Vec<Hold> {
        let rests = self.is_about_to_rest() && granted.is_empty();
        self.quiet_steps = if granted.is_empty() { self.quiet_steps.saturating_add(1) } else { 0 };
        self.step_at = (!rests).then(|| now.after(STEP));
        std::mem::replace(&mut self.young, granted)
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
        let mut watch_delay = WatchDelay::new(at(0));
        let (long, short) = (Arc::new("long"), Arc::new("short"));
        assert_eq!(watch_delay.step_at(), Some(at(100)));
        assert!(watch_delay.step(at(100), vec![Arc::downgrade(&long), Arc::downgrade(&short)]).is_empty());
        drop(short);
        let ripe = watch_delay.step(at(200), vec![]);
        let ripe: Vec<_> = ripe.iter().filter_map(Weak::upgrade).collect();
        assert_eq!(ripe, [long]);
        assert!(watch_delay.step(at(300), vec![]).is_empty(), "it ripens once");
    }

    #[test]
    fn after_a_quiet_second_ripening_rests_until_a_grant() {
        let mut watch_delay = WatchDelay::new(at(0));
        let mut now = at(0);
        while let Some(at) = watch_delay.step_at() {
            now = at;
            let granted = if now == super::tests::at(500) { vec!["a hold"] } else { vec![] };
            watch_delay.step(now, granted);
        }
        assert!(now >= at(1_500) && now <= at(1_800), "{now:?}");
        watch_delay.begin(at(5_000));
        assert_eq!(watch_delay.step_at(), Some(at(5_100)));
        watch_delay.step(at(5_100), vec![]);
        assert_eq!(watch_delay.step_at(), None, "woken for nothing");
    }
}
