//! Numbered requests: each has its effect once, also where an unanswered copy cannot be fenced.

use std::time::Duration;

use crate::engine::caller::Caller;
use crate::engine::sender::Sender;
use crate::engine::sender::exactly_once::SendResult;
use crate::error::{Error, Result};
use crate::name::LockName;
use crate::script::once::{self, Once};
use crate::script::query;
use crate::script::{Call, NotALock};
use crate::state::exchange::Bounds;
use crate::state::slots::TakenSlot;
use crate::time::Instant;

type GivenUp<'a> = dyn Fn(&Once, &Once) -> Call<()> + 'a;

/// A request whose effect must come once.
pub(crate) struct Numbered<'a, T> {
    pub(crate) name: &'a LockName,
    /// Builds the request with its number.
    pub(crate) call: &'a dyn Fn(&Once) -> Call<T>,
    /// Builds what the background sends after the request was given up: from the request's number, and the next number
    /// of its slot. `None` closes the slot, so that the request has no effect later.
    pub(crate) given_up: Option<&'a GivenUp<'a>>,
    /// Whether an answer says that the request had no effect. A late copy may still have one, and is then given up.
    pub(crate) took_nothing: fn(&T) -> bool,
    /// Whether the background goes on after any failure, and not only after one in doubt.
    pub(crate) persists: bool,
}

impl<'a, T> Numbered<'a, T> {
    pub(crate) fn new(name: &'a LockName, call: &'a dyn Fn(&Once) -> Call<T>) -> Self {
        Self { name, call, given_up: None, took_nothing: |_| false, persists: false }
    }
}

impl Sender {
    /// Sends a numbered request until a reply arrives or the bounds are reached. A request that is given up is ended
    /// in the background.
    pub(crate) fn once<T: Send>(
        &self,
        request: &Numbered<'_, T>,
        bounds: Bounds,
        caller: Option<&Caller<'_>>,
    ) -> Result<T> {
        let node = self.node(request.name);
        let mut slots = self.numbers.lock();
        let (slot, number) = (slots.take(request.name), slots.number());
        drop(slots);
        let once = Once { key: request.name.once(&self.client, slot.1), number };
        let (began, outcome) = self.send_while_remembered(&(request.call)(&once), bounds, caller);
        self.after_request(node);
        let in_doubt = outcome.as_ref().map_or_else(|failed| failed.in_doubt.is_some(), |answer| answer.unfenceable);
        if in_doubt || outcome.is_err() && request.persists {
            let next = Once { number: self.numbers.lock().number(), ..once.clone() };
            // A late copy finds the number of a request that had an effect, but not of one that had none.
            let had_effect = outcome.as_ref().is_ok_and(|answer| !(request.took_nothing)(&answer.value));
            let given_up = request.given_up.filter(|_| !had_effect);
            let call = given_up.map_or_else(|| once::close(request.name, &next), |given_up| given_up(&once, &next));
            self.end(slot, call, in_doubt.then(|| began.after(LONGEST_ENDING)));
        } else {
            self.numbers.lock().free(&slot);
        }
        outcome.map(|answer| answer.value).map_err(|failed| self.of_counter(request.name, failed.error))
    }

    /// Sends a request, but repeats no copy in doubt for longer than scripts remember the first one. Also returns a
    /// time before the first copy.
    fn send_while_remembered<T: Send>(
        &self,
        call: &Call<T>,
        bounds: Bounds,
        caller: Option<&Caller<'_>>,
    ) -> (Instant, SendResult<T>) {
        loop {
            let began = Instant::now();
            let limit = began.after(LONGEST_REPETITION);
            let outcome = self.send(call, bounds.ended_by(Some(limit)), caller);
            let Err(failed) = &outcome else { return (began, outcome) };
            let may_go_on = caller.is_none_or(|caller| caller.check().is_ok());
            // What never reached a server needs no memory.
            let never_sent = failed.in_doubt.is_none() && failed.error.is_transient();
            if !(never_sent && may_go_on && Instant::now() < bounds.retry_until && limit < bounds.retry_until) {
                return (began, outcome);
            }
        }
    }

    /// Sends a numbered request for a caller that waits for nothing else.
    pub(crate) fn once_within<T: Send>(&self, request: &Numbered<'_, T>) -> Result<T> {
        let limit = self.config.command_timeout;
        self.once(request, Bounds::within(Instant::now(), limit, limit), Some(&Caller::new(&self.life, None, false)))
    }

    /// Reads a counter; 0 without a key.
    pub(crate) fn count(&self, name: &LockName) -> Result<i64> {
        let count = self.ask(&query::count(name)).map_err(|error| self.of_counter(name, error))?;
        count.map_err(|NotALock| self.no_counter(name))
    }

    pub(crate) fn of_counter(&self, name: &LockName, error: Error) -> Error {
        match error.redis_word() {
            Some("WRONGTYPE") => self.no_counter(name),
            Some("OVERFLOW") => query::too_many_free(),
            _ => error,
        }
    }

    pub(crate) fn no_counter(&self, name: &LockName) -> Error {
        self.has_other(name, "no counter under this name, but a lock or data")
    }

    /// Ends a request in the background. Scripts remember a request in doubt until `until`.
    fn end(&self, slot: TakenSlot, call: Call<()>, mut until: Option<Instant>) {
        self.until_done(slot.0.clone(), Instant::now(), PAUSES, move |sender| {
            let (limit, now) = (sender.config.command_timeout, Instant::now());
            if until.is_none_or(|until| now < until)
                && let Err(failed) = sender.send(&call, Bounds::within(now, limit, limit), None)
            {
                if failed.in_doubt.is_some() {
                    until.get_or_insert(now.after(LONGEST_ENDING));
                }
                return false;
            }
            sender.numbers.lock().free(&slot);
            true
        });
    }
}

/// The margin covers requests that were sent just before.
const LONGEST_ENDING: Duration = once::MEMORY.saturating_sub(Duration::from_secs(60));
/// The rest of the memory is for the background.
const LONGEST_REPETITION: Duration = Duration::from_secs(5 * 60);
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_copy_is_sent_after_its_number_is_forgotten() {
        let now = Instant::from_millis(1_000_000);
        let day = Duration::from_secs(86_400);
        let bounds = Bounds::within(now, day, day).ended_by(Some(now.after(LONGEST_REPETITION)));
        for last in [bounds.retry_until, bounds.end] {
            assert!(last < now.after(once::MEMORY), "a copy after the memory would take permits again");
        }
    }
}
