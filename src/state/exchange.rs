//! One request until its reply: when to send, fence, rest or give up; `exactly_once` does the work.
//!
//! | after                          | comes                                                              |
//! |--------------------------------|--------------------------------------------------------------------|
//! | an attempt without a reply     | fencing the copy, then a repetition within the caller's bound      |
//! | a fence without a reply        | a rest that grows, then the fence again                            |
//! | transient refusal, not reached | a rest that grows, then another attempt while the caller may retry |
//! | the word of another server     | an attempt there at once, and after five of them a rest            |
//! | a script that was cut short    | a rest that grows, then a repetition: the script has done a part   |
//! | a copy at a former server      | a repetition at once; nobody waits for the fence of that copy      |
//! | any other refusal              | the end                                                            |

use std::time::Duration;

use crate::error::{Error, ErrorKind, Refusal};
use crate::system::random;
use crate::time::{Instant, up_to};
use crate::transport::{Fault, Fitness, Identity, Limits};

/// The time limits of a request, and whether the request is repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Before this moment an unreachable or refusing server is tried again.
    pub(crate) retry_until: Instant,
    /// The deadline of the call.
    pub(crate) end: Instant,
    /// Whether the request may be repeated after a missing reply.
    pub(crate) repeat: bool,
    /// Whether an unanswered copy must be fenced; a query changes nothing and needs no fence.
    pub(crate) fences: bool,
    /// The time limit of one request. An attempt that may be repeated gets a part of this time.
    pub(crate) command_timeout: Duration,
    /// How the request is treated where most of several servers must agree.
    pub(crate) fitness: Fitness,
}

impl Bounds {
    /// Limits the call to `limit`, repetitions included.
    pub(crate) fn within(now: Instant, limit: Duration, command_timeout: Duration) -> Self {
        let end = now.after(limit);
        let command_timeout = command_timeout.min(limit);
        Self { retry_until: end, end, repeat: true, fences: true, command_timeout, fitness: Fitness::default() }
    }

    /// Limits a request that is sent once to `limit`.
    pub(crate) fn once(now: Instant, limit: Duration) -> Self {
        Self { retry_until: now, repeat: false, ..Self::within(now, limit, limit) }
    }

    /// These bounds, ended by `limit`, if there is one.
    pub(crate) fn ended_by(self, limit: Option<Instant>) -> Self {
        let limit = limit.unwrap_or(self.end);
        Self { retry_until: self.retry_until.min(limit), end: self.end.min(limit), ..self }
    }

    /// The time limits of an attempt at `now`.
    pub(crate) fn limits(self, now: Instant) -> Limits {
        let end = now.after(self.command_timeout).min(self.end);
        if self.repeat { Limits::answered_within(end, self.part(now)) } else { Limits::by(end) }
    }

    /// The time of one attempt at `now`: a third to a half of the bound. The rest suffices to fence a silent connection
    /// and to repeat the request. The clock is chance enough that the clients of a server that hung do not retry at the
    /// same moment.
    fn part(self, now: Instant) -> Duration {
        let parts = 2_000 + u32::try_from(now.scattered() % 1_000).unwrap_or(0);
        (self.command_timeout.saturating_mul(1_000) / parts).max(SHORTEST_ATTEMPT)
    }
}

/// A request that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// The copies in doubt: the server may have run them, or may still run them.
    pub(crate) in_doubt: Option<InDoubt>,
}

/// Unanswered requests that are not fenced.
#[derive(Clone, Debug, Default)]
pub(crate) struct InDoubt {
    pub(crate) fenceable: Vec<Identity>,
    /// Some copies cannot be fenced, because the user has no right to kill connections.
    pub(crate) unfenceable: bool,
}

impl InDoubt {
    pub(crate) fn is_empty(&self) -> bool {
        self.fenceable.is_empty() && !self.unfenceable
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.unfenceable |= other.unfenceable;
        self.fenceable.extend(other.fenceable);
    }
}

/// The next step.
pub(crate) enum Next {
    /// Fence this copy.
    Fence(Identity, Limits),
    /// Send the request.
    Send(Limits),
    /// Rest until this moment, or until the bell rings.
    Rest(Instant),
    /// The request failed: [`Exchange::give_up`] tells why.
    Over,
}

/// One request and its history.
pub(crate) struct Exchange {
    bounds: Bounds,
    in_doubt: InDoubt,
    /// The error of the last unanswered copy; set from the first unanswered copy on.
    doubt: Option<Error>,
    /// The number of redirections since the last rest.
    hops: u32,
    /// The longest next rest.
    pause: Duration,
    /// The duration of the last attempt.
    took: Duration,
    /// Copies sent before this moment run no more after the reply, unless a copy could not be fenced.
    pub(crate) clear_since: Instant,
    state: State,
}

enum State {
    /// The next step is due at once.
    Ready,
    /// The request is not repeated, but its copy is fenced once, so that the server cannot run the copy later.
    LastFence(Error),
    /// A rest, and the error of the call if no time is left for another attempt.
    Resting(Instant, Error),
    Over(Error),
}

impl Exchange {
    pub(crate) fn new(in_doubt: InDoubt, bounds: Bounds, now: Instant) -> Self {
        Self {
            bounds,
            in_doubt,
            doubt: None,
            hops: 0,
            pause: FIRST_PAUSE,
            took: Duration::ZERO,
            clear_since: now,
            state: State::Ready,
        }
    }

    pub(crate) fn next(&self, now: Instant) -> Next {
        match &self.state {
            // The call sends no request after its end.
            State::Ready if now >= self.bounds.end => return Next::Over,
            State::Ready => {}
            // After the end no time is left for the fence, and the copies stay in doubt.
            State::LastFence(_) if !self.in_doubt.fenceable.is_empty() && now < self.bounds.end => {}
            State::Resting(until, _) => return Next::Rest(*until),
            State::LastFence(_) | State::Over(_) => return Next::Over,
        }
        let limits = self.bounds.limits(now);
        match self.in_doubt.fenceable.last() {
            Some(identity) => Next::Fence(identity.clone(), limits),
            None => Next::Send(limits),
        }
    }

    /// Whether an earlier copy was unanswered, so that a reply now may be for the second run.
    pub(crate) fn is_repeated(&self) -> bool {
        self.doubt.is_some()
    }

    /// Whether an earlier copy could not be fenced and may still run.
    pub(crate) fn is_unfenceable(&self) -> bool {
        self.in_doubt.unfenceable
    }

    /// Takes the outcome of a fence: whether the server killed the connection, or why no reply arrived.
    pub(crate) fn fenced(&mut self, now: Instant, outcome: Result<bool, Fault>) {
        if let (State::LastFence(error), Err(_)) = (&self.state, &outcome) {
            self.state = State::Over(error.clone());
            return;
        }
        match outcome {
            Ok(fenced) => {
                self.in_doubt.fenceable.pop();
                self.in_doubt.unfenceable |= !fenced;
                self.clear_since = now;
            }
            // The fence is repeated; the request itself was not sent this time.
            Err(Fault::Unanswered(_, error)) => {
                self.took = Duration::ZERO;
                // Many clients may wait for one silent server, and must not retry at the same moment.
                self.pause = self.pause.max(self.bounds.part(now).min(LONGEST_PAUSE));
                self.rest_or_end(now, Some(self.bounds.end), error);
            }
            Err(fault) => self.failed(now, now, fault, false),
        }
    }

    /// Takes the failure of the request that was sent at `sent`. `interrupted` means that the caller wants no further
    /// attempt.
    pub(crate) fn failed(&mut self, sent: Instant, now: Instant, fault: Fault, interrupted: bool) {
        self.took = sent.until(now);
        match fault {
            Fault::Refused(refusal) => {
                let limit = refusal.is_transient().then_some(self.bounds.retry_until);
                self.rest_or_end(now, limit, Error::refused(refusal));
            }
            Fault::NotSent(error) => {
                let limit = error.is_transient().then_some(self.bounds.retry_until);
                self.rest_or_end(now, limit, error);
            }
            Fault::Unanswered(identity, error) => self.no_answer(now, identity, error, interrupted),
        }
    }

    /// Takes the word of the server that another server runs the request, which had no effect.
    pub(crate) fn redirected(&mut self, sent: Instant, now: Instant, refusal: Refusal) {
        self.hops += 1;
        if self.hops > MOST_HOPS {
            self.postponed(sent, now, refusal);
        }
    }

    /// Takes the word of the server that no server runs the request now. Where the script came to an end at a key that
    /// another server stores, the writes before that key stand, as if the answer had been lost; but nothing of the
    /// request runs any more.
    pub(crate) fn postponed(&mut self, sent: Instant, now: Instant, refusal: Refusal) {
        self.took = sent.until(now);
        let (was_cut_short, error) = (refusal.is_of_foreign_key(), Error::refused(refusal));
        if was_cut_short {
            self.doubt = Some(error.clone());
        }
        let may_repeat = self.bounds.repeat || !was_cut_short;
        self.rest_or_end(now, may_repeat.then_some(self.bounds.retry_until), error);
    }

    /// Another server stores the key by now. The copy that was to be fenced is left to the background: the former
    /// server may be dead, and nobody is to wait for its answer.
    pub(crate) fn left_behind(&mut self) -> Option<Identity> {
        let copy = self.in_doubt.fenceable.pop();
        self.in_doubt.unfenceable |= copy.is_some();
        copy
    }

    fn no_answer(&mut self, now: Instant, identity: Option<Box<Identity>>, error: Error, interrupted: bool) {
        if self.bounds.fences {
            match identity {
                Some(identity) => self.in_doubt.fenceable.push(*identity),
                None => self.in_doubt.unfenceable = true,
            }
        }
        let first = self.doubt.replace(error.clone()).is_none();
        if !self.bounds.repeat {
            self.state = State::LastFence(error);
            return;
        }
        // The first copy in doubt is fenced even after `retry_until`, but not after the end.
        if first && now < self.bounds.end && !interrupted {
            return;
        }
        self.rest_or_end(now, Some(self.bounds.end), error);
    }

    /// Rests before the next attempt, or ends where `limit` leaves no time for another attempt.
    fn rest_or_end(&mut self, now: Instant, limit: Option<Instant>, error: Error) {
        self.state = match limit.filter(|&limit| now < limit) {
            Some(limit) => State::Resting(now.after(self.next_pause()).min(limit), error),
            None => State::Over(error),
        };
    }

    /// A pause of half to all of the longest one, which doubles: many clients do not retry at the same moment.
    fn next_pause(&mut self) -> Duration {
        let half = self.pause / 2;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        half + up_to(half, random())
    }

    /// Ends a rest. With an `interruption` the caller wants no further attempt.
    pub(crate) fn rested(&mut self, now: Instant, interruption: Option<Error>) {
        let State::Resting(_, error) = std::mem::replace(&mut self.state, State::Ready) else { return };
        self.hops = 0;
        if let Some(interruption) = interruption {
            self.state = State::Over(interruption);
        } else if now.after(self.took.max(SHORTEST_ATTEMPT)) >= self.bounds.end {
            // Too little time is left for another attempt, so this error is the result.
            self.state = State::Over(error);
        }
    }

    /// Builds the failure for the caller.
    pub(crate) fn give_up(self) -> Failed {
        let repeated = self.is_repeated();
        let error = match self.state {
            State::LastFence(error) | State::Resting(_, error) | State::Over(error) => error,
            State::Ready => self.doubt.unwrap_or_else(no_time),
        };
        let in_doubt = (repeated || !self.in_doubt.is_empty()).then_some(self.in_doubt);
        let is_by_choice = matches!(error.kind(), ErrorKind::Closed | ErrorKind::Cancelled);
        Failed { error: if repeated && !is_by_choice { error.in_doubt() } else { error }, in_doubt }
    }
}

/// The error of a call whose time was over before any copy was sent.
fn no_time() -> Error {
    Error::new(ErrorKind::Connection, "no time was left to send the request")
}

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The map of a cluster is wrong for a moment at most.
const MOST_HOPS: u32 = 5;
/// With less time left, the reply to another attempt would probably arrive too late.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
