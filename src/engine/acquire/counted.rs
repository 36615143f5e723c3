//! One thread that takes permits of a semaphore, and how permits are given back.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::engine::acquire::waiting::{Asker, WaitOn, Waiting};
use crate::engine::caller::{Caller, closed};
use crate::engine::parts::Engine;
use crate::engine::request::Wait;
use crate::engine::sender::numbered::Numbered;
use crate::error::Result;
use crate::event::{LockAcquired, Observer};
use crate::kinds::Queueing;
use crate::kinds::semaphore::{self, Returned, Returning, TakeAnswer};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::script::once::Once;
use crate::state::exchange::Bounds;
use crate::state::stand_back::{Rivals, Turn};
use crate::state::wait_loop::{LONGEST_SLEEP, TakeOutcome};
use crate::time::Instant;

impl Engine {
    /// Asks until the permits are granted; `None` when the time is up.
    pub(crate) fn take_permits(
        &self,
        name: &LockName,
        permits: u32,
        wait: Wait,
        cancel: Option<&Cancel>,
    ) -> Result<Option<(HoldNumber, OwnerId)>> {
        let caller = Caller::new(&self.life, cancel, wait != Wait::Not);
        caller.check()?;
        let thread = ThreadId::current();
        let (number, owner) = self.owners.draw(thread.number());
        let asker = Asker { number, owner, thread: Some(thread) };
        let kind = LockKind::Semaphore;
        let mut waiting = Waiting::new(self, name, asker, LockName::semaphore_channel, &caller, wait);
        (waiting.label, waiting.queueing) = (Some(kind), Queueing::Counted(permits));
        let call = |once: &Once| semaphore::acquire(name, once, permits);
        let given_up = |given_up: &Once, next: &Once| semaphore::withdraw(name, next, given_up.number);
        let took_nothing = |taken: &TakeAnswer| !taken.granted;
        let request = Numbered { given_up: Some(&given_up), took_nothing, ..Numbered::new(name, &call) };
        let ask = |waiting: &mut Waiting<'_>| {
            let heard = waiting.is_heard();
            let taken = self.sender.once(&request, waiting.asks(), Some(&caller));
            waiting.node.asking_ends_with(taken.as_ref().err());
            let TakeAnswer { granted, free } = taken?;
            let position = waiting.position.as_mut();
            if !granted {
                position.into_iter().for_each(|position| position.answered(free));
                return Ok(TakeOutcome::Busy(LONGEST_SLEEP));
            }
            // The client knows the grant before the observer does, because the observer may close the client.
            if !self.cells.taken.add(number, name, permits) {
                // `close()` waits for this call.
                let _ = self.give_back_permits(name, permits.into(), self.config.drop_timeout);
                return Err(closed());
            }
            position.into_iter().for_each(|position| position.granted(free, heard));
            self.cells.stand_backs.with(name, Turn::granted);
            Ok(TakeOutcome::Taken(()))
        };
        let outcome = wait.take(&mut WaitOn { host: &mut waiting, waiting: |waiting| waiting, ask });
        let outcome = outcome.map_err(|error| error.about_a(kind.noun(), name));
        if let Ok(Some(())) = outcome {
            waiting.granted();
            self.config.observe(Observer::acquired, || {
                let waited = waiting.started.until(Instant::now());
                LockAcquired::of(waiting.in_events(kind), waited, waiting.has_slept)
            });
        } else {
            waiting.gave_up(outcome.as_ref().err());
        }
        waiting.tell_end(&outcome);
        Ok(outcome?.map(|()| (number, waiting.asker.owner)))
    }

    /// Gives permits of the client back, to a semaphore that exists; goes on in the background after `limit`.
    pub(crate) fn give_back_permits(&self, name: &LockName, permits: i64, limit: Duration) -> Result<Returned> {
        let bounds = Bounds::within(Instant::now(), limit, self.config.command_timeout);
        self.return_permits(name, permits, Returning::Held, |request| {
            self.sender.once(&Numbered { persists: true, ..request }, bounds, None)
        })
    }

    /// Returns permits to a semaphore by a request that `send` sends. Counts as a release if nothing was free before.
    pub(crate) fn return_permits(
        &self,
        name: &LockName,
        permits: i64,
        returning: Returning,
        send: impl FnOnce(Numbered<'_, Returned>) -> Result<Returned>,
    ) -> Result<Returned> {
        let call = |once: &Once| semaphore::release(name, once, permits, returning);
        let given_up = |given_up: &Once, _: &Once| call(given_up).map(drop);
        let publishing = self.publishes(name, || name.semaphore_channel().text());
        let reply = send(Numbered { given_up: Some(&given_up), ..Numbered::new(name, &call) });
        let (was_free, receivers) = match reply {
            Ok(Returned::Done { free, receivers }) => (free.saturating_sub(permits), receivers),
            Ok(Returned::Gone) | Err(_) => (0, None),
        };
        let rivals = publishing.published(receivers);
        self.cells.stand_backs.released(name, if was_free > 0 { Rivals::Unknown } else { rivals });
        reply.inspect(|returned| self.wake_takers(name, *returned))
    }

    /// Wakes callers of this process for whom permits are free by now, where no client heard of them.
    pub(crate) fn wake_takers(&self, name: &LockName, returned: Returned) {
        if let Returned::Done { free, receivers: None | Some(0) } = returned {
            self.cells.counted_queues.free(name, free);
        }
    }
}
