//! Events as spans and events of the crate `tracing`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::tracing::field::Empty;
use ::tracing::{Level, Span, debug_span, event};

use lockson::{
    Error, ErrorKind, HoldEnded, LockAbandoned, LockAcquired, LockKind, LockLost, LockReleased, LocksRenewed, Observer,
    ReleaseFailed, RenewalFailed, ServerRecovered, ServerTrouble, TakeEnded, WaitGivenUp, WaitLasts, WaitStarted,
};

/// Hands the events of a client to the subscriber of the crate [`tracing`](::tracing). Feature `tracing`.
///
/// A wait is a span `wait`, a child of the span that its thread is in; it ends with the wait, and its field `outcome`
/// says how. A hold is a span `hold`, a child of the span in which the lock was taken, on whatever thread it ends; its
/// field `outcome` is [`HoldEnded::outcome`], or `abandoned`. A subscriber keeps the parent open as long as its children.
/// Permits of a semaphore belong to nobody and are no span. All else is an event, with the fields `lock`, `kind` and
/// `owner`, or `server`, and with `outcome`, `error` and durations in seconds where there are any.
///
/// The target is `lockson`. Levels:
///
/// | level | what |
/// |---|---|
/// | error | a lock was lost, or abandoned by its thread; a dropped guard could not release a lock that was not lost |
/// | warn | a call failed; a wait lasts; renewals or the listening connection fail; a server tells losses late, or does not wait for replicas |
/// | info | renewals, or the listening connection, work again |
/// | debug | the spans of a wait and of a hold; the end of a call with the lock, without, cancelled or closed; a release |
/// | trace | a round of renewals |
///
/// ```
/// use lockson::Client;
/// use lockson_telemetry::TracingObserver;
///
/// let client = Client::builder("redis://localhost").observer(TracingObserver::new()).connect_lazily()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TracingObserver {
    /// The span of each hold, by name and owner.
    holds: Arc<Mutex<HashMap<(String, String), Span>>>,
}

impl TracingObserver {
    /// Returns an observer.
    pub fn new() -> Self {
        Self::default()
    }

    fn spans(&self) -> MutexGuard<'_, HashMap<(String, String), Span>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_hold(&self, name: &str, owner: &str, outcome: &str) {
        let span = self.spans().remove(&(name.to_owned(), owner.to_owned()));
        // Closed without the mutex, because a subscriber may take locks.
        if let Some(span) = span {
            span.record("outcome", outcome);
        }
    }
}

/// Hands on an event about a lock.
macro_rules! tell {
    ($level:ident $text:literal $event:ident $(, $($fields:tt)+)?) => {
        event!(
            target: "lockson",
            Level::$level,
            lock = $event.name(),
            kind = $event.kind().as_str(),
            $($($fields)+,)?
            $text
        )
    };
}

/// Hands on an event about a server.
macro_rules! tell_of_server {
    ($level:ident $text:literal $event:ident, $($fields:tt)+) => {
        event!(target: "lockson", Level::$level, server = $event.server(), $($fields)+, $text)
    };
}

thread_local! {
    /// The wait of this thread, which waits for one lock at a time.
    static WAIT: RefCell<Option<Span>> = const { RefCell::new(None) };
}

fn end_wait(outcome: &str) {
    if let Ok(Some(span)) = WAIT.try_with(RefCell::take) {
        span.record("outcome", outcome);
    }
}

impl Observer for TracingObserver {
    fn waiting(&self, event: &WaitStarted) {
        let span = debug_span!(
            target: "lockson",
            "wait",
            lock = event.name(),
            kind = event.kind().as_str(),
            group = event.group(),
            owner = event.owner(),
            outcome = Empty,
        );
        let _ = WAIT.try_with(|wait| wait.replace(Some(span)));
    }

    fn still_waiting(&self, event: &WaitLasts) {
        let waited_seconds = event.waited().as_secs_f64();
        tell!(WARN "a wait lasts" event, group = event.group(), owner = event.owner(), waited_seconds);
    }

    fn gave_up(&self, event: &WaitGivenUp) {
        end_wait(event.error().map_or("busy", |error| error.kind().as_str()));
    }

    fn acquired(&self, event: &LockAcquired) {
        if event.has_waited() {
            end_wait("acquired");
        }
        if event.kind() == LockKind::Semaphore {
            return;
        }
        let span = debug_span!(
            target: "lockson",
            "hold",
            lock = event.name(),
            kind = event.kind().as_str(),
            group = event.group(),
            owner = event.owner(),
            outcome = Empty,
        );
        if !span.is_disabled() {
            let earlier = self.spans().insert((event.name().to_owned(), event.owner().to_owned()), span);
            drop(earlier);
        }
    }

    fn hold_ended(&self, event: &HoldEnded) {
        self.end_hold(event.name(), event.owner(), event.outcome());
    }

    fn take_ended(&self, event: &TakeEnded) {
        let (owner, outcome, waited_seconds) = (event.owner(), event.outcome(), event.waited().as_secs_f64());
        end_wait(outcome);
        let is_failure = |error: &&Error| !matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Closed);
        match event.error().filter(is_failure) {
            None => tell!(DEBUG "a call for a lock ended" event, owner, outcome, waited_seconds),
            Some(error) => tell!(WARN "a call for a lock failed" event, owner, outcome, waited_seconds, error = %error),
        }
    }

    fn released(&self, event: &LockReleased) {
        let held_seconds = event.held().as_secs_f64();
        tell!(DEBUG "a lock was released" event, group = event.group(), owner = event.owner(), held_seconds);
    }

    fn lost(&self, event: &LockLost) {
        let (owner, outcome) = (event.owner(), event.loss().as_str());
        let stood_still_seconds = event.stood_still().map(|time| time.as_secs_f64());
        tell!(ERROR "a lock was lost" event, group = event.group(), owner, outcome, stood_still_seconds);
    }

    fn release_failed(&self, event: &ReleaseFailed) {
        let (error, outcome) = (event.error(), event.error().kind().as_str());
        // A loss was told before.
        if !error.is_lost() {
            tell!(ERROR "a release failed" event, group = event.group(), outcome, error = %error);
        }
    }

    fn renewed(&self, event: &LocksRenewed) {
        tell_of_server!(TRACE "locks were renewed" event, locks = event.locks());
    }

    fn renewal_failed(&self, event: &RenewalFailed) {
        let (locks, remaining_seconds) = (event.locks(), event.remaining().as_secs_f64());
        tell_of_server!(WARN "locks were not renewed" event, locks, remaining_seconds, error = %event.error());
    }

    fn recovered(&self, event: &ServerRecovered) {
        tell_of_server!(INFO "renewals work again" event, outage_seconds = event.outage().as_secs_f64());
    }

    fn abandoned(&self, event: &LockAbandoned) {
        let (group, owner) = (event.group(), event.owner());
        tell!(ERROR "a thread ended without releasing its lock" event, group, owner);
        self.end_hold(event.name(), owner, "abandoned");
    }

    fn losses_told_late(&self, event: &ServerTrouble) {
        tell_of_server!(WARN "losses are told late" event, error = %event.error());
    }

    fn durability_missing(&self, event: &ServerTrouble) {
        tell_of_server!(WARN "the server does not wait for replicas" event, error = %event.error());
    }

    fn listening_failed(&self, event: &ServerTrouble) {
        tell_of_server!(WARN "the listening connection failed" event, error = %event.error());
    }

    fn listening_recovered(&self, event: &ServerRecovered) {
        tell_of_server!(INFO "messages are heard again" event, outage_seconds = event.outage().as_secs_f64());
    }
}
