//! One lock behind a handle: its requests, and the errors that name it.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Handle, HoldState, Modifiers, Wait};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::hold::Taken;
use crate::kinds::Kind;
use crate::name::{GivenName, LockName};
use crate::owner::ThreadId;
use crate::state::ledger::{GuardNumber, Phase};

/// One lock by its name.
#[derive(Clone)]
pub(super) struct One {
    pub(super) handle: Handle,
    pub(super) kind: Arc<dyn Kind>,
    pub(super) name: GivenName,
}

impl One {
    pub(super) fn take(&self, modifiers: &Modifiers, wait: Wait) -> Result<Option<Taken>> {
        let take = |engine: &Engine, name: &LockName| {
            engine.request(name, &self.kind, modifiers, None).and_then(|request| engine.acquire(&request, wait))
        };
        Ok(self.ask(take)?.map(|grant| Taken::One(self.handle.clone(), grant)))
    }

    /// Releases the newest hold of this thread that was left to `unlock`.
    pub(super) fn unlock(&self) -> Result<()> {
        let name = self.name.checked()?;
        let engine = self.handle.begin_to_end().map_err(|error| error.about_a(self.kind.noun(), name))?;
        let (hold, guard) = self.left_to_unlock(&engine)?;
        engine.release(&hold, guard, engine.config.command_timeout)
    }

    /// Returns the newest hold of this thread that was left to `unlock`.
    pub(super) fn left_to_unlock(&self, engine: &Engine) -> Result<(Arc<HoldState>, GuardNumber)> {
        let name = self.name.checked()?;
        let not_held = || {
            let text = "this thread has no hold on it from leave_to_unlock(); a guard gives its own hold back";
            Error::new(ErrorKind::NotHeld, text).about_a(self.kind.noun(), name)
        };
        let hold = engine.cells.registry.find(name, ThreadId::current().number()).ok_or_else(not_held)?;
        if hold.kind.family() != self.kind.family() {
            let (held, wanted) = (hold.label(), self.kind.label(self.kind.side()));
            let text = format!("this thread holds it as {held}, not as {wanted}; unlock the lock that was taken");
            return Err(Error::new(ErrorKind::OtherKind, text).about_a(self.kind.noun(), name));
        }
        let guard = engine.keeper.with_ledger(&hold, |ledger, _| ledger.newest_left_to_unlock(self.kind.side()));
        Ok((hold, guard.ok_or_else(not_held)?))
    }

    /// Releases the lock of whatever owner. Returns whether the lock was held.
    pub(super) fn force_unlock(&self) -> Result<bool> {
        self.force_unlock_within(None)
    }

    /// The same within `limit`, or within the command time-out.
    pub(super) fn force_unlock_within(&self, limit: Option<Duration>) -> Result<bool> {
        let name = self.name.checked()?;
        let engine = self.handle.begin().map_err(|error| error.about_a(self.kind.noun(), name))?;
        let limit = limit.unwrap_or(engine.config.command_timeout);
        // Read before the request: a later owner keeps the lock.
        let holds = engine.cells.registry.under(name);
        let outcome = engine.sender.command_within(&self.kind.force_release(name), limit);
        let outcome = engine.sender.of_lock(name, outcome).map_err(|error| error.about_a(self.kind.noun(), name));
        match outcome {
            Ok(true) => self.force_lost(&engine, &holds),
            Ok(false) => {}
            Err(_) => engine.keeper.verify_holds(name),
        }
        outcome
    }

    /// Records the loss of the holds of this process on the released side.
    fn force_lost(&self, engine: &Engine, holds: &[Arc<HoldState>]) {
        let side = self.kind.side();
        for hold in holds {
            if engine.keeper.with_ledger(hold, |ledger, _| ledger.counts().of(side)) > 0 {
                engine.keeper.lose(hold, Loss::Gone);
            }
        }
    }

    pub(super) fn is_locked(&self) -> Result<bool> {
        self.is_locked_within(None)
    }

    /// The same within `limit`, or within the command time-out.
    pub(super) fn is_locked_within(&self, limit: Option<Duration>) -> Result<bool> {
        let name = self.name.checked()?;
        let call = self.kind.is_locked(name);
        let asked = self.handle.begin();
        asked
            .and_then(|engine| {
                let limit = limit.unwrap_or(engine.config.command_timeout);
                engine.sender.of_lock(name, engine.sender.ask_within(&call, limit))
            })
            .map_err(|error| error.about_a(self.kind.noun(), name))
    }

    pub(super) fn remaining_time_to_live(&self) -> Result<Option<Duration>> {
        self.ask(|engine, name| engine.sender.ask(&self.kind.time_to_live(name)))
    }

    /// Reads an owner of the lock, and its hold count.
    pub(super) fn holder(&self) -> Result<Option<(String, u64)>> {
        self.ask(|engine, name| engine.sender.of_lock(name, engine.sender.ask(&self.kind.holder(name))))
    }

    /// The hold count of this thread, as far as this process knows.
    pub(super) fn hold_count(&self) -> u64 {
        let Ok(name) = self.name.checked() else { return 0 };
        let Some(engine) = self.handle.look() else { return 0 };
        let Some(hold) = engine.cells.registry.find(name, ThreadId::current().number()) else { return 0 };
        let count = engine.keeper.with_ledger(&hold, |ledger, now| {
            if ledger.look(now) == Phase::Live { ledger.counts().of(self.kind.side()) } else { 0 }
        });
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    fn ask<A>(&self, ask: impl FnOnce(&Engine, &LockName) -> Result<A>) -> Result<A> {
        let name = self.name.checked()?;
        self.handle.begin().and_then(|engine| ask(&engine, name)).map_err(|error| error.about_a(self.kind.noun(), name))
    }
}
