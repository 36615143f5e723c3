//! The hub: connects the waiters of one server with its listening connection.

#[cfg(all(test, shuttle))]
mod schedules;

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::bell::Bell;
use crate::conn::{Audience, ListenerEvent, Server, Waker, listen};
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::name::{INVALIDATIONS, LockName};
use crate::state::channels::{Channels, Message, Subject};
use crate::state::watch::TrackingChannel;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use crate::time::Instant;
use crate::transport::{Demand, Identity};

/// The waiters of one server, and the listening connection while there are waiters.
pub(crate) struct Hub {
    server: Arc<Server>,
    command_timeout: Duration,
    reports: Arc<dyn Reports>,
    state: Mutex<State>,
    /// The number of channels with waiters; read without the mutex by callers that do not wait.
    live: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    channels: Channels<Bell>,
    /// Wakes the listening thread, while that thread runs.
    waker: Option<Waker>,
    /// The number of listening connections so far.
    connections: u64,
    /// The identity of the open connection, where the server reports one.
    identity: Option<Identity>,
    /// Whether the open connection leads to the wrong server.
    wrong_server: bool,
    /// The time of the first failure since the last subscription.
    failing_since: Option<Instant>,
}

/// What a listening connection reports beyond the wake of a waiter.
pub(crate) enum Report {
    /// Another client published a message about this lock.
    Announced(LockName),
    /// A message with a count arrived for this semaphore; `is_own` where this process published it.
    Counted { name: LockName, payload: Vec<u8>, is_own: bool },
    /// Tracked keys were changed or deleted; `None` means all keys.
    Invalidated(Option<Vec<String>>),
    /// Changes of keys are heard from now on, or the server refuses to tell them.
    TrackingChannelChanged,
    /// The server refused a subscription, because another server has the slot.
    Elsewhere(Refusal),
    /// The listening connection broke, so messages may have been missed.
    Lost(Error),
    /// The listening connection hears messages again, after it had failed for this time.
    Recovered(Duration),
}

/// The receiver of the reports of all servers.
pub(crate) trait Reports: std::fmt::Debug + Send + Sync {
    fn take(&self, server: &Arc<Server>, report: Report);

    /// Whether the server stores no keys any more.
    fn has_left(&self, server: &Arc<Server>) -> bool;
}

/// Nobody takes the reports.
#[cfg(test)]
impl Reports for () {
    fn take(&self, _: &Arc<Server>, _: Report) {}

    fn has_left(&self, _: &Arc<Server>) -> bool {
        false
    }
}

/// A place of a waiter on a channel; dropping it leaves the channel.
pub(crate) struct Subscription {
    hub: Arc<Hub>,
    channel: String,
    number: u64,
}

impl Hub {
    pub(crate) fn new(server: Arc<Server>, command_timeout: Duration, reports: Arc<dyn Reports>) -> Self {
        Self { server, command_timeout, reports, state: Mutex::default(), live: AtomicUsize::new(0) }
    }

    /// Rings `bell` for each message on `channel` that is no count, and once when the subscription is confirmed.
    pub(crate) fn join(self: &Arc<Self>, subject: &Subject, channel: String, bell: &Bell) -> Result<Subscription> {
        let mut state = self.state.lock();
        let number = state.channels.join(subject, &channel, bell.clone());
        self.live.store(state.channels.len(), Ordering::Release);
        match &state.waker {
            Some(waker) => waker.wake(),
            None => {
                let audience = Arc::downgrade(self) as Weak<dyn Audience>;
                match listen(Arc::clone(&self.server), audience, self.command_timeout) {
                    Ok(waker) => state.waker = Some(waker),
                    Err(error) => {
                        state.channels.leave(&channel, number, Instant::now());
                        let text = format!("no thread could be started to listen to redis at {}", self.server.label());
                        return Err(Error::with_source(ErrorKind::Connection, text, error));
                    }
                }
            }
        }
        drop(state);
        Ok(Subscription { hub: Arc::clone(self), channel, number })
    }

    /// Keeps a waiter subscribed: joins the channel at the first call, and where the subscription is one of another
    /// server. Returns whether a message could be missed before, so that the waiter must ask again. Fails where Redis
    /// refuses the subscription: such a wait could miss every message.
    pub(crate) fn arm(
        self: &Arc<Self>,
        subscription: &mut Option<Subscription>,
        subject: &Subject,
        channel: impl FnOnce() -> String,
        bell: &Bell,
    ) -> Result<bool> {
        if let Some(subscription) = subscription
            && Arc::ptr_eq(&subscription.hub, self)
        {
            subscription.is_live()?;
            return Ok(false);
        }
        // A subscription that is not confirmed rings the bell with the confirmation, and the waiter asks again.
        subscription.insert(self.join(subject, channel(), bell)?).is_live()
    }

    /// Joins the channel of a lock only if it is subscribed already, so that no later message can be missed.
    pub(crate) fn join_live(self: &Arc<Self>, subject: &Subject, channel: String, bell: &Bell) -> Option<Subscription> {
        let mut state = self.state.lock();
        if !state.channels.is_subscribed(&channel) {
            return None;
        }
        let number = state.channels.join(subject, &channel, bell.clone());
        drop(state);
        Some(Subscription { hub: Arc::clone(self), channel, number })
    }

    /// Subscribes to changes of keys until the result is dropped.
    pub(crate) fn watch(self: &Arc<Self>) -> Result<Subscription> {
        self.join(&Subject::Other, INVALIDATIONS.to_owned(), &Bell::new())
    }

    /// Returns the state of the listening connection for changes of keys, while they are subscribed.
    pub(crate) fn tracking_channel(&self) -> TrackingChannel {
        let state = self.state.lock();
        match state.channels.is_live(INVALIDATIONS) {
            Ok(true) => TrackingChannel::Open { connection: state.connections, identity: state.identity.clone() },
            Ok(false) => TrackingChannel::Closed,
            Err(refusal) => TrackingChannel::Refused(Error::refused(refusal)),
        }
    }

    /// Records that the server does not know this listening connection. If that connection is still open, it leads to
    /// another server and is replaced.
    pub(crate) fn is_unknown(&self, listener: &Identity) {
        let mut state = self.state.lock();
        if state.identity.as_ref() == Some(listener) {
            state.wrong_server = true;
            if let Some(waker) = &state.waker {
                waker.wake();
            }
        }
    }

    /// Whether there are no waiters.
    pub(crate) fn is_quiet(&self) -> bool {
        self.live.load(Ordering::Acquire) == 0
    }

    /// Announces a release of this process, whose message is no news here. Returns the channel if it is subscribed.
    pub(crate) fn expect_own(&self, channel: impl FnOnce() -> String) -> Option<String> {
        if self.is_quiet() {
            return None;
        }
        let channel = channel();
        self.state.lock().channels.expect_own(&channel).then_some(channel)
    }

    /// Records that the message was not published.
    pub(crate) fn unexpect_own(&self, channel: &str) {
        self.state.lock().channels.unexpect_own(channel);
    }

    /// Reports the end of failures that began then.
    fn recovered(&self, failed_since: Option<Instant>) {
        if let Some(since) = failed_since {
            self.reports.take(&self.server, Report::Recovered(since.until(Instant::now())));
        }
    }

    /// Ends the listening connection and wakes every waiter.
    pub(crate) fn close(&self) {
        let state = self.state.lock();
        state.channels.waiters().iter().for_each(Bell::ring);
        if let Some(waker) = &state.waker {
            waker.wake();
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The listening thread wakes, finds no audience, and ends.
        self.close();
    }
}

impl Subscription {
    /// Whether the channel is subscribed, so that no later message can be missed.
    pub(crate) fn is_live(&self) -> Result<bool> {
        self.hub.state.lock().channels.is_live(&self.channel).map_err(Error::refused)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.state.lock().channels.leave(&self.channel, self.number, Instant::now());
    }
}

impl Audience for Hub {
    fn demand(&self, now: Instant) -> Demand {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.wrong_server) {
            return Demand::Redial;
        }
        let demand = state.channels.demand(now);
        if demand == Demand::Close {
            state.waker = None;
        }
        self.live.store(state.channels.len(), Ordering::Release);
        drop(state);
        if demand == Demand::Close && self.reports.has_left(&self.server) {
            let failed_since = self.state.lock().failing_since.take();
            self.recovered(failed_since);
        }
        demand
    }

    fn handle(&self, event: ListenerEvent) {
        let mut state = self.state.lock();
        let State { channels, connections, identity, wrong_server, failing_since, .. } = &mut *state;
        let mut failed_since = None;
        let (wakes, report) = match event {
            ListenerEvent::Connected(identity_there, pub_sub) => {
                *connections += 1;
                *identity = identity_there;
                channels.connected(pub_sub);
                (vec![], None)
            }
            ListenerEvent::Subscribed(channel) => {
                failed_since = failing_since.take();
                let tracks = channel == INVALIDATIONS;
                (channels.subscribed(&channel), tracks.then_some(Report::TrackingChannelChanged))
            }
            ListenerEvent::Unsubscribed(channel) => (channels.unsubscribed(&channel, Instant::now()), None),
            ListenerEvent::Elsewhere(channel, refusal) => {
                (channels.elsewhere(&channel, Instant::now()), Some(Report::Elsewhere(refusal)))
            }
            ListenerEvent::Message { channel, payload } => {
                let Message { announced, counted, wakes } = channels.message(&channel);
                let counted = counted.map(|name| Report::Counted { name, payload, is_own: announced.is_none() });
                (wakes, counted.or(announced.map(Report::Announced)))
            }
            ListenerEvent::Invalidated(keys) => (vec![], Some(Report::Invalidated(keys))),
            ListenerEvent::Refused(channel, refusal) => {
                let tracks = channel == INVALIDATIONS;
                (channels.refused(&channel, refusal), tracks.then_some(Report::TrackingChannelChanged))
            }
            ListenerEvent::Lost(error) => {
                (*identity, *wrong_server) = (None, false);
                failing_since.get_or_insert_with(Instant::now);
                let wakes = channels.lost();
                drop(state);
                // An observer hears of the loss, and no waiter waits for the observer.
                wakes.iter().for_each(Bell::ring);
                return self.reports.take(&self.server, Report::Lost(error));
            }
        };
        drop(state);
        // The report comes first, so that a woken waiter knows that another client published.
        if let Some(report) = report {
            self.reports.take(&self.server, report);
        }
        wakes.iter().for_each(Bell::ring);
        self.recovered(failed_since);
    }
}
