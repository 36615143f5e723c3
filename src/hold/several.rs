//! What waits for, hears of, and prolongs the holds on several locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Hold, One};
use crate::bell::Bell;
use crate::engine::several::Members;
use crate::engine::several::giving_back::extend_at_once;
use crate::error::{Error, Loss, Result};
use crate::state::quorum;
use crate::sync::Mutex;
use crate::time::{Instant, Lease};

type OnLost = Box<dyn FnOnce(&Loss) + Send>;

impl Hold {
    /// Waits until too few members are held, or until `until`.
    pub(super) fn wait_for_end(&self, until: Instant) {
        if self.ones().any(|one| one.handle.look().is_none()) {
            return;
        }
        let bell = Bell::new();
        let _hung: Vec<_> = self.ones().map(|one| one.state.ring_at_end(&bell)).collect();
        loop {
            let now = Instant::now();
            let left = quorum::remaining(self.at(now), self.needed());
            if now >= until || left.is_zero() {
                return;
            }
            bell.wait(now.after(now.nap_until(until.min(now.after(left)))));
        }
    }

    /// Runs the callback at the loss after which too few members are left.
    pub(super) fn on_each_lost(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        let bearable = self.members().len().saturating_sub(self.needed());
        let waiting: Arc<(AtomicUsize, Mutex<Option<OnLost>>)> =
            Arc::new((0.into(), Mutex::new(Some(Box::new(callback)))));
        for one in self.ones() {
            let waiting = Arc::clone(&waiting);
            one.on_lost(move |loss| {
                let (losses, callback) = &*waiting;
                if losses.fetch_add(1, Ordering::SeqCst) < bearable {
                    return;
                }
                let callback = callback.lock().take();
                if let Some(callback) = callback {
                    callback(loss);
                }
            });
        }
    }

    pub(super) fn extend_all(&self, locks: &Members, lease: Lease) -> Result<()> {
        let ones: Vec<&One> = self.ones().collect();
        let operations = ones.iter().map(|one| one.handle.begin_to_end()).collect::<Result<Vec<_>>>();
        let operations = operations.map_err(|error| error.about(&*locks.name))?;
        // A member that was lost before counts against the group, but is no reason to ask for it.
        let holds: Vec<_> = operations.iter().zip(&ones).map(|(engine, one)| (&**engine, &one.state, lease)).collect();
        let outcomes = extend_at_once(&holds, |engine| locks.bounds(engine, engine.config.command_timeout));
        let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        Error::unless_enough(&locks.name, (ones.len(), locks.needed()), failures)
    }
}
