//! Whether a server is down: it is not asked for a while, and one trial finds out when it answers again.
//!
//! | after                               | comes                                                    |
//! |-------------------------------------|----------------------------------------------------------|
//! | a request without an answer         | down for a second, with a trial at once                  |
//! | a trial in vain                     | down for twice as long, with a trial after half the time |
//! | an answer, or a trial with success  | not down                                                 |
//! | the end of the time without a trial | not down, but the next failure counts as one more        |

use std::time::Duration;

use crate::time::Instant;

/// The mark of a server that does not answer.
#[derive(Default)]
pub(super) struct Down(Option<Mark>);

struct Mark {
    /// The beginning of the first request that failed.
    since: Instant,
    pause: Duration,
    until: Instant,
    /// The time from which a trial is due.
    trial_at: Instant,
    /// The deadline of the trial under way.
    trial_ends: Option<Instant>,
}

impl Down {
    /// Records that a request that began at `begun` had no answer.
    pub(super) fn failed(&mut self, begun: Instant, now: Instant) {
        match &mut self.0 {
            // The request was sent before the mark was set.
            Some(mark) if mark.holds(now) => {}
            Some(mark) if now < mark.until.after(LONGEST) => mark.prolong(now),
            _ => {
                let until = now.after(SHORTEST);
                self.0 = Some(Mark { since: begun, pause: SHORTEST, until, trial_at: now, trial_ends: None });
            }
        }
    }

    /// Records that the server answered.
    pub(super) fn answered(&mut self) {
        self.0 = None;
    }

    /// The time since which the server has not answered; `None` if the server is not down.
    pub(super) fn since(&self, now: Instant) -> Option<Instant> {
        self.0.as_ref().filter(|mark| mark.holds(now)).map(|mark| mark.since)
    }

    /// Whether the caller is to make a trial, which ends by `deadline`. The server stays down meanwhile.
    pub(super) fn claim_trial(&mut self, now: Instant, deadline: Instant) -> bool {
        match &mut self.0 {
            Some(mark) if mark.holds(now) && mark.trial_at <= now && !mark.is_tried(now) => {
                mark.trial_ends = Some(deadline);
                true
            }
            _ => false,
        }
    }

    /// Records a trial in vain.
    pub(super) fn trial_failed(&mut self, now: Instant) {
        if let Some(mark) = &mut self.0
            && mark.trial_ends.take().is_some()
        {
            mark.prolong(now);
        }
    }
}

impl Mark {
    fn holds(&self, now: Instant) -> bool {
        now < self.until || self.is_tried(now)
    }

    fn is_tried(&self, now: Instant) -> bool {
        self.trial_ends.is_some_and(|ends| now < ends)
    }

    fn prolong(&mut self, now: Instant) {
        self.pause = (self.pause * 2).min(LONGEST);
        self.until = now.after(self.pause);
        self.trial_at = now.after(self.pause / 2);
        self.trial_ends = None;
    }
}

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_millis(1_000_000);

    fn at(millis: u64) -> Instant {
        START.after(Duration::from_millis(millis))
    }

    fn failed() -> Down {
        let mut down = Down::default();
        down.failed(START, START);
        down
    }

    #[test]
    fn a_failure_counts_for_a_second() {
        assert_eq!(Down::default().since(START), None);
        let down = failed();
        assert_eq!(down.since(at(999)), Some(START));
        assert_eq!(down.since(at(1_000)), None);
    }

    #[test]
    fn an_answer_ends_the_mark() {
        let mut down = failed();
        down.answered();
        assert_eq!(down.since(START), None);
        assert!(!down.claim_trial(START, at(3_000)), "nothing is to be found out");
        down.failed(at(8), at(10));
        assert_eq!(down.since(at(10)), Some(at(8)), "a new outage");
    }

    #[test]
    fn one_trial_is_made_at_a_time() {
        let mut down = failed();
        assert!(down.claim_trial(START, at(3_000)));
        assert!(!down.claim_trial(at(1), at(3_000)));
        assert_eq!(down.since(at(2_999)), Some(START), "down until the trial is over");
        assert_eq!(down.since(at(3_000)), None, "a trial that never ends does not bind for ever");
    }

    #[test]
    fn the_time_doubles_with_each_trial_in_vain() {
        let mut down = failed();
        let (mut now, mut lengths) = (START, vec![]);
        for _ in 0..6 {
            assert!(down.claim_trial(now, now.after(SHORTEST)));
            let until = now;
            down.trial_failed(now);
            let due = (0..20_000).map(|millis| until.after(Duration::from_millis(millis)));
            let due = due.clone().find(|&moment| down.claim_trial(moment, moment)).expect("another trial");
            assert!(down.since(due).is_some(), "no caller finds out for itself");
            lengths.push(until.until(due).as_millis());
            now = due;
        }
        assert_eq!(lengths, [1_000, 2_000, 4_000, 5_000, 5_000, 5_000]);
        assert_eq!(down.since(now), Some(START));
    }

    #[test]
    fn requests_that_fail_together_count_once() {
        let mut down = failed();
        (1..50).for_each(|millis| down.failed(START, at(millis)));
        assert_eq!(down.since(at(1_000)), None);
    }

    #[test]
    fn only_a_failure_soon_after_the_mark_doubles_it() {
        let mut down = failed();
        down.failed(at(1_450), at(1_500));
        assert_eq!(down.since(at(3_499)), Some(START));
        down.failed(at(60_000), at(60_000));
        assert_eq!((down.since(at(60_999)), down.since(at(61_000))), (Some(at(60_000)), None));
    }

    #[test]
    fn a_trial_that_an_answer_outran_changes_nothing() {
        let mut down = failed();
        assert!(down.claim_trial(START, at(3_000)));
        down.answered();
        down.trial_failed(at(100));
        assert_eq!(down.since(at(100)), None);
    }
}
