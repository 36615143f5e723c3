//! The watchdog of one server as its callers see it: an inbox, and a thread that is started on demand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::inbox::Inbox;
use super::worker::Worker;
use crate::conn::{Server, sleeper};
use crate::engine::Engine;
use crate::engine::holds::hold::HoldState;
use crate::engine::hub::Hub;
use crate::name::LockName;

/// The handle of the watchdog of one server; its thread starts at the first use.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    inbox: Arc<Inbox>,
    running: OnceCell<()>,
}

impl Watchdog {
    /// Adds a granted hold, which is renewed, and watched after a moment.
    pub(crate) fn granted(&self, engine: &Arc<Engine>, server: &Arc<Server>, hub: &Arc<Hub>, hold: &Arc<HoldState>) {
        self.start(engine, server, hub);
        // Without a thread the inbox would never be emptied.
        if self.running.get().is_some() {
            self.inbox.granted(hold);
        }
    }

    /// Takes a hold over from the watchdog of another server: the hold is renewed at once, and watched after a moment.
    pub(crate) fn takes_over(&self, engine: &Arc<Engine>, server: &Arc<Server>, hub: &Arc<Hub>, hold: &Arc<HoldState>) {
        self.granted(engine, server, hub, hold);
        if self.is_running() {
            self.inbox.moved(hold);
        }
    }

    /// Whether the thread was started.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get().is_some()
    }

    /// Starts the thread unless it runs.
    fn start(&self, engine: &Arc<Engine>, server: &Arc<Server>, hub: &Arc<Hub>) {
        if self.running.get().is_some() {
            return;
        }
        // Without a thread holds expire and report it; the next acquire tries again.
        let _ = self.running.get_or_try_init(|| {
            let (waker, sleeper) = sleeper()?;
            self.inbox.is_read_by(waker);
            let (engine, hub) = (Arc::downgrade(engine), Arc::downgrade(hub));
            let (server, inbox) = (Arc::clone(server), Arc::clone(&self.inbox));
            let work = move || {
                let mut restarted = false;
                // A panic of the watchdog must not cost the holds of a whole server.
                let work = |restarted| {
                    if let Some(mut worker) = Worker::new(&engine, &server, &hub, &inbox, restarted) {
                        worker.run(&sleeper);
                    }
                };
                while catch_unwind(AssertUnwindSafe(|| work(restarted))).is_err() {
                    thread::sleep(PAUSE_AFTER_A_PANIC);
                    restarted = true;
                }
            };
            thread::Builder::new().name("lockson-watchdog".into()).spawn(work).map(drop)
        });
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
    pub(crate) fn ear_changed(&self, lost: bool) {
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::config::ClientBuilder;
    use crate::conn::Standalone;
    use crate::engine::holds::hold::Granted;
    use crate::engine::{AcquireArgs, Kind};
    use crate::kinds::Plain;
    use crate::owner::OwnerId;
    use crate::script::{Attempt, Call, Counts, IfLock, Released, Renewal, RenewalAnswers, Side};
    use crate::state::ledger::{Ledger, Promise};
    use crate::time::{Instant, Lease};

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

        fn renew(&self, locks: &[Renewal]) -> Call<RenewalAnswers> {
            assert!(self.renewals.fetch_add(1, Ordering::SeqCst) > 1, "the first two fall");
            PLAIN.renew(locks)
        }

        fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
            PLAIN.force_release(name)
        }
    }

    #[test]
    fn a_watchdog_that_panics_goes_on() {
        let url = "redis://127.0.0.1:1";
        let settings = ClientBuilder::new(url).watchdog(Duration::from_secs(60), Duration::from_millis(100));
        let server = Server::for_test(url);
        let engine =
            Engine::new(settings.config, crate::owner::Owners::new(), Box::new(Standalone::new(server))).unwrap();
        let lease = Lease::new(Duration::from_secs(60)).unwrap();
        let promise = Promise::Renewed { until: None };
        let now = Instant::now();
        let (number, owner) = engine.owners.draw(crate::owner::ThreadId::current().number());
        let kind = Arc::new(Falls::default());
        let hold = Arc::new(HoldState::new(Granted {
            name: LockName::new("n").unwrap(),
            kind: Arc::clone(&kind) as Arc<dyn Kind>,
            number,
            owner,
            thread: None,
            group: None,
            since: now,
            token: None,
            in_doubt: Default::default(),
            ledger: Ledger::granted(lease, now, lease, Side::Exclusive, promise).0,
            durability: None,
        }));
        engine.registry.add(Arc::clone(&hold));
        let node = engine.node(&hold.name);
        node.watchdog.granted(&engine, &node.server, &node.hub, &hold);
        let limit = now.after(Duration::from_secs(30));
        while kind.renewals.load(Ordering::SeqCst) < 4 && Instant::now() < limit {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(kind.renewals.load(Ordering::SeqCst) >= 4, "it is renewed no more");
    }
}
