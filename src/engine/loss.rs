//! How a loss becomes known: whoever uses a ledger may notice it, and then it is told once.

use std::sync::{Arc, Weak};

use super::Engine;
use super::hold::{HoldState, News, OnLost};
use super::ledger::{Ledger, Phase};
use crate::error::Loss;
use crate::event::LockLost;
use crate::time::Instant;

impl Engine {
    /// Uses the ledger of a hold under its mutex; a loss that comes to light by that is told.
    pub(crate) fn with<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        let (answer, news) = hold.update(use_ledger);
        if let Some(news) = news {
            self.tell(hold, news);
        }
        answer
    }

    /// Redis says that this hold is gone.
    pub(crate) fn lose(&self, hold: &HoldState, loss: Loss) {
        self.with(hold, |ledger, _| ledger.lose(loss));
    }

    /// Has `callback` run once when the hold is lost, at the very moment.
    pub(crate) fn on_lost(&self, hold: &Arc<HoldState>, callback: OnLost) {
        match hold.on_lost(callback) {
            Ok(()) => self.mind(hold),
            Err((loss, callback)) => self.teller.run(move || callback(&loss)),
        }
    }

    /// A deadline may have come nearer: whoever wants to hear of the loss at once hears at the new one.
    pub(super) fn mind_if_heard(&self, hold: &Arc<HoldState>) {
        if self.has_observer || hold.has_listeners() {
            self.mind(hold);
        }
    }

    /// Looks at the hold when its deadline comes, and again when that was put off.
    fn mind(&self, hold: &Arc<HoldState>) {
        if self.with(hold, |ledger, now| ledger.look(now)) != Phase::Live {
            return;
        }
        let Some(deadline) = hold.minded_at() else { return };
        let (engine, hold) = (Weak::clone(&self.myself), Arc::downgrade(hold));
        self.timer.run_at(deadline, move || {
            if let (Some(engine), Some(hold)) = (engine.upgrade(), hold.upgrade())
                && hold.was_minded(deadline)
            {
                engine.mind(&hold);
            }
        });
    }

    fn tell(&self, hold: &HoldState, news: News) {
        let News { loss, on_lost } = news;
        self.observe(|observer| {
            observer.lost(&LockLost { name: hold.name.to_string(), owner: hold.owner.to_string(), loss });
        });
        for callback in on_lost {
            self.teller.run(move || callback(&loss));
        }
    }
}
