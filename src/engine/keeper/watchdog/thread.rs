//! The watchdog of one server as its callers see it: an inbox, and a thread that is started on demand.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::conn::{Server, sleeper};
use crate::engine::hold::HoldState;
use crate::engine::keeper::Keeper;
use crate::engine::keeper::watchdog::inbox::Inbox;
use crate::engine::keeper::watchdog::worker::Worker;
use crate::name::LockName;
use crate::sync::Mutex;

/// The handle of the watchdog of one server; its thread starts at the first use, and ends where the server has no keys
/// any more.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    inbox: Arc<Inbox>,
    /// One thread at a time is started.
    starting: Mutex<()>,
}

impl Watchdog {
    /// Adds a granted hold, which is renewed, and watched after a moment.
    pub(crate) fn granted(&self, keeper: &Keeper, server: &Arc<Server>, hold: &Arc<HoldState>) {
        if !self.inbox.granted(hold) {
            self.start(keeper, server);
        }
    }

    /// Takes a hold over from the watchdog of another server: the hold is renewed at once, and watched after a moment.
    pub(crate) fn takes_over(&self, keeper: &Keeper, server: &Arc<Server>, hold: &Arc<HoldState>) {
        if !self.inbox.moved(hold) {
            self.start(keeper, server);
        }
    }

    /// Whether the thread runs.
    pub(crate) fn is_running(&self) -> bool {
        self.inbox.is_read()
    }

    /// Starts the thread unless it runs.
    fn start(&self, keeper: &Keeper, server: &Arc<Server>) {
        let _alone = self.starting.lock();
        if self.is_running() {
            return;
        }
        let start = || {
            let (waker, sleeper) = sleeper()?;
            let keeper = Weak::clone(&keeper.myself);
            let (server, inbox) = (Arc::clone(server), Arc::clone(&self.inbox));
            let work = move || {
                let mut restarted = false;
                // A panic of the watchdog must not cost the holds of a whole server.
                let work = |restarted| {
                    if let Some(mut worker) = Worker::new(&keeper, &server, &inbox, restarted) {
                        worker.run(&sleeper);
                    }
                };
                while catch_unwind(AssertUnwindSafe(|| work(restarted))).is_err() {
                    thread::sleep(PAUSE_AFTER_A_PANIC);
                    restarted = true;
                }
            };
            thread::Builder::new().name("lockson-watchdog".into()).spawn(work)?;
            self.inbox.is_read_by(waker);
            // A hold that was added before the thread ran woke no thread.
            self.inbox.put(|_| ());
            Ok::<_, io::Error>(())
        };
        if start().is_err() {
            // Without a thread nobody empties the inbox: holds expire and report it, and the next grant tries again.
            self.inbox.take_granted(false);
            self.inbox.take_moved();
        }
    }

    /// Schedules a check of the holds of these names.
    pub(crate) fn verify(&self, names: impl IntoIterator<Item = LockName>) {
        self.inbox.ask(names);
    }

    /// Schedules a check of all holds, because any key may have been deleted.
    pub(crate) fn verify_all(&self) {
        self.inbox.put(|events| events.flushed = true);
    }

    /// The state of the listening connection changed; with `lost`, messages may have been missed.
    pub(crate) fn tracking_channel_changed(&self, lost: bool) {
        self.inbox.put(|events| events.lost |= lost);
    }

    /// Wakes the thread to see that the client was closed.
    pub(crate) fn close(&self) {
        self.inbox.put(|_| ());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.close();
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
    use crate::owner::OwnerId;
    use crate::script::{Attempt, Call, Counts, IfLock, Released, Renewal, RenewalAnswer, Side};
    use crate::state::ledger::{Ledger, Promise};
    use crate::time::{Instant, Lease};
    use crate::transport::ServerNumber;

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

        fn channel(&self, name: &LockName, owner: &OwnerId) -> String {
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
    #[derive(Debug)]
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
        let grant = || watchdog.granted(&engine.keeper, &server, &hold);
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
        Engine::new(settings.config, crate::owner::Owners::new(), topology).unwrap()
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
        let engine = engine_of(Box::new(Standalone::new(Server::for_test("redis://127.0.0.1:1"))));
        let kind = Arc::new(Falls::default());
        let hold = hold_of(&engine, Arc::clone(&kind) as Arc<dyn Kind>);
        engine.cells.registry.add(Arc::clone(&hold));
        engine.keeper.granted(&hold);
        eventually("it is renewed", || kind.renewals.load(Ordering::SeqCst) >= 4);
    }
}
