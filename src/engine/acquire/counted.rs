//! One thread that waits for a part of a count.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::engine::acquire::stand_back::{Wanted, stand_back};
use crate::engine::acquire::waiting::{Asker, Waiting};
use crate::engine::caller::Caller;
use crate::engine::cells::counted_queues::Position;
use crate::engine::parts::Engine;
use crate::engine::request::Wait;
use crate::error::Result;
use crate::event::LockAcquired;
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::state::channels::Subject;
use crate::state::exchange::Bounds;
use crate::state::wait_loop::{LONGEST_SLEEP, TakeOutcome, WaitLoop, wait_loop};
use crate::time::{Deadline, Instant};

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
    /// `None` for a caller that asks once.
    position: Option<Position<'a>>,
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
        CountedWait { engine, request, owner, number, thread, caller, waiting, position: None, question }.run(wait)
    }
}

impl<Grant> CountedWait<'_, '_, Grant> {
    fn run(mut self, wait: Wait) -> Result<Option<(Grant, OwnerId)>> {
        let deadline = self.waiting.deadline;
        let outcome = if wait == Wait::Not {
            self.attempt().map(|outcome| match outcome {
                TakeOutcome::Taken(grant) => Some(grant),
                TakeOutcome::Busy(_) => None,
            })
        } else {
            let (channel, wish) = (self.request.channel, self.request.wish);
            self.position = Some(self.engine.cells.counted_queues.join(channel, wish, &self.caller.bell));
            wait_loop(&mut self, deadline)
        };
        // The next thread need not wait for the observer.
        self.position = None;
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

    fn asker(&self) -> (HoldNumber, OwnerId, ThreadId) {
        (self.number, self.owner.clone(), self.thread.clone())
    }
}

impl<Grant> WaitLoop for CountedWait<'_, '_, Grant> {
    type Grant = Grant;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn stand_back(&mut self, deadline: Deadline) -> Result<()> {
        while self.position.as_ref().is_some_and(|position| !position.may_ask()) {
            let Some(until) = self.waiting.turn_comes() else { break };
            // The channel stays subscribed while threads wait, whatever the first of them does.
            self.arm()?;
            self.sleep(until)?;
        }
        let wanted: Wanted<'_> = (self.engine, self.request.name, None);
        stand_back(std::iter::once(wanted), deadline, |until| self.sleep(until))
    }

    fn attempt(&mut self) -> Result<TakeOutcome<Grant>> {
        let heard = self.waiting.is_heard();
        if let Some(position) = &mut self.position {
            position.asks();
        }
        let node = &self.waiting.node;
        node.asking_begins(Instant::now());
        let bounds = self.engine.sender.bounds(node, self.waiting.started, self.waiting.deadline);
        let reply = (self.question)(bounds, self.caller);
        node.asking_ends_with(reply.as_ref().err());
        let CountedReply { granted, free } = reply?;
        match (granted, &mut self.position) {
            (Some(grant), position) => {
                if let Some(position) = position {
                    position.granted(free, heard);
                }
                self.engine.cells.stand_backs.granted(self.request.name);
                Ok(TakeOutcome::Taken(grant))
            }
            (None, position) => {
                if let Some(position) = position {
                    position.answered(free);
                }
                Ok(TakeOutcome::Busy(LONGEST_SLEEP))
            }
        }
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        Some(busy)
    }

    fn arm(&mut self) -> Result<bool> {
        let channel = self.request.channel;
        self.waiting.arm_for(&Subject::Count(self.request.name.clone()), || channel.to_owned())
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        let (number, owner, thread) = self.asker();
        self.waiting.sleep(until, Asker { number, owner: &owner, thread: Some(&thread) })
    }
}
