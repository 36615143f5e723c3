//! An inquiry: asks a query again and again until its reply is the one that the caller waits for.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::engine::caller::Caller;
use crate::engine::cells::hub::Subscription;
use crate::engine::parts::Engine;
use crate::engine::sender::node::Node;
use crate::error::{Error, Result};
use crate::name::LockName;
use crate::script::Call;
use crate::state::channels::Subject;
use crate::state::exchange::Bounds;
use crate::state::wait_loop::{LONGEST_SLEEP, TakeOutcome, WaitLoop, wait_loop};
use crate::time::{Deadline, Instant};

/// A query about a name, and the channel on which changes of the reply are published.
pub(crate) struct Inquiry<'a, T> {
    pub(crate) name: &'a LockName,
    pub(crate) question: fn(&LockName) -> Call<T>,
    pub(crate) channel: String,
    pub(crate) cancel: Option<&'a Cancel>,
}

/// The verdict on a reply.
pub(crate) enum Verdict {
    /// The caller waited for this reply.
    Wanted,
    /// The caller waits for another reply, which may come without a message after this time.
    Unwanted(Duration),
}

/// One caller of an inquiry.
struct Asking<'a, T, J> {
    engine: &'a Engine,
    node: Arc<Node>,
    inquiry: &'a Inquiry<'a, T>,
    caller: &'a Caller<'a>,
    started: Instant,
    deadline: Deadline,
    judge: J,
    subscription: Option<Subscription>,
}

impl Engine {
    /// Asks until `judge` wants the reply; `None` when the time is up. The last request is sent when the time is up.
    pub(crate) fn inquire<T>(
        &self,
        inquiry: &Inquiry<'_, T>,
        deadline: Deadline,
        judge: impl Fn(&T) -> Verdict,
    ) -> Result<Option<T>> {
        let caller = Caller::new(&self.life, inquiry.cancel);
        caller.check()?;
        let mut asking = Asking {
            engine: self,
            node: self.sender.node(inquiry.name),
            inquiry,
            caller: &caller,
            started: Instant::now(),
            deadline,
            judge,
            subscription: None,
        };
        wait_loop(&mut asking, deadline)
    }
}

impl<T, J: Fn(&T) -> Verdict> WaitLoop for Asking<'_, T, J> {
    type Grant = T;

    fn now(&self) -> Instant {
        Instant::now()
    }

    /// A query takes nothing from other processes.
    fn stand_back(&mut self) -> Result<()> {
        Ok(())
    }

    fn attempt(&mut self) -> Result<TakeOutcome<T>> {
        let call = (self.inquiry.question)(self.inquiry.name);
        let now = Instant::now();
        self.node.asking_begins(now);
        let bounds = self.engine.sender.bounds(&self.node, self.started, now, self.deadline);
        let bounds = Bounds { fences: false, ..bounds };
        let outcome = self.engine.sender.send(&call, bounds, Some(self.caller));
        self.node.asking_ends_with(outcome.as_ref().err().map(|failed| &failed.error));
        self.engine.sender.after_request(&self.node);
        // A query has no effect, so its failure leaves no doubt.
        let answer = outcome.map_err(|failed| Error::without_effect(failed.error))?;
        Ok(match (self.judge)(&answer.value) {
            Verdict::Wanted => TakeOutcome::Taken(answer.value),
            Verdict::Unwanted(pause) => TakeOutcome::Busy(pause),
        })
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        Some(busy.min(LONGEST_SLEEP))
    }

    fn arm(&mut self) -> Result<bool> {
        // The server that has the name may be another one than at the last call.
        self.node = self.engine.sender.node(self.inquiry.name);
        // The channel says nothing about existing holds.
        let channel = || self.inquiry.channel.clone();
        self.engine.cells.hub(&self.node.server).arm(
            &mut self.subscription,
            &Subject::Other,
            channel,
            &self.caller.bell,
        )
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        self.caller.sleep(until)
    }
}
