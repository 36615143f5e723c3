//! The requests about one lock, and their errors.

use std::time::Duration;

use crate::engine::several::SingleLock;
use crate::engine::{Engine, Grant, Modifiers, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, Taken};
use crate::kinds::Queueing;
use crate::owner::{OwnerId, ThreadId};
use crate::state::ledger::Phase;
use crate::time::Instant;

impl SingleLock {
    pub(super) fn take(&self, modifiers: &Modifiers, wait: Wait) -> Result<Option<Taken>> {
        let grant = self.ask(|engine| {
            let request = engine.request(&self.name, &self.kind, modifiers, None)?;
            engine.acquire(&request, wait)
        });
        Ok(grant?.map(|grant| Hold::of(self, grant)))
    }

    /// Returns the newest hold of this thread that was left to `unlock`.
    pub(super) fn left_to_unlock(&self) -> Result<Grant> {
        let engine = self.handle.begin_to_end().map_err(|error| self.named(error))?;
        let not_held = || {
            let text = "this thread has no hold on it from leave_to_unlock(); a guard gives its own hold back";
            self.named(Error::new(ErrorKind::NotHeld, text))
        };
        let hold = engine.cells.registry.find(&self.name, ThreadId::current().number()).ok_or_else(not_held)?;
        if hold.kind.family() != self.kind.family() {
            let (held, wanted) = (hold.label(), self.kind.label(self.kind.side()));
            let text = format!("this thread holds it as {held}, not as {wanted}; unlock the lock that was taken");
            return Err(self.named(Error::new(ErrorKind::OtherKind, text)));
        }
        let guard = engine.keeper.with_ledger(&hold, |ledger, _| ledger.newest_left_to_unlock(self.kind.side()));
        Ok((hold, guard.ok_or_else(not_held)?))
    }

    /// Releases the lock of whatever owner. Returns whether the lock was held.
    pub(super) fn force_unlock(&self, limit: Duration) -> Result<bool> {
        self.ask(|engine| {
            let call = self.kind.force_release(&self.name);
            let request = || engine.sender.of_lock(&self.name, engine.sender.command_within(&call, limit));
            engine.force_release(&self.name, self.kind.side(), request)
        })
    }

    /// Releases the hold of this owner, or its place in a queue, if it is there.
    pub(super) fn force_unlock_owner(&self, owner: &OwnerId) -> Result<()> {
        let began = Instant::now();
        // A key that is no lock is refused here. Who does not hold the lock may have a place in its queue.
        if self.holder()?.is_none() && self.kind.queueing() != Queueing::InRedis {
            return Ok(());
        }
        self.ask(|engine| {
            let withdrawal = self.kind.withdraw(&self.name, owner);
            let left = engine.config.command_timeout.saturating_sub(began.until(Instant::now()));
            let outcome = engine.sender.command_within(&withdrawal, left);
            engine.keeper.verify_holds(&self.name);
            outcome
        })
    }

    pub(super) fn is_locked(&self, limit: Duration) -> Result<bool> {
        let call = self.kind.holder(&self.name).map(|holder| holder.map(|holder| holder.is_some()));
        self.ask(|engine| engine.sender.of_lock(&self.name, engine.sender.ask_within(&call, limit)))
    }

    pub(super) fn remaining_time_to_live(&self) -> Result<Option<Duration>> {
        self.ask(|engine| engine.sender.ask(&self.kind.time_to_live(&self.name)))
    }

    /// Reads an owner of the lock, and its hold count.
    pub(super) fn holder(&self) -> Result<Option<(String, u64)>> {
        self.ask(|engine| engine.sender.of_lock(&self.name, engine.sender.ask(&self.kind.holder(&self.name))))
    }

    /// The hold count of this thread, as far as this process knows.
    pub(super) fn hold_count(&self) -> u64 {
        let Some(engine) = self.handle.look() else { return 0 };
        let held = engine.cells.registry.find(&self.name, ThreadId::current().number());
        // A hold of another kind is none of this lock.
        let Some(hold) = held.filter(|hold| hold.kind.family() == self.kind.family()) else { return 0 };
        let count = engine.keeper.with_ledger(&hold, |ledger, now| {
            if ledger.look(now) == Phase::Live { ledger.counts().of(self.kind.side()) } else { 0 }
        });
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    pub(super) fn ask<A>(&self, ask: impl FnOnce(&Engine) -> Result<A>) -> Result<A> {
        self.handle.begin().and_then(|engine| ask(&engine)).map_err(|error| self.named(error))
    }

    fn named(&self, error: Error) -> Error {
        error.about_a(self.kind.noun(), &self.name)
    }
}
