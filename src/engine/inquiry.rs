//! An inquiry: asks a query again and again until its reply is the one that the caller waits for.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::engine::acquire::waiting::{Asker, WaitOn, Waiting};
use crate::engine::caller::Caller;
use crate::engine::parts::Engine;
use crate::engine::request::Wait;
use crate::error::{Error, Result};
use crate::name::{Joined, LockName};
use crate::owner::ThreadNumber;
use crate::script::Call;
use crate::state::exchange::Bounds;
use crate::state::wait_loop::TakeOutcome;
use crate::time::{Deadline, Instant};

impl Engine {
    /// Asks until the caller wants the reply; `None` when the time is up. The last request is sent when the time is up.
    /// Changes of the reply are published on `channel`. For a reply that the caller does not want, `unwanted` returns the
    /// time after which another one may come without a message.
    pub(crate) fn inquire<T: Send>(
        &self,
        question: &Call<T>,
        channel: fn(&LockName) -> Joined<'_>,
        cancel: Option<&Cancel>,
        deadline: Deadline,
        unwanted: impl Fn(&T) -> Option<Duration>,
    ) -> Result<Option<T>> {
        let caller = Caller::new(&self.life, cancel, !deadline.passed(Instant::now()));
        caller.check()?;
        let (number, owner) = self.owners.draw(ThreadNumber(0));
        let asker = Asker { number, owner, thread: None };
        let ask = |waiting: &mut Waiting<'_>| {
            let bounds = Bounds { fences: false, ..waiting.asks() };
            let outcome = self.sender.send(question, bounds, Some(&caller));
            waiting.node.asking_ends_with(outcome.as_ref().err().map(|failed| &failed.error));
            self.sender.after_request(waiting.node);
            // A query has no effect, so its failure leaves no doubt.
            let answer = outcome.map_err(|failed| Error::without_effect(failed.error))?;
            Ok(unwanted(&answer.value).map_or(TakeOutcome::Taken(answer.value), TakeOutcome::Busy))
        };
        let wait = Wait::Until(deadline);
        let mut waiting = Waiting::new(self, question.route(), asker, channel, &caller, wait);
        wait.take(&mut WaitOn { host: &mut waiting, waiting: |waiting| waiting, ask })
    }
}
