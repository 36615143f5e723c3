//! One thread that waits for a part of a count.

use crate::cancel::Cancel;
use crate::engine::acquire::waiting::{Asker, WaitOn, Waiting};
use crate::engine::caller::Caller;
use crate::engine::parts::Engine;
use crate::engine::request::Wait;
use crate::error::Result;
use crate::event::LockAcquired;
use crate::kinds::Queueing;
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::{OwnerId, ThreadId};
use crate::state::exchange::Bounds;
use crate::state::wait_loop::{LONGEST_SLEEP, TakeOutcome, ask_once, wait_loop};
use crate::time::Instant;

/// What a caller wants of a count.
pub(crate) struct CountedRequest<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) kind: LockKind,
    /// The channel on which the count is published.
    pub(crate) channel: &'a str,
    pub(crate) wish: u32,
    pub(crate) cancel: Option<&'a Cancel>,
}

/// The reply to a question.
pub(crate) struct CountedReply<Grant> {
    pub(crate) granted: Option<Grant>,
    /// What is free after the request.
    pub(crate) free: i64,
}

/// Asks Redis once.
type CountedQuestion<'a, Grant> = dyn FnMut(Bounds, &Caller<'_>) -> Result<CountedReply<Grant>> + 'a;

impl Engine {
    /// Asks until the wish is granted; `None` when the time is up.
    pub(crate) fn take_counted<Grant>(
        &self,
        request: &CountedRequest<'_>,
        wait: Wait,
        question: &mut CountedQuestion<'_, Grant>,
    ) -> Result<Option<(Grant, OwnerId)>> {
        let CountedRequest { name, kind, channel, wish, cancel } = *request;
        let caller = Caller::new(&self.life, cancel, wait != Wait::Not);
        caller.check()?;
        let thread = ThreadId::current();
        let (number, owner) = self.owners.draw(thread.number());
        let asker = Asker { number, owner, thread: Some(thread) };
        let deadline = wait.deadline();
        let mut waiting = Waiting::new(self, (name, Some(kind)), asker, &caller, deadline);
        let ask = |waiting: &mut Waiting<'_>| {
            let heard = waiting.is_heard();
            let reply = question(waiting.asks(), &caller);
            waiting.node.asking_ends_with(reply.as_ref().err());
            let CountedReply { granted, free } = reply?;
            let position = waiting.count.as_mut();
            let Some(grant) = granted else {
                position.into_iter().for_each(|position| position.answered(free));
                return Ok(TakeOutcome::Busy(LONGEST_SLEEP));
            };
            position.into_iter().for_each(|position| position.granted(free, heard));
            self.cells.stand_backs.granted(name);
            Ok(TakeOutcome::Taken(grant))
        };
        if wait != Wait::Not {
            waiting.join_queue(Queueing::Counted(wish), |_| channel.to_owned());
        }
        let mut host = WaitOn { waiting: &mut waiting, channel, ask };
        let outcome = if wait == Wait::Not { ask_once(&mut host) } else { wait_loop(&mut host, deadline) };
        let outcome = outcome.map_err(|error| error.about_a(kind.noun(), name));
        let Ok(Some(grant)) = outcome else {
            waiting.gave_up(outcome.as_ref().err());
            waiting.tell_end(&outcome);
            return outcome.map(|_| None);
        };
        waiting.granted();
        let owner = &waiting.asker.owner;
        self.config.observe(|observer| {
            observer.acquired(&LockAcquired {
                name: name.to_string(),
                kind,
                owner: owner.to_string(),
                waited: waiting.started.until(Instant::now()),
                has_waited: waiting.has_slept,
                group: None,
            });
        });
        waiting.tell_end(&Ok(Some(())));
        Ok(Some((grant, waiting.asker.owner)))
    }
}
