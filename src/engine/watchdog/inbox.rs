//! What the watchdog of one server is told: nothing is dropped, and what says the same is kept once.

use std::sync::{Arc, Weak};

use crate::conn::Waker;
use crate::engine::holds::hold::HoldState;
use crate::name::LockName;
use crate::state::questions::Questions;
use crate::sync::Mutex;
use crate::time::Instant;

/// Filled by any thread, emptied by the watchdog.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    news: News,
    questions: Questions,
    granted: Vec<Weak<HoldState>>,
    /// Wakes the watchdog, while there is one.
    waker: Option<Waker>,
    /// It was woken and has not looked yet.
    woken: bool,
    /// It sleeps until somebody is granted something.
    awaits_grants: bool,
}

/// What came since the last look, beside grants and locks in question.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// All keys were changed or deleted.
    pub(crate) flushed: bool,
    /// The listening connection broke.
    pub(crate) lost: bool,
}

impl Inbox {
    /// From now on there is somebody to be woken.
    pub(crate) fn is_read_by(&self, waker: Waker) {
        self.0.lock().waker = Some(waker);
    }

    /// Puts something in, and has the watchdog look.
    pub(crate) fn put(&self, put: impl FnOnce(&mut News)) {
        let mut state = self.0.lock();
        put(&mut state.news);
        state.wake();
    }

    /// These locks came into question. Nobody is woken for one that rests: the watchdog looks when it has rested.
    pub(crate) fn ask(&self, names: impl IntoIterator<Item = LockName>) {
        let mut state = self.0.lock();
        if state.questions.add(names) {
            state.wake();
        }
    }

    /// A lock was granted. It wakes nobody while the watchdog looks from time to time anyway.
    pub(crate) fn granted(&self, hold: &Arc<HoldState>) {
        let mut state = self.0.lock();
        state.granted.push(Arc::downgrade(hold));
        if std::mem::take(&mut state.awaits_grants) {
            state.wake();
        }
    }

    pub(crate) fn take(&self) -> News {
        let mut state = self.0.lock();
        state.woken = false;
        std::mem::take(&mut state.news)
    }

    /// The locks that are to be asked about now.
    pub(crate) fn take_names(&self, now: Instant) -> Vec<LockName> {
        self.0.lock().questions.take(now)
    }

    /// When to come for names again.
    pub(crate) fn next_names(&self) -> Option<Instant> {
        self.0.lock().questions.next()
    }

    /// The grants since the last time. Where there are none and the watchdog is `to_sleep`, the next one wakes it.
    pub(crate) fn take_granted(&self, to_sleep: bool) -> Vec<Weak<HoldState>> {
        let mut state = self.0.lock();
        state.awaits_grants = to_sleep && state.granted.is_empty();
        std::mem::take(&mut state.granted)
    }

    /// Whether the next grant wakes the watchdog.
    pub(crate) fn awaits_grants(&self) -> bool {
        self.0.lock().awaits_grants
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.as_ref().filter(|_| !self.woken) {
            waker.wake();
            self.woken = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conn::sleeper;
    use crate::owner::{HoldNumber, OwnerId};
    use crate::script::Side;
    use crate::state::ledger::{Ledger, Promise};
    use crate::time::{Instant, Lease};

    #[test]
    fn the_watchdog_is_woken_again_after_each_look() {
        let (waker, sleeper) = sleeper().unwrap();
        let inbox = Inbox::default();
        inbox.is_read_by(waker);
        for _ in 0..3 {
            assert!(!sleeper.was_woken());
            inbox.put(|news| news.lost = true);
            assert!(sleeper.was_woken());
            inbox.put(|news| news.flushed = true);
            assert!(!sleeper.was_woken(), "it is awake already");
            let News { flushed, lost } = inbox.take();
            assert!(flushed && lost);
        }
    }

    #[test]
    fn a_grant_wakes_a_watchdog_that_sleeps_until_there_is_one() {
        let (waker, sleeper) = sleeper().unwrap();
        let inbox = Inbox::default();
        inbox.is_read_by(waker);
        let lease = Lease::new(Duration::from_secs(30)).unwrap();
        let promise = Promise::Renewed { until: None };
        let (ledger, _) = Ledger::granted(lease, Instant::now(), lease, Side::Exclusive, promise);
        let owner = (HoldNumber(1), OwnerId::encoded("me"));
        let hold = HoldState::for_test(&LockName::new("n").unwrap(), owner, None, Instant::now(), ledger);
        inbox.granted(&hold);
        assert!(!sleeper.was_woken(), "it looks from time to time anyway");
        assert_eq!(inbox.take_granted(true).len(), 1);
        assert!(!inbox.awaits_grants(), "there was one");
        assert!(inbox.take_granted(true).is_empty() && inbox.awaits_grants());
        inbox.granted(&hold);
        assert!(sleeper.was_woken() && !inbox.awaits_grants());
        inbox.take();
        inbox.granted(&hold);
        assert!(!sleeper.was_woken(), "once is enough");
    }
}
