//! The inbox of the watchdog of one server, which drops nothing and merges equal events.

use std::sync::{Arc, Weak};

use crate::conn::Waker;
use crate::engine::hold::HoldState;
use crate::name::LockName;
use crate::state::check_limiter::CheckLimiter;
use crate::sync::Mutex;
use crate::time::Instant;

/// An inbox that any thread fills and the watchdog empties.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    events: Events,
    check_limiter: CheckLimiter,
    granted: Vec<Weak<HoldState>>,
    /// The holds that another watchdog handed over.
    moved: Vec<Weak<HoldState>>,
    /// Wakes the watchdog, while one runs.
    waker: Option<Waker>,
    /// Whether the watchdog was woken and has not taken the events.
    woken: bool,
    /// Whether the watchdog sleeps until the next grant.
    awaits_grants: bool,
}

/// The events since the last look, besides grants and names to check.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// All keys were changed or deleted.
    pub(crate) flushed: bool,
    /// The listening connection broke.
    pub(crate) lost: bool,
}

impl Inbox {
    /// Sets the watchdog to wake from now on.
    pub(crate) fn is_read_by(&self, waker: Waker) {
        self.0.lock().waker = Some(waker);
    }

    /// Adds an event and wakes the watchdog.
    pub(crate) fn put(&self, put: impl FnOnce(&mut Events)) {
        let mut state = self.0.lock();
        put(&mut state.events);
        state.wake();
    }

    /// Adds names to check. A resting name wakes no watchdog, because the watchdog looks at the end of the rest.
    pub(crate) fn ask(&self, names: impl IntoIterator<Item = LockName>) {
        let mut state = self.0.lock();
        if state.check_limiter.add(names) {
            state.wake();
        }
    }

    /// Whether a watchdog runs.
    pub(crate) fn is_read(&self) -> bool {
        self.0.lock().waker.is_some()
    }

    /// The watchdog is to end. Returns `false` where a hold has come meanwhile.
    pub(crate) fn is_left(&self) -> bool {
        let mut state = self.0.lock();
        let is_left = state.granted.is_empty() && state.moved.is_empty();
        if is_left {
            (state.waker, state.woken) = (None, false);
        }
        is_left
    }

    /// Adds a granted hold. A grant wakes the watchdog only if the watchdog does not look from time to time. Returns
    /// whether a watchdog runs.
    pub(crate) fn granted(&self, hold: &Arc<HoldState>) -> bool {
        let mut state = self.0.lock();
        state.granted.push(Arc::downgrade(hold));
        if std::mem::take(&mut state.awaits_grants) {
            state.wake();
        }
        state.waker.is_some()
    }

    /// Adds a hold whose key moved to the server of this watchdog. Returns whether a watchdog runs.
    pub(crate) fn moved(&self, hold: &Arc<HoldState>) -> bool {
        let mut state = self.0.lock();
        state.granted.push(Arc::downgrade(hold));
        state.moved.push(Arc::downgrade(hold));
        state.awaits_grants = false;
        state.wake();
        state.waker.is_some()
    }

    /// Takes the holds that were handed over.
    pub(crate) fn take_moved(&self) -> Vec<Arc<HoldState>> {
        let moved = std::mem::take(&mut self.0.lock().moved);
        moved.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn take(&self) -> Events {
        let mut state = self.0.lock();
        state.woken = false;
        std::mem::take(&mut state.events)
    }

    /// Takes the names that are due.
    pub(crate) fn take_names(&self, now: Instant) -> Vec<LockName> {
        self.0.lock().check_limiter.take(now)
    }

    /// The time at which the next names are due.
    pub(crate) fn next_names(&self) -> Option<Instant> {
        self.0.lock().check_limiter.next()
    }

    /// Takes the new grants. Without new grants and with `to_sleep`, the next grant wakes the watchdog.
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
            inbox.put(|events| events.lost = true);
            assert!(sleeper.was_woken());
            inbox.put(|events| events.flushed = true);
            assert!(!sleeper.was_woken(), "it is awake already");
            let Events { flushed, lost } = inbox.take();
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
