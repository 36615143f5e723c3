//! Exactly once: sends a request, and fences and repeats it when no answer came.

use std::time::Duration;

use super::backoff::Backoff;
use super::bell::Bell;
use crate::conn::{Fault, Identity, Server};
use crate::error::{Error, ErrorKind, Loss, Refusal};
use crate::script::{Call, Kept, Stop};
use crate::time::Instant;

/// How long a request may take, and what ends it early.
pub(crate) struct Bounds<'a> {
    /// While this has not come, an unreachable or unwilling server is tried again.
    pub(crate) retry_until: Instant,
    /// When the call is over in any case.
    pub(crate) end: Instant,
    /// Whether the request may be sent again when no answer came.
    pub(crate) repeat: bool,
    /// How long one request may take.
    pub(crate) command_timeout: Duration,
    /// Rung when [`Bounds::interrupted`] may have changed.
    pub(crate) bell: Option<&'a Bell>,
    /// Why the caller does not want to try again, if so.
    pub(crate) interrupted: &'a dyn Fn() -> Option<Error>,
}

/// An answer, and what its history means for it.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    /// When the request that was answered was sent: leases count from here.
    pub(crate) sent: Instant,
    /// An earlier copy had no answer, so this may be the second time it was carried out.
    pub(crate) repeated: bool,
    /// An earlier copy could not be fenced and may still arrive.
    pub(crate) haunted: bool,
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// A copy may have been carried out, or may be yet.
    pub(crate) loose: Option<Loose>,
}

/// Requests without an answer that were not fenced.
#[derive(Debug, Default)]
pub(crate) struct Loose {
    pub(crate) open: Vec<Identity>,
    /// Some cannot be fenced: the server does not let us.
    pub(crate) haunted: bool,
}

impl<'a> Bounds<'a> {
    /// At most `limit` for everything, retries included.
    pub(crate) fn within(limit: Duration, command_timeout: Duration) -> Bounds<'a> {
        let end = Instant::now().after(limit);
        Bounds { retry_until: end, end, repeat: true, command_timeout, bell: None, interrupted: &|| None }
    }

    fn pause(&self, pause: Duration, limit: Instant) -> Option<Error> {
        let until = Instant::now().after(pause).min(limit);
        match self.bell {
            Some(bell) => bell.wait(until),
            None => std::thread::sleep(Instant::now().until(until)),
        }
        (self.interrupted)()
    }
}

/// Sends `call` to `server` until it is answered or the bounds are reached.
///
/// Before a repetition every unanswered copy is fenced, so at most one copy is carried out after
/// its own time. Calls are written so that carrying one out twice in a row changes nothing.
pub(crate) fn send<T>(server: &Server, call: &Call<T>, bounds: &Bounds<'_>) -> Result<Answer<T>, Failed> {
    send_after(Loose::default(), server, call, bounds)
}

/// The same, after fencing what earlier requests left loose.
pub(crate) fn send_after<T>(
    loose: Loose,
    server: &Server,
    call: &Call<T>,
    bounds: &Bounds<'_>,
) -> Result<Answer<T>, Failed> {
    Exchange { server, bounds, loose, unanswered: false, backoff: Backoff::new(), took: Duration::ZERO }.run(call)
}

/// A key of another type under the name of a hold: somebody overwrote the lock.
pub(crate) fn taken_if_overwritten<T>(failed: Failed) -> Result<Answer<Kept<T>>, Failed> {
    if failed.error.redis_word() != Some("WRONGTYPE") {
        return Err(failed);
    }
    let haunted = failed.loose.is_some_and(|loose| loose.haunted);
    Ok(Answer { value: Kept::Lost(Loss::Taken), sent: Instant::now(), repeated: false, haunted })
}

/// Tries once to fence what is loose.
pub(crate) fn fence(server: &Server, loose: &mut Loose, deadline: Instant) -> Result<(), Fault> {
    while let Some(identity) = loose.open.last() {
        if !server.fence(identity, deadline)? {
            loose.haunted = true;
        }
        loose.open.pop();
    }
    Ok(())
}

/// Why several round trips came to an end, as a fault of a request.
pub(super) fn stopped(stop: Stop) -> Fault {
    match stop {
        Stop::Refused(refusal) => Fault::Refused(refusal),
        Stop::Unsupported(why) => Fault::NotSent(Error::new(ErrorKind::Unsupported, why)),
    }
}

struct Exchange<'a> {
    server: &'a Server,
    bounds: &'a Bounds<'a>,
    loose: Loose,
    unanswered: bool,
    backoff: Backoff,
    /// How long the last attempt took.
    took: Duration,
}

impl Exchange<'_> {
    fn run<T>(mut self, call: &Call<T>) -> Result<Answer<T>, Failed> {
        let mut request = call.packed();
        let mut loading = false;
        loop {
            let deadline = Instant::now().after(self.bounds.command_timeout).min(self.bounds.end);
            let fenced = fence(self.server, &mut self.loose, deadline);
            let sent = Instant::now();
            let answer = match fenced {
                // The fence is sent again; the request itself was not sent this time.
                Err(Fault::Unanswered(_, error)) => {
                    self.took = Duration::ZERO;
                    self.rest_or_fail(Some(self.bounds.end), error)?;
                    continue;
                }
                Err(fault) => Err(fault),
                Ok(()) => match call.round_trips() {
                    None => self.server.request(&request, deadline, |reply| call.read(reply)),
                    Some(talk) => self.server.converse(deadline, |say| Some(talk.run(say)?.map_err(stopped))),
                },
            };
            let fault = match answer {
                Ok(value) => return Ok(Answer { value, sent, repeated: self.unanswered, haunted: self.loose.haunted }),
                Err(fault) => fault,
            };
            self.took = sent.until(Instant::now());
            match fault {
                Fault::Refused(refusal) if refusal.word() == "NOSCRIPT" && !loading => {
                    if let Some(whole) = call.packed_with_source() {
                        (request, loading) = (whole, true);
                        continue;
                    }
                    return Err(self.failed(Error::refused(refusal)));
                }
                Fault::Refused(refusal) => self.refused(refusal)?,
                Fault::NotSent(error) => self.not_sent(error)?,
                Fault::Unanswered(identity, error) => self.unanswered(identity, error)?,
            }
        }
    }

    fn refused(&mut self, refusal: Refusal) -> Result<(), Failed> {
        let limit = if refusal.is_transient() { Some(self.bounds.retry_until) } else { None };
        self.rest_or_fail(limit, Error::refused(refusal))
    }

    fn not_sent(&mut self, error: Error) -> Result<(), Failed> {
        let limit = if error.kind() == ErrorKind::Connection { Some(self.bounds.retry_until) } else { None };
        self.rest_or_fail(limit, error)
    }

    fn unanswered(&mut self, identity: Option<Identity>, error: Error) -> Result<(), Failed> {
        match identity {
            Some(identity) => self.loose.open.push(identity),
            None => self.loose.haunted = true,
        }
        if !self.bounds.repeat {
            // At least it must not be carried out later.
            self.unanswered = true;
            let deadline = Instant::now().after(self.bounds.command_timeout).min(self.bounds.end);
            let _ = fence(self.server, &mut self.loose, deadline);
            return Err(self.failed(error));
        }
        // Settling what is in doubt comes before the caller's own bound, not before the last one.
        let first = !std::mem::replace(&mut self.unanswered, true);
        if first && Instant::now() < self.bounds.end && (self.bounds.interrupted)().is_none() {
            return Ok(());
        }
        self.rest_or_fail(Some(self.bounds.end), error)
    }

    /// Waits a little before the next attempt, or gives up when there is none before `limit`.
    fn rest_or_fail(&mut self, limit: Option<Instant>, error: Error) -> Result<(), Failed> {
        let Some(limit) = limit.filter(|&limit| Instant::now() < limit) else {
            return Err(self.failed(error));
        };
        match self.bounds.pause(self.backoff.next(), limit) {
            Some(interruption) => Err(self.failed(interruption)),
            // Too little time is left for one more attempt: this answer is the one that counts.
            None if Instant::now().after(self.took.max(SHORTEST_ATTEMPT)) >= self.bounds.end => Err(self.failed(error)),
            None => Ok(()),
        }
    }

    fn failed(&mut self, error: Error) -> Failed {
        let loose = std::mem::take(&mut self.loose);
        let loose = (self.unanswered || loose.haunted || !loose.open.is_empty()).then_some(loose);
        if !self.unanswered {
            return Failed { error, loose };
        }
        let error = match error.kind() {
            ErrorKind::Closed | ErrorKind::Cancelled => error,
            _ => Error::with_source(
                ErrorKind::Unknown,
                format!("a request was sent and never answered, so it may have had its effect ({error})"),
                error,
            ),
        };
        Failed { error, loose }
    }
}

/// With less time left than this, an answer to one more attempt would likely come too late.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);
