//! One thread that waits for a part of a count.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::engine::acquire::waiting::{Asker, Waiting};
use crate::engine::caller::Caller;
use crate::engine::parts::Engine;
use crate::engine::request::Wait;
use crate::error::Result;
use crate::event::LockAcquired;
use crate::kinds::Queueing;
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::state::exchange::Bounds;
use crate::state::wait_loop::{LONGEST_SLEEP, TakeOutcome, WaitLoop, ask_once, wait_loop};
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

/// One caller on its way.
struct CountedWait<'a, 'q, Grant> {
    engine: &'a Engine,
    request: &'a CountedRequest<'a>,
    owner: OwnerId,
    number: HoldNumber,
    thread: ThreadId,
    caller: &'a Caller<'a>,
    waiting: Waiting<'a>,
    question: &'a mut CountedQuestion<'q, Grant>,
}

impl Engine {
    /// Asks until the wish is granted; `None` when the time is up.
    pub(crate) fn take_counted<Grant>(
        &self,
        request: &CountedRequest<'_>,
        wait: Wait,
        question: &mut CountedQuestion<'_, Grant>,
    ) -> Result<Option<(Grant, OwnerId)>> {
        let caller = Caller::new(&self.life, request.cancel);
        caller.check()?;
        let thread = ThreadId::current();
        let (number, owner) = self.owners.draw(thread.number());
        let waiting = Waiting::new(self, (request.name, request.kind, None), &caller, wait.deadline());
        let (engine, caller) = (self, &caller);
        CountedWait { engine, request, owner, number, thread, caller, waiting, question }.run(wait)
    }
}

impl<Grant> CountedWait<'_, '_, Grant> {
    fn run(mut self, wait: Wait) -> Result<Option<(Grant, OwnerId)>> {
        let deadline = self.waiting.deadline;
        let outcome = if wait == Wait::Not {
            ask_once(&mut self)
        } else {
            self.waiting.join_queue(Queueing::Counted(self.request.wish), || self.request.channel.to_owned());
            wait_loop(&mut self, deadline)
        };
        let outcome = outcome.map_err(|error| error.about_a(self.request.kind.noun(), self.request.name));
        if let Ok(Some(grant)) = outcome {
            self.tell_grant();
            return Ok(Some((grant, self.owner.clone())));
        }
        self.waiting.gave_up(&self.owner, outcome.as_ref().err());
        outcome.map(|_| None)
    }

    fn tell_grant(&mut self) {
        self.waiting.granted();
        self.engine.config.observe(|observer| {
            observer.acquired(&LockAcquired {
                name: self.request.name.to_string(),
                kind: self.request.kind,
                owner: self.owner.to_string(),
                waited: self.waiting.started.until(Instant::now()),
                group: None,
            });
        });
    }
}

impl<Grant> WaitLoop for CountedWait<'_, '_, Grant> {
    type Grant = Grant;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn stand_back(&mut self) -> Result<()> {
        let asker = Asker { number: self.number, owner: &self.owner, thread: Some(&self.thread) };
        self.waiting.wait_in_line(asker)?;
        self.waiting.stand_back(None, asker)
    }

    fn attempt(&mut self) -> Result<TakeOutcome<Grant>> {
        let heard = self.waiting.is_heard();
        let bounds = self.waiting.asks();
        let reply = (self.question)(bounds, self.caller);
        self.waiting.node.asking_ends_with(reply.as_ref().err());
        let CountedReply { granted, free } = reply?;
        let position = self.waiting.count.as_mut();
        let Some(grant) = granted else {
            position.into_iter().for_each(|position| position.answered(free));
            return Ok(TakeOutcome::Busy(LONGEST_SLEEP));
        };
        position.into_iter().for_each(|position| position.granted(free, heard));
        self.engine.cells.stand_backs.granted(self.request.name);
        Ok(TakeOutcome::Taken(grant))
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        Some(busy)
    }

    fn arm(&mut self) -> Result<bool> {
        self.waiting.arm_count()
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        let asker = Asker { number: self.number, owner: &self.owner, thread: Some(&self.thread) };
        self.waiting.sleep(until, asker)
    }
}
