//! Finds the place of a server that moves at each dial, and ends the connections to a place that the server has left.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::{Dialer, Dialled};
use crate::conn::address::Endpoint;
#[cfg(feature = "credentials")]
use crate::conn::credentials::is_of_provider;
use crate::conn::introduction::Purpose;
use crate::conn::trouble::{closed, no_thread};
use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, Mutex};
use crate::system::thread;
use crate::time::Instant;
use crate::transport::{Fault, Identity};

/// Tells where a server is, and dials it there. A thread asks for the place all the time, so that a move is noticed
/// without a dial.
pub(in crate::conn) struct Locator(Arc<Shared>);

/// The way to find the place of a server that moves.
pub(in crate::conn) trait MasterFinder: Send + Sync {
    fn look_up(&self) -> Result<MasterAddress, Error>;

    /// Ends the questions under way.
    fn close(&self);
}

/// The answer of the finder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::conn) struct MasterAddress {
    pub(in crate::conn) endpoint: Endpoint,
    /// Whether a move is not expected.
    pub(in crate::conn) is_calm: bool,
    /// A time before the questions were sent whose answers name the place.
    pub(in crate::conn) asked: Instant,
}

/// The server at one place, until it moves.
#[derive(Clone)]
pub(in crate::conn) struct Stay {
    number: u64,
    dialer: Arc<Dialer>,
}

/// Makes connections to the server at one place.
type DialerTo = dyn Fn(&Endpoint) -> Dialer + Send + Sync;

struct Shared {
    finder: Box<dyn MasterFinder>,
    dialer_to: Box<DialerTo>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stay: Option<Stay>,
    /// A time before the questions whose answers named the place last.
    confirmed: Option<Instant>,
    /// The error of the last look-up.
    trouble: Option<Error>,
    /// Whether the finder expected a move at its last answer.
    is_uneasy: bool,
    /// A sign of a move was seen less than a while before this moment.
    hurries_until: Option<Instant>,
    has_thread: bool,
    closed: bool,
}

impl Locator {
    /// `dialer_to` makes connections to the server at one place.
    pub(in crate::conn) fn new(
        finder: impl MasterFinder + 'static,
        dialer_to: impl Fn(&Endpoint) -> Dialer + Send + Sync + 'static,
    ) -> Self {
        let (finder, dialer_to) = (Box::new(finder), Box::new(dialer_to));
        Self(Arc::new(Shared { finder, dialer_to, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Dials the server where it is.
    pub(in crate::conn) fn dial(&self, asks_start: bool, deadline: Instant) -> Dialled {
        self.reach(deadline, |stay| {
            if asks_start {
                stay.dialer.ask_start();
            }
            let dialled = stay.dialer.dial_for(Purpose::Locks, deadline);
            let mut connection = dialled.map_err(|fault| match fault {
                Fault::Refused(refusal) if refusal.is_of_replica() => Fault::Refused(refusal.advising(NOT_MASTER)),
                fault => fault,
            })?;
            if let Some(identity) = &mut connection.identity {
                identity.stay = stay.number;
            }
            Ok(connection)
        })
    }

    /// Calls `dial` with the place of the server, until it connects or `deadline` is over: a server that moves is
    /// reached as soon as the new place is known.
    fn reach<T>(&self, deadline: Instant, mut dial: impl FnMut(&Stay) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut last = None;
        loop {
            let stay = self.stay(deadline).map_err(|error| {
                let last = last.take().filter(|_| error.kind() != ErrorKind::Closed);
                last.unwrap_or(Fault::NotSent(error))
            })?;
            let fault = match dial(&stay) {
                // A place is closed as soon as the next one is known; of a closed client the next look tells.
                Err(Fault::NotSent(error)) if error.kind() == ErrorKind::Closed => continue,
                Err(fault) if is_of_the_place(&fault) => fault,
                dialled => return dialled,
            };
            self.suspect();
            let next = Instant::now().after(BETWEEN_DIALS);
            if next >= deadline {
                return Err(fault);
            }
            self.0.wait(|state, _| state.is_at(stay.number).then_some(next));
            last = Some(fault);
        }
    }

    /// Whether the server has moved since the connection of this identity was opened.
    pub(in crate::conn) fn has_moved_since(&self, identity: &Identity) -> bool {
        !self.0.state.lock().is_at(identity.stay)
    }

    /// Records a sign that the server may move, or may have moved: asks often for a while.
    pub(in crate::conn) fn suspect(&self) {
        self.0.state.lock().hurries_until = Some(Instant::now().after(HURRY));
        self.0.changed.notify_all();
    }

    pub(in crate::conn) fn close(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let stay = state.stay.clone();
        drop(state);
        self.0.changed.notify_all();
        self.0.finder.close();
        stay.inspect(|stay| stay.dialer.close());
    }

    /// Returns the place of the server as it was confirmed a moment ago, or as soon as it is known.
    fn stay(&self, deadline: Instant) -> Result<Stay, Error> {
        let mut state = self.0.state.lock();
        if !state.has_thread && !state.closed {
            let shared = Arc::clone(&self.0);
            let started = thread::Builder::new().name("lockson-locate".into()).spawn(move || shared.run());
            started.map_err(|error| no_thread("look up the place of redis", error))?;
            state.has_thread = true;
        }
        loop {
            let now = Instant::now();
            if state.closed {
                return Err(closed());
            }
            if let Some(stay) = state.current(now) {
                return Ok(stay.clone());
            }
            // Any other error needs a change by people.
            match &state.trouble {
                Some(error) if now >= deadline || !error.is_transient() => return Err(error.clone()),
                None if now >= deadline => {
                    return Err(Error::new(ErrorKind::Connection, "the place of redis was not told in time"));
                }
                _ => {}
            }
            state = self.0.changed.wait_for(state, now.nap_until(deadline));
        }
    }
}

impl Drop for Locator {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Asks for the place until the locator is closed.
    fn run(&self) {
        loop {
            let begun = Instant::now();
            let panicked = |_| Err(Error::new(ErrorKind::Connection, "the look-up of the place of redis panicked"));
            let seen = catch_unwind(AssertUnwindSafe(|| self.finder.look_up())).unwrap_or_else(panicked);
            let mut state = self.state.lock();
            let left = state.learn(begun, seen, &*self.dialer_to);
            drop(state);
            // A late reply of a former master counts for nothing.
            left.inspect(|stay| stay.dialer.close());
            self.changed.notify_all();
            if !self.wait(|state, now| Some(begun.after(if state.hurries(now) { HURRIED } else { CALM }))) {
                return;
            }
        }
    }

    /// Waits until the time that `until` tells, or no longer where it tells none. Returns `false` when the locator was
    /// closed.
    fn wait(&self, until: impl Fn(&State, Instant) -> Option<Instant>) -> bool {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            state = match until(&state, now) {
                _ if state.closed => return false,
                Some(until) if now < until => self.changed.wait_for(state, now.until(until)),
                _ => return true,
            };
        }
    }
}

impl State {
    /// Takes the answer to a look-up that began at `begun`. Returns the stay at a place that the server has left.
    fn learn(&mut self, begun: Instant, seen: Result<MasterAddress, Error>, dialer_to: &DialerTo) -> Option<Stay> {
        let is_worse = match &seen {
            Ok(seen) => !std::mem::replace(&mut self.is_uneasy, !seen.is_calm) && !seen.is_calm,
            Err(_) => self.trouble.is_none(),
        };
        if is_worse {
            self.hurries_until = self.hurries_until.max(Some(begun.after(HURRY)));
        }
        let MasterAddress { endpoint, asked, .. } = match seen {
            Ok(sighting) => sighting,
            Err(error) => {
                self.trouble = Some(error);
                return None;
            }
        };
        (self.trouble, self.confirmed) = (None, Some(asked));
        if self.stay.as_ref().is_some_and(|stay| stay.dialer.address.endpoint == endpoint) {
            return None;
        }
        let number = self.stay.as_ref().map_or(1, |stay| stay.number + 1);
        self.stay.replace(Stay { number, dialer: Arc::new(dialer_to(&endpoint)) })
    }

    /// The place, if it was confirmed lately.
    fn current(&self, now: Instant) -> Option<&Stay> {
        let limit = if self.hurries(now) { FRESH_IN_A_HURRY } else { FRESH };
        self.confirmed.filter(|confirmed| confirmed.after(limit) > now).and(self.stay.as_ref())
    }

    fn is_at(&self, stay: u64) -> bool {
        self.stay.as_ref().is_some_and(|current| current.number == stay)
    }

    /// Whether a move is expected.
    fn hurries(&self, now: Instant) -> bool {
        self.hurries_until.is_some_and(|until| now < until)
    }
}

/// Whether another place may help: the place is not reached, or has a replica.
fn is_of_the_place(fault: &Fault) -> bool {
    match fault {
        #[cfg(feature = "credentials")]
        Fault::NotSent(error) if is_of_provider(error) => false,
        Fault::NotSent(error) => error.kind() == ErrorKind::Connection,
        Fault::Refused(refusal) => refusal.is_of_replica(),
        Fault::Unanswered(..) => false,
    }
}

/// The advice for a replica at the place that was told for the master.
const NOT_MASTER: &str = "the sentinels or nodes of the URL call it the master: a fail-over is under way, or SENTINEL \
                          MONITOR names a replica";
/// The pauses between look-ups, while all is well and while a move is expected.
const CALM: Duration = Duration::from_secs(1);
const HURRIED: Duration = Duration::from_millis(100);
/// How long a sign of a move counts.
const HURRY: Duration = Duration::from_secs(10);
/// How long the answer to a question counts. Each answer must count for a while after the look-up, which may wait for
/// a silent sentinel for [`LONGEST_QUESTION`].
const FRESH: Duration = Duration::from_secs(2);
const FRESH_IN_A_HURRY: Duration = Duration::from_millis(750);
/// The longest time that a look-up may wait for answers, once the place was known.
pub(in crate::conn) const LONGEST_QUESTION: Duration = Duration::from_millis(500);
/// A machine that is gone is waited for during this time, because the server may have another place by then.
pub(in crate::conn) const LONGEST_SILENCE: Duration = Duration::from_secs(1);
const BETWEEN_DIALS: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests;
