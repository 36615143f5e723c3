//! The wait loop of every kind: ask, arm, ask again, sleep.

use std::time::Duration;

use crate::error::Result;
use crate::time::{Deadline, Instant};

/// The surroundings of the wait loop; tests script the replies.
pub(crate) trait WaitLoop {
    type Grant;

    fn now(&self) -> Instant;

    /// Waits while other threads and processes have their turn, but not beyond the deadline.
    fn stand_back(&mut self) -> Result<()>;

    /// Asks Redis once.
    fn attempt(&mut self) -> Result<TakeOutcome<Self::Grant>>;

    /// Returns the longest sleep before the next request, after a reply that the lock is busy for `busy`; `None`
    /// gives up.
    fn pause(&mut self, busy: Duration) -> Option<Duration>;

    /// Ensures that releases ring the bell from now on. Returns whether a release may have been missed.
    fn arm(&mut self) -> Result<bool>;

    /// Sleeps until the bell rings or `until`. Fails when the caller must not go on.
    fn sleep(&mut self, until: Instant) -> Result<()>;
}

pub(crate) enum TakeOutcome<Grant> {
    Taken(Grant),
    /// The lock is busy: ask again after this time at the latest.
    Busy(Duration),
}

/// Runs the loop. The order matters: ask, arm, ask again, sleep. A message is a hint; only the reply of Redis counts.
pub(crate) fn wait_loop<C: WaitLoop>(host: &mut C, deadline: Deadline) -> Result<Option<C::Grant>> {
    loop {
        host.stand_back()?;
        let busy = match host.attempt()? {
            TakeOutcome::Taken(grant) => return Ok(Some(grant)),
            TakeOutcome::Busy(busy) => busy,
        };
        // Checked after the request, so that the last request is sent when the time is up, not before.
        if deadline.passed(host.now()) {
            return Ok(None);
        }
        if host.arm()? {
            continue;
        }
        let Some(pause) = host.pause(busy) else { return Ok(None) };
        host.sleep(deadline.sooner(host.now().after(pause)))?;
    }
}

/// The longest sleep of a waiter, also when a message was lost.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    enum Did {
        StandBack,
        Ask,
        Arm,
        Sleep(u64),
    }

    /// Takes replies from a script; a sleep moves the clock.
    struct Scripted {
        now: Instant,
        answers: std::collections::VecDeque<Option<u64>>,
        armed_live: bool,
        armed: bool,
        is_others_turn: bool,
        did: Vec<Did>,
    }

    impl WaitLoop for Scripted {
        type Grant = ();

        fn now(&self) -> Instant {
            self.now
        }

        fn attempt(&mut self) -> Result<TakeOutcome<()>> {
            self.did.push(Did::Ask);
            Ok(match self.answers.pop_front().expect("the script has an answer") {
                None => TakeOutcome::Taken(()),
                Some(ms) => TakeOutcome::Busy(Duration::from_millis(ms)),
            })
        }

        fn pause(&mut self, busy: Duration) -> Option<Duration> {
            Some(busy.min(LONGEST_SLEEP))
        }

        fn stand_back(&mut self) -> Result<()> {
            if self.is_others_turn {
                self.did.push(Did::StandBack);
            }
            Ok(())
        }

        fn arm(&mut self) -> Result<bool> {
            if std::mem::replace(&mut self.armed, true) {
                return Ok(false);
            }
            self.did.push(Did::Arm);
            Ok(self.armed_live)
        }

        fn sleep(&mut self, until: Instant) -> Result<()> {
            let slept = self.now.until(until);
            self.now = until;
            self.did.push(Did::Sleep(u64::try_from(slept.as_millis()).unwrap()));
            Ok(())
        }
    }

    fn run(answers: &[Option<u64>], armed_live: bool, wait: Option<u64>) -> (Option<()>, Vec<Did>) {
        let now = Instant::from_millis(1_000_000);
        let answers = answers.iter().copied().collect();
        let mut scripted = Scripted { now, answers, armed_live, armed: false, is_others_turn: false, did: vec![] };
        let deadline = wait.map_or(Deadline::Never, |ms| Deadline::At(now.after(Duration::from_millis(ms))));
        let got = wait_loop(&mut scripted, deadline).unwrap();
        (got, scripted.did)
    }

    use Did::{Arm, Ask, Sleep, StandBack};

    #[test]
    fn a_waiter_stands_back_before_each_question() {
        let now = Instant::from_millis(1_000_000);
        let answers = [Some(900), Some(900), None].into();
        let mut scripted = Scripted { now, answers, armed_live: true, armed: false, is_others_turn: true, did: vec![] };
        assert_eq!(wait_loop(&mut scripted, Deadline::Never).unwrap(), Some(()));
        assert_eq!(scripted.did, [StandBack, Ask, Arm, StandBack, Ask, Sleep(900), StandBack, Ask]);
    }

    #[test]
    fn a_free_lock_costs_one_question() {
        assert_eq!(run(&[None], false, None), (Some(()), vec![Ask]));
    }

    #[test]
    fn a_waiter_asks_again_after_arming() {
        let (got, did) = run(&[Some(900), None], true, None);
        assert_eq!((got, did), (Some(()), vec![Ask, Arm, Ask]));
        let (_, did) = run(&[Some(900), None], false, None);
        assert_eq!(did, [Ask, Arm, Sleep(900), Ask], "not live yet: the bell or the time wakes it");
    }

    #[test]
    fn a_sleep_ends_by_a_second_the_ttl_and_the_deadline() {
        let (got, did) = run(&[Some(30_000), Some(300), Some(30_000), Some(30_000)], false, Some(1_800));
        assert_eq!(got, None);
        assert_eq!(did, [Ask, Arm, Sleep(1_000), Ask, Sleep(300), Ask, Sleep(500), Ask]);
    }

    #[test]
    fn the_last_question_comes_when_the_time_is_up() {
        let (got, did) = run(&[Some(30_000), None], false, Some(50));
        assert_eq!((got, did), (Some(()), vec![Ask, Arm, Sleep(50), Ask]));
    }

    #[test]
    fn no_wait_means_one_question() {
        assert_eq!(run(&[Some(30_000)], false, Some(0)), (None, vec![Ask]));
    }

    /// The reactions of the surroundings, repeated: the time of a reply, the reply, whether arming reports a missed
    /// release, and when a sleeper is rung.
    #[derive(Clone, Debug)]
    struct Turn {
        takes_ms: u64,
        busy_ms: Option<u64>,
        live: bool,
        rung_ms: u64,
    }

    struct Any {
        now: Instant,
        deadline: Deadline,
        turns: std::vec::IntoIter<Turn>,
        turn: Turn,
        /// The reply on which the loop has not acted.
        answer: Option<Duration>,
        armed: bool,
        asked: Instant,
    }

    impl WaitLoop for Any {
        type Grant = ();

        fn now(&self) -> Instant {
            self.now
        }

        fn attempt(&mut self) -> Result<TakeOutcome<()>> {
            let taken = Turn { takes_ms: 0, busy_ms: None, live: false, rung_ms: 0 };
            self.turn = self.turns.next().unwrap_or(taken);
            self.asked = self.now;
            self.now = self.now.after(Duration::from_millis(self.turn.takes_ms));
            self.answer = self.turn.busy_ms.map(Duration::from_millis);
            Ok(self.answer.map_or(TakeOutcome::Taken(()), TakeOutcome::Busy))
        }

        fn stand_back(&mut self) -> Result<()> {
            Ok(())
        }

        fn arm(&mut self) -> Result<bool> {
            assert!(self.answer.is_some());
            let live = !std::mem::replace(&mut self.armed, true) && self.turn.live;
            if live {
                // The reply may be outdated, so the loop must not sleep on the reply.
                self.answer = None;
            }
            Ok(live)
        }

        fn pause(&mut self, busy: Duration) -> Option<Duration> {
            Some(busy.min(LONGEST_SLEEP))
        }

        fn sleep(&mut self, until: Instant) -> Result<()> {
            assert!(self.armed, "nobody would ring");
            let busy = self.answer.take().expect("each sleep follows an answer of its own");
            assert!(!self.deadline.passed(self.now));
            assert!(until <= self.deadline.sooner(self.now.after(busy.min(LONGEST_SLEEP))), "slept too long");
            self.now = until.min(self.now.after(Duration::from_millis(self.turn.rung_ms)));
            Ok(())
        }
    }

    fn turns() -> impl proptest::strategy::Strategy<Value = Vec<Turn>> {
        use proptest::prelude::*;
        let takes_ms = prop_oneof![Just(0), 0_u64..300];
        let turn = (takes_ms, 0_u64..40_000, any::<bool>(), 0_u64..2_000)
            .prop_map(|(takes_ms, busy, live, rung_ms)| Turn { takes_ms, busy_ms: Some(busy), live, rung_ms });
        proptest::collection::vec(turn, 0..40)
    }

    proptest::proptest! {
        /// For any replies and rings: the loop asks after arming and before each sleep, never sleeps beyond its
        /// deadline, the time to live of the holder or a second, and gives up only after a reply at the very end.
        #[test]
        fn no_event_is_slept_over(turns in turns(), wait in proptest::option::of(0_u64..8_000)) {
            let now = Instant::from_millis(1_000_000);
            let deadline = wait.map_or(Deadline::Never, |ms| Deadline::At(now.after(Duration::from_millis(ms))));
            let turn = Turn { takes_ms: 0, busy_ms: None, live: false, rung_ms: 0 };
            let turns = turns.into_iter();
            let mut any = Any { now, deadline, turns, turn, answer: None, armed: false, asked: now };
            let got = wait_loop(&mut any, deadline).unwrap();
            if got.is_none() {
                proptest::prop_assert!(deadline.passed(any.now) && any.answer.is_some());
                let late = Deadline::At(any.asked).sooner(any.now) >= deadline.sooner(any.now);
                proptest::prop_assert!(any.turn.takes_ms > 0 || late, "the last question came before the end");
            } else {
                proptest::prop_assert!(any.turn.busy_ms.is_none());
            }
        }
    }
}
