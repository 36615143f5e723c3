//! One request until it is answered: when to send, fence, rest or give up; decides, and leaves the doing to `wire`.
//!
//! | after                          | comes                                                              |
//! |--------------------------------|--------------------------------------------------------------------|
//! | an attempt without an answer   | fencing its copy, then a repetition within the caller's bound      |
//! | a fence without an answer      | a rest that grows, then the fence again                            |
//! | a passing refusal, not reached | a rest that grows, then another attempt while the caller may retry |
//! | any other refusal              | the end                                                            |

use std::time::Duration;

use super::backoff::{RetryPause, share};
use crate::error::{Error, ErrorKind, Refusal};
use crate::time::Instant;
use crate::transport::{Fault, Identity, Limits};

/// How long a request may take, and whether it is repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// While this has not come, an unreachable or unwilling server is tried again.
    pub(crate) retry_until: Instant,
    /// When the call is over in any case.
    pub(crate) end: Instant,
    /// Whether the request may be sent again when no answer came.
    pub(crate) repeat: bool,
    /// Whether an unanswered copy has to be fenced; a question changes nothing and needs no fence.
    pub(crate) fences: bool,
    /// How long one request may take. An attempt that may be repeated gets a part of it.
    pub(crate) command_timeout: Duration,
}

impl Bounds {
    /// At most `limit` for everything, repetitions included.
    pub(crate) fn within(now: Instant, limit: Duration, command_timeout: Duration) -> Self {
        let end = now.after(limit);
        let command_timeout = command_timeout.min(limit);
        Self { retry_until: end, end, repeat: true, fences: true, command_timeout }
    }
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

impl Loose {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && !self.haunted
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.haunted |= other.haunted;
        self.open.extend(other.open);
    }
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Fence this copy.
    Fence(Identity, Limits),
    /// Send the request, with its script in it where `whole`.
    Send { whole: bool, limits: Limits },
    /// Rest until then, or until the bell rings.
    Rest(Instant),
    /// It failed.
    Over(Error),
}

/// One request and its history.
pub(crate) struct Exchange {
    bounds: Bounds,
    /// Whether the request can carry its script.
    has_source: bool,
    loose: Loose,
    /// Why the last copy without an answer has none; set from the first one on.
    doubt: Option<Error>,
    whole: bool,
    pause: RetryPause,
    /// How long the last attempt took.
    took: Duration,
    /// When an answer came, or did not come, what was under way since this moment is known to be over.
    clear_since: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Something is to be done at once.
    Ready,
    /// The request is not repeated; a copy is still fenced once, so that it is not carried out later.
    LastFence(Error),
    /// A rest, and the error that counts where there is no time for one more attempt.
    Resting(Instant, Error),
    Over(Error),
}

impl Exchange {
    pub(crate) fn new(loose: Loose, has_source: bool, bounds: Bounds, now: Instant) -> Self {
        Self {
            bounds,
            has_source,
            loose,
            doubt: None,
            whole: false,
            pause: RetryPause::new(),
            took: Duration::ZERO,
            clear_since: now,
            state: State::Ready,
        }
    }

    pub(crate) fn next(&self, now: Instant) -> Next {
        match &self.state {
            // Nothing is sent after the end, however the time was spent.
            State::Ready if now >= self.bounds.end => return Next::Over(self.doubt.clone().unwrap_or_else(no_time)),
            State::Ready => {}
            State::LastFence(_) if !self.loose.open.is_empty() => {}
            State::Resting(until, _) => return Next::Rest(*until),
            State::LastFence(error) | State::Over(error) => return Next::Over(error.clone()),
        }
        let end = now.after(self.bounds.command_timeout).min(self.bounds.end);
        let limits = if self.bounds.repeat { Limits::answered_within(end, self.part()) } else { Limits::by(end) };
        match self.loose.open.last() {
            Some(identity) => Next::Fence(identity.clone(), limits),
            None => Next::Send { whole: self.whole, limits },
        }
    }

    /// An earlier copy had no answer, so an answer now may be the second time it was carried out.
    pub(crate) fn is_repeated(&self) -> bool {
        self.doubt.is_some()
    }

    /// An earlier copy could not be fenced and may still arrive.
    pub(crate) fn is_haunted(&self) -> bool {
        self.loose.haunted
    }

    /// No copy sent before this moment is carried out after it, unless one is haunted.
    pub(crate) fn clear_since(&self) -> Instant {
        self.clear_since
    }

    /// The fence was answered: whether the server let us, or why there is no answer.
    pub(crate) fn fenced(&mut self, now: Instant, outcome: Result<bool, Fault>) {
        if let (State::LastFence(error), Err(_)) = (&self.state, &outcome) {
            self.state = State::Over(error.clone());
            return;
        }
        match outcome {
            Ok(fenced) => {
                self.loose.open.pop();
                self.loose.haunted |= !fenced;
                self.clear_since = now;
            }
            // The fence is sent again; the request itself was not sent this time.
            Err(Fault::Unanswered(_, error)) => {
                self.took = Duration::ZERO;
                // Many clients wait for one mute server: they must not come back together.
                self.pause.at_least(self.part());
                self.rest_or_end(now, Some(self.bounds.end), error);
            }
            Err(fault) => self.failed(now, now, fault, false),
        }
    }

    /// The request that was sent at `sent` has no answer that can be used. `interrupted` means that its caller does not
    /// want to try again.
    pub(crate) fn failed(&mut self, sent: Instant, now: Instant, fault: Fault, interrupted: bool) {
        self.took = sent.until(now);
        match fault {
            Fault::Refused(refusal) if refusal.word() == "NOSCRIPT" && !self.whole && self.has_source => {
                self.whole = true;
            }
            Fault::Refused(refusal) => self.refused(now, refusal),
            Fault::NotSent(error) => {
                let limit = (error.kind() == ErrorKind::Connection).then_some(self.bounds.retry_until);
                self.rest_or_end(now, limit, error);
            }
            Fault::Unanswered(identity, error) => self.no_answer(now, identity, error, interrupted),
        }
    }

    fn refused(&mut self, now: Instant, refusal: Refusal) {
        let limit = refusal.is_transient().then_some(self.bounds.retry_until);
        self.rest_or_end(now, limit, Error::refused(refusal));
    }

    fn no_answer(&mut self, now: Instant, identity: Option<Identity>, error: Error, interrupted: bool) {
        if self.bounds.fences {
            match identity {
                Some(identity) => self.loose.open.push(identity),
                None => self.loose.haunted = true,
            }
        }
        let first = self.doubt.replace(error.clone()).is_none();
        if !self.bounds.repeat {
            self.state = State::LastFence(error);
            return;
        }
        // Settling what is in doubt comes before the caller's own bound, not before the last one.
        if first && now < self.bounds.end && !interrupted {
            return;
        }
        self.rest_or_end(now, Some(self.bounds.end), error);
    }

    /// Rests a little before the next attempt, or ends where there is none before `limit`.
    fn rest_or_end(&mut self, now: Instant, limit: Option<Instant>, error: Error) {
        self.state = match limit.filter(|&limit| now < limit) {
            Some(limit) => State::Resting(now.after(self.pause.next()).min(limit), error),
            None => State::Over(error),
        };
    }

    /// The rest is over; with an `interruption` the caller does not want to try again.
    pub(crate) fn rested(&mut self, now: Instant, interruption: Option<Error>) {
        let State::Resting(_, error) = std::mem::replace(&mut self.state, State::Ready) else { return };
        if let Some(interruption) = interruption {
            self.state = State::Over(interruption);
        } else if now.after(self.took.max(SHORTEST_ATTEMPT)) >= self.bounds.end {
            // Too little time is left for one more attempt: this answer is the one that counts.
            self.state = State::Over(error);
        }
    }

    /// What a caller gets who gets no answer.
    pub(crate) fn give_up(self, error: Error) -> Failed {
        let in_doubt = self.is_repeated();
        let loose = (in_doubt || !self.loose.is_empty()).then_some(self.loose);
        if !in_doubt {
            return Failed { error, loose };
        }
        let error = match error.kind() {
            ErrorKind::Closed | ErrorKind::Cancelled => error,
            _ => error.in_doubt(),
        };
        Failed { error, loose }
    }

    /// The part of the bound that one attempt gets: a mute connection is then fenced, and the repetition
    /// answered, within the bound. It is another part each time, so that the clients of a server that
    /// stood still do not all come back at one moment.
    fn part(&self) -> Duration {
        share(self.bounds.command_timeout / 3, self.bounds.command_timeout / 2).max(SHORTEST_ATTEMPT)
    }
}

/// The time was up before any copy was sent.
fn no_time() -> Error {
    Error::new(ErrorKind::Connection, "no time was left to send the request")
}

/// With less time left than this, an answer to one more attempt would likely come too late.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
