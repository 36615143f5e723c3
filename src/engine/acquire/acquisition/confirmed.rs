//! Grants that count only when replicas have them.

use std::time::Duration;

use crate::engine::acquire::acquisition::Acquisition;
use crate::engine::request::AcquireRequest;
use crate::engine::sender::exactly_once::Answer;
use crate::error::Error;
use crate::script::Attempt;
use crate::time::{Deadline, Instant};
use crate::transport::Confirmation;

impl Acquisition<'_> {
    /// The step that confirms a grant, which counts only then.
    pub(crate) fn confirmation(&self) -> Option<Confirmation> {
        let AcquireRequest { name, kind, needs, .. } = self.request;
        needs.map(|needs| kind.confirmation(name, needs))
    }

    /// The replicas do not have the grant, so it is given back: at once, or by the background.
    pub(super) fn granted_in_one_place(&mut self, answer: &Answer<Attempt>, error: Error) -> Error {
        if answer.unfenceable {
            self.in_doubt.get_or_insert_default().unfenceable = true;
        }
        // Several locks are given back side by side.
        if self.tells {
            let drop_timeout = self.request.engine.config.drop_timeout;
            self.withdraw(self.end().map_or(drop_timeout, |end| drop_timeout.min(Instant::now().until(end))));
            // An observer may take the lock.
            self.waiting.leave_queue();
            self.request.engine.exclude_older_holds(self.request, answer.sent);
        } else {
            self.in_doubt.get_or_insert_default();
        }
        self.asked = false;
        error
    }

    /// The end of a call with a limit, by its bounds and those of the wait for replicas.
    fn end(&self) -> Option<Instant> {
        let Deadline::At(at) = self.waiting.deadline else { return None };
        let copied = self.request.needs.map_or(Duration::ZERO, |needs| needs.bound());
        Some(at.after(self.request.engine.config.command_timeout).after(copied))
    }
}
