//! The watchdog of one server as other threads see it: an inbox that drops no event and merges equal events, and the
//! thread that empties the inbox.

pub(crate) mod renewer;
mod server_round;
mod worker;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::conn::{Server, Waker, sleeper};
use crate::engine::hold::HoldState;
use crate::engine::keeper::Keeper;
use crate::name::LockName;
use crate::state::check_limiter::CheckLimiter;
use crate::state::watch_delay::WatchDelay;
use crate::sync::Mutex;
use crate::system::thread;
use crate::time::Instant;
use worker::Worker;

/// The watchdog of one server; its thread starts at the first use, and ends where the server has no keys any more.
#[derive(Debug, Default)]
pub(crate) struct Watchdog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    events: Events,
    check_limiter: CheckLimiter,
    watch_delay: WatchDelay<Weak<HoldState>>,
    /// Wakes the thread, while one runs.
    waker: Option<Waker>,
    /// Whether the thread was woken and has not taken the events.
    woken: bool,
}

/// The events since the last look, besides grants and names to check.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// All keys were changed or deleted.
    pub(crate) flushed: bool,
    /// The listening connection broke.
    pub(crate) lost: bool,
    /// The holds that another watchdog handed over, to be renewed at once.
    pub(crate) moved: Vec<Weak<HoldState>>,
}

impl Watchdog {
    /// Adds a granted hold, which is renewed, and watched after a moment. A grant wakes the thread only if the thread
    /// does not look from time to time. Returns whether a thread runs.
    pub(crate) fn granted(&self, hold: &Arc<HoldState>) -> bool {
        let mut state = self.0.lock();
        if state.watch_delay.granted(hold.since, Arc::downgrade(hold)) {
            state.wake();
        }
        state.waker.is_some()
    }

    /// Adds an event and wakes the thread.
    pub(crate) fn put(&self, put: impl FnOnce(&mut Events)) {
        let mut state = self.0.lock();
        put(&mut state.events);
        state.wake();
    }

    /// Schedules a check of the holds of these names. A resting name wakes no thread, because the thread looks at the
    /// end of the rest.
    pub(crate) fn verify(&self, names: impl IntoIterator<Item = LockName>) {
        let mut state = self.0.lock();
        if state.check_limiter.add(names) {
            state.wake();
        }
    }

    /// Starts the thread unless it runs. Returns whether it runs.
    pub(crate) fn start(self: &Arc<Self>, keeper: &Keeper, server: &Arc<Server>) -> bool {
        let mut state = self.0.lock();
        if state.waker.is_none() {
            match self.spawn(keeper, server) {
                Ok(waker) => {
                    state.waker = Some(waker);
                    // What was added before the thread ran woke no thread.
                    state.wake();
                }
                // Without a thread nobody empties the inbox: holds expire and report it, and the next grant tries again.
                Err(_) => (state.watch_delay, state.events.moved) = Default::default(),
            }
        }
        state.waker.is_some()
    }

    fn spawn(self: &Arc<Self>, keeper: &Keeper, server: &Arc<Server>) -> io::Result<Waker> {
        let (waker, sleeper) = sleeper()?;
        let (keeper, server, watchdog) = (Weak::clone(&keeper.myself), Arc::clone(server), Arc::clone(self));
        let work = move || {
            let mut restarted = false;
            let work = |restarted| {
                let worker = keeper.upgrade().map(|keeper| Worker::new(&keeper, &server, &watchdog, restarted));
                worker.into_iter().for_each(|mut worker| worker.run(&sleeper));
            };
            // A panic of the watchdog must not cost the holds of a whole server.
            while catch_unwind(AssertUnwindSafe(|| work(restarted))).is_err() {
                thread::sleep(PAUSE_AFTER_A_PANIC);
                restarted = true;
            }
        };
        thread::Builder::new().name("lockson-watchdog".into()).spawn(work)?;
        Ok(waker)
    }

    /// The thread is to end. Returns `false` where a hold has come of late.
    pub(crate) fn is_left(&self) -> bool {
        let mut state = self.0.lock();
        let is_left = state.watch_delay.step_at.is_none();
        if is_left {
            (state.waker, state.woken) = (None, false);
        }
        is_left
    }

    pub(crate) fn take(&self) -> Events {
        let mut state = self.0.lock();
        state.woken = false;
        std::mem::take(&mut state.events)
    }

    /// Takes the names that are due; `holds` counts the holds of a name, and drops none of them.
    pub(crate) fn take_names(&self, now: Instant, holds: impl FnMut(&LockName) -> usize) -> Vec<LockName> {
        self.0.lock().check_limiter.take(now, holds)
    }

    /// Takes the holds that have lived long enough to be watched.
    pub(crate) fn take_old_enough(&self, now: Instant) -> Vec<Arc<HoldState>> {
        let old_enough = self.0.lock().watch_delay.step(now);
        old_enough.iter().filter_map(Weak::upgrade).collect()
    }

    /// The time at which the next names or holds are due.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let state = self.0.lock();
        [state.watch_delay.step_at, state.check_limiter.next()].into_iter().flatten().min()
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

const PAUSE_AFTER_A_PANIC: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::config::ClientBuilder;
    use crate::conn::{Route, Standalone, Topology};
    use crate::engine::parts::Engine;
    use crate::kinds::{AcquireArgs, Kind, Plain};
    use crate::name::Joined;
    use crate::owner::OwnerId;
    use crate::script::{Attempt, Call, Counts, IfLock, Released, Renewal, RenewalAnswer, Side};
    use crate::state::ledger::{Ledger, Promise};
    use crate::time::{Instant, Lease};
    use crate::transport::ServerNumber;

    impl Watchdog {
        pub(crate) fn is_read_by(&self, waker: Waker) {
            self.0.lock().waker = Some(waker);
        }

        fn is_running(&self) -> bool {
            self.0.lock().waker.is_some()
        }
    }

    const PLAIN: Plain = Plain { reentrant: true };

    /// A plain lock whose renewals fail at first.
    #[derive(Debug, Default)]
    struct Falls {
        renewals: AtomicUsize,
    }

    impl Kind for Falls {
        fn label(&self, side: Side) -> crate::listing::LockKind {
            PLAIN.label(side)
        }

        fn channel<'a>(&self, name: &'a LockName, owner: &'a OwnerId) -> Joined<'a> {
            PLAIN.channel(name, owner)
        }

        fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
            PLAIN.acquire(args)
        }

        fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
            PLAIN.release(name, owner, remaining)
        }

        fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
            assert!(self.renewals.fetch_add(1, Ordering::SeqCst) > 1, "the first two fall");
            PLAIN.renew(locks)
        }

        fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
            PLAIN.force_release(name)
        }
    }

    /// A server that has all keys until it has none.
    struct Leaves {
        server: Arc<Server>,
        other: Arc<Server>,
        has_left: AtomicBool,
    }

    impl Leaves {
        fn now(&self) -> &Arc<Server> {
            if self.has_left.load(Ordering::SeqCst) { &self.other } else { &self.server }
        }
    }

    impl Topology for Arc<Leaves> {
        fn route(&self, _: &[u8]) -> Route {
            Route::to(self.now())
        }

        fn server(&self, _: ServerNumber) -> Option<Arc<Server>> {
            None
        }

        fn servers(&self) -> Vec<Arc<Server>> {
            vec![Arc::clone(self.now())]
        }

        fn greet(&self, _: Duration) -> crate::error::Result<()> {
            Ok(())
        }

        fn close(&self) {}
    }

    #[test]
    fn the_watchdog_of_a_server_without_keys_ends() {
        let [server, other] =
            [0, 1].map(|number| Arc::new(Server::numbered_for_test(ServerNumber(number), "redis://127.0.0.1:1")));
        let topology = Arc::new(Leaves { server: Arc::clone(&server), other, has_left: AtomicBool::new(false) });
        let engine = engine_of(Box::new(Arc::clone(&topology)));
        let hold = hold_of(&engine, Arc::new(PLAIN));
        let watchdog = engine.keeper.watchdog(&server);
        let grant = || engine.keeper.granted(&hold);
        grant();
        assert!(watchdog.is_running());
        topology.has_left.store(true, Ordering::SeqCst);
        eventually("the thread ends", || !watchdog.is_running());
        topology.has_left.store(false, Ordering::SeqCst);
        grant();
        assert!(watchdog.is_running());
    }

    #[track_caller]
    fn eventually(text: &str, is_so: impl Fn() -> bool) {
        let limit = Instant::now().after(Duration::from_secs(30));
        while !is_so() {
            assert!(Instant::now() < limit, "{text}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn engine_of(topology: Box<dyn Topology>) -> Arc<Engine> {
        let settings =
            ClientBuilder::new("redis://127.0.0.1:1").watchdog(Duration::from_secs(60), Duration::from_millis(100));
        Engine::new(settings.config, crate::owner::Owners::new(), String::new(), topology).unwrap()
    }

    fn hold_of(engine: &Engine, kind: Arc<dyn Kind>) -> Arc<HoldState> {
        let lease = Lease::new(Duration::from_secs(60)).unwrap();
        let promise = Promise::Renewed { until: None };
        let now = Instant::now();
        let owner = engine.owners.draw(crate::owner::ThreadId::current().number());
        let (ledger, _) = Ledger::granted(lease, now, lease, Side::Exclusive, promise);
        HoldState::of_kind(kind, &LockName::new("n").unwrap(), owner, None, now, ledger)
    }

    #[test]
    fn a_watchdog_that_panics_goes_on() {
        let engine = engine_of(Box::new(Standalone(Arc::new(Server::for_test("redis://127.0.0.1:1")))));
        let kind = Arc::new(Falls::default());
        let hold = hold_of(&engine, Arc::clone(&kind) as Arc<dyn Kind>);
        engine.cells.registry.add(Arc::clone(&hold));
        engine.keeper.granted(&hold);
        eventually("it is renewed", || kind.renewals.load(Ordering::SeqCst) >= 4);
    }

    #[test]
    fn the_watchdog_is_woken_again_after_each_look() {
        let (waker, sleeper) = sleeper().unwrap();
        let watchdog = Watchdog::default();
        watchdog.is_read_by(waker);
        for _ in 0..3 {
            assert!(!sleeper.was_woken());
            watchdog.put(|events| events.lost = true);
            assert!(sleeper.was_woken());
            watchdog.put(|events| events.flushed = true);
            assert!(!sleeper.was_woken(), "it is awake already");
            let Events { flushed, lost, .. } = watchdog.take();
            assert!(flushed && lost);
        }
    }

    #[test]
    fn a_grant_wakes_a_watchdog_that_sleeps_until_there_is_one() {
        let (waker, sleeper) = sleeper().unwrap();
        let watchdog = Watchdog::default();
        watchdog.is_read_by(waker);
        let lease = Lease::new(Duration::from_secs(30)).unwrap();
        let promise = Promise::Renewed { until: None };
        let (ledger, _) = Ledger::granted(lease, Instant::now(), lease, Side::Exclusive, promise);
        let owner = (crate::owner::HoldNumber(1), OwnerId::encoded("me"));
        let hold = HoldState::for_test(&LockName::new("n").unwrap(), owner, None, Instant::now(), ledger);
        for _ in 0..2 {
            watchdog.granted(&hold);
            assert!(sleeper.was_woken());
            watchdog.take();
            watchdog.granted(&hold);
            assert!(!sleeper.was_woken(), "it looks from time to time anyway");
            let mut old_enough = 0;
            while let Some(at) = watchdog.next_look() {
                old_enough += watchdog.take_old_enough(at).len();
            }
            assert_eq!(old_enough, 2);
        }
    }
}
