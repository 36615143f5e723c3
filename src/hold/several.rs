//! The hold on several locks: a view of their holds, with the number of them that must be held.

use std::sync::Arc;
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::{Hold, One};
use crate::bell::Bell;
use crate::engine::several::Members;
use crate::engine::several::giving_back::extend_at_once;
use crate::error::{Error, Loss, Result};
use crate::state::quorum::{self, Member};
use crate::sync::Mutex;
use crate::time::{Instant, Lease};

/// The hold on several locks. A lost member stays lost, so the group needs no state of its own.
pub(super) struct Several {
    pub(super) locks: Arc<Members>,
    /// The holds of the granted ones.
    pub(super) holds: Vec<Hold>,
    /// The loss that ended the hold.
    pub(super) lost: OnceCell<Loss>,
}

type OnLost = Box<dyn FnOnce(&Loss) + Send>;

impl Several {
    fn ones(&self) -> impl Iterator<Item = &One> {
        self.holds.iter().flat_map(Hold::ones)
    }

    /// All members at one moment.
    fn at(&self, now: Instant) -> Vec<Member> {
        self.ones().map(|one| one.at(now)).collect()
    }

    pub(super) fn is_held(&self) -> bool {
        quorum::is_held(&self.at(Instant::now()), self.locks.needed())
    }

    pub(super) fn remaining(&self) -> Duration {
        quorum::remaining(&self.at(Instant::now()), self.locks.needed())
    }

    /// The loss after which too few members were left.
    pub(super) fn lost(&self) -> Option<Loss> {
        if let Some(loss) = self.lost.get() {
            return Some(*loss);
        }
        let loss = quorum::loss(&self.at(Instant::now()), self.locks.needed())?;
        Some(*self.lost.get_or_init(|| loss))
    }

    /// Waits until too few members are held, or until `until`.
    pub(super) fn wait_for_end(&self, until: Instant) {
        if self.ones().any(|one| one.handle.look().is_none()) {
            return;
        }
        let bell = Bell::new();
        let _hung: Vec<_> = self.ones().map(|one| one.state.ring_at_end(&bell)).collect();
        loop {
            let now = Instant::now();
            let members = self.at(now);
            if now >= until || !quorum::is_held(&members, self.locks.needed()) {
                return;
            }
            let left = quorum::remaining(&members, self.locks.needed());
            bell.wait(now.after(now.nap_until(until.min(now.after(left)))));
        }
    }

    /// Runs the callback at the loss after which too few members are left.
    pub(super) fn on_lost(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        let bearable = self.holds.len().saturating_sub(self.locks.needed());
        let waiting: Arc<Mutex<(usize, Option<OnLost>)>> = Arc::new(Mutex::new((bearable, Some(Box::new(callback)))));
        for one in self.ones() {
            let waiting = Arc::clone(&waiting);
            one.on_lost(move |loss| {
                let due = {
                    let (bearable, callback) = &mut *waiting.lock();
                    match bearable.checked_sub(1) {
                        Some(less) => {
                            *bearable = less;
                            None
                        }
                        None => callback.take(),
                    }
                };
                if let Some(callback) = due {
                    callback(loss);
                }
            });
        }
    }

    pub(super) fn extend(&self, lease: Lease) -> Result<()> {
        let ones: Vec<&One> = self.ones().collect();
        let operations = ones.iter().map(|one| one.handle.begin_to_end()).collect::<Result<Vec<_>>>();
        let operations = operations.map_err(|error| error.about(&*self.locks.name))?;
        // A member that was lost before counts against the group, but is no reason to ask for it.
        let holds: Vec<_> = operations.iter().zip(&ones).map(|(engine, one)| (&**engine, &one.state, lease)).collect();
        let outcomes = extend_at_once(&holds, |engine| self.locks.bounds(engine, engine.config.command_timeout));
        let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        Error::unless_enough(&self.locks.name, (ones.len(), self.locks.needed()), failures)
    }
}
