//! The hub: brings what is listened to and the listening connection of one server together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::bell::Bell;
use crate::conn::{Audience, ListenerEvent, Server, Waker, listen};
use crate::error::{Error, ErrorKind, Result};
use crate::name::INVALIDATIONS;
use crate::name::LockName;
use crate::state::channels::{Message, Topics};
use crate::state::watch::Ear;
use crate::sync::Mutex;
use crate::time::Instant;
use crate::transport::Demand;

/// The waiters of one server, and its listening connection while there are any.
#[derive(Debug)]
pub(crate) struct Hub {
    server: Arc<Server>,
    command_timeout: Duration,
    reports: Box<dyn Reports>,
    state: Mutex<State>,
    /// How many channels are listened to; read without the mutex by those who do not wait.
    live: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    topics: Topics<Bell>,
    /// Wakes the listening thread, while there is one.
    waker: Option<Waker>,
    /// How many connections it has made.
    connections: u64,
    /// By this number the server knows the one that stands, where the server says so.
    number: Option<u64>,
    /// The one that stands leads to the wrong server.
    misled: bool,
}

/// What the hub has to tell others than its waiters.
pub(crate) trait Reports: std::fmt::Debug + Send + Sync {
    /// Somebody else announced something about this lock.
    fn announced(&self, name: &LockName);

    /// These keys were changed or deleted; `None` means all of them.
    fn invalidated(&self, keys: Option<&[String]>);

    /// What there is to hear of changed keys is not what it was; with `lost`, something may have been missed.
    fn ear_changed(&self, lost: bool);

    fn listening_failed(&self, server: &Server, error: Error);
}

/// A waiter's place on a channel, given up when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    hub: Arc<Hub>,
    channel: String,
    number: u64,
}

impl Hub {
    pub(crate) fn new(server: Arc<Server>, command_timeout: Duration, reports: Box<dyn Reports>) -> Self {
        Self { server, command_timeout, reports, state: Mutex::default(), live: AtomicUsize::new(0) }
    }

    /// Has `bell` rung for whatever comes on `channel`, beginning with the moment it is listened to.
    pub(crate) fn join(
        self: &Arc<Self>,
        name: Option<&LockName>,
        channel: String,
        bell: &Bell,
    ) -> Result<Subscription> {
        let mut state = self.state.lock();
        let number = state.topics.join(name, &channel, bell.clone());
        self.live.store(state.topics.len(), Ordering::Release);
        match &state.waker {
            Some(waker) => waker.wake(),
            None => {
                let audience = Arc::downgrade(self) as Weak<dyn Audience>;
                match listen(Arc::clone(&self.server), audience, self.command_timeout) {
                    Ok(waker) => state.waker = Some(waker),
                    Err(error) => {
                        state.topics.leave(&channel, number, Instant::now());
                        let text = format!("no thread could be started to listen to redis at {}", self.server.label());
                        return Err(Error::with_source(ErrorKind::Connection, text, error));
                    }
                }
            }
        }
        drop(state);
        Ok(Subscription { hub: Arc::clone(self), channel, number })
    }

    /// Joins only where the channel is listened to already: then nothing can be missed from now on.
    pub(crate) fn join_live(
        self: &Arc<Self>,
        name: &LockName,
        channel: &dyn Fn() -> String,
        bell: &Bell,
    ) -> Option<Subscription> {
        if self.live.load(Ordering::Acquire) == 0 {
            return None;
        }
        let channel = channel();
        let mut state = self.state.lock();
        if !state.topics.is_subscribed(&channel) {
            return None;
        }
        let number = state.topics.join(Some(name), &channel, bell.clone());
        drop(state);
        Some(Subscription { hub: Arc::clone(self), channel, number })
    }

    /// Has changed keys reported, until the answer is dropped.
    pub(crate) fn watch(self: &Arc<Self>) -> Result<Subscription> {
        self.join(None, INVALIDATIONS.to_owned(), &Bell::new())
    }

    /// What there is to hear of changed keys, while somebody has them reported.
    pub(crate) fn ear(&self) -> Ear {
        let state = self.state.lock();
        match state.topics.is_live(INVALIDATIONS) {
            Ok(true) => Ear::Open { connection: state.connections, number: state.number },
            Ok(false) => Ear::Closed,
            Err(refusal) => Ear::Refused(Error::refused(refusal)),
        }
    }

    /// The server to which the name leads does not know the listening connection of this number: if it still
    /// stands, it leads elsewhere and is made anew.
    pub(crate) fn is_unknown(&self, number: u64) {
        let mut state = self.state.lock();
        if state.number == Some(number) {
            state.misled = true;
            if let Some(waker) = &state.waker {
                waker.wake();
            }
        }
    }

    /// A release of ours is about to be announced: its message is no news to this process.
    /// Answers whether the channel is listened to.
    pub(crate) fn expect_own(&self, channel: &str) -> bool {
        self.live.load(Ordering::Acquire) != 0 && self.state.lock().topics.expect_own(channel)
    }

    /// The announcement was not made after all.
    pub(crate) fn unexpect_own(&self, channel: &str) {
        self.state.lock().topics.unexpect_own(channel);
    }

    /// Ends the listening connection and wakes every waiter.
    pub(crate) fn close(&self) {
        let state = self.state.lock();
        state.topics.waiters().iter().for_each(Bell::ring);
        if let Some(waker) = &state.waker {
            waker.wake();
        }
    }
}

#[cfg(all(test, shuttle))]
impl Hub {
    /// Somebody listens already.
    pub(super) fn is_listened_to(&self, waker: Waker) {
        self.state.lock().waker = Some(waker);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().topics.len() == 0
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The listening thread wakes, finds its audience gone and ends.
        self.close();
    }
}

impl Subscription {
    /// Whether messages arrive: from here on none can be missed.
    pub(crate) fn is_live(&self) -> Result<bool> {
        self.hub.state.lock().topics.is_live(&self.channel).map_err(Error::refused)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.state.lock().topics.leave(&self.channel, self.number, Instant::now());
    }
}

impl Audience for Hub {
    fn demand(&self, now: Instant) -> Demand {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.misled) {
            return Demand::Redial;
        }
        let demand = state.topics.demand(now);
        if demand == Demand::Close {
            state.waker = None;
        }
        self.live.store(state.topics.len(), Ordering::Release);
        demand
    }

    fn handle(&self, event: ListenerEvent) {
        let (mut announced, mut wakes) = (None, vec![]);
        let mut failed = None;
        let mut ear_changed = false;
        {
            let mut state = self.state.lock();
            let State { topics, connections, number, misled, .. } = &mut *state;
            match event {
                ListenerEvent::Connected(number_there) => {
                    *connections += 1;
                    *number = number_there;
                    topics.connected();
                }
                ListenerEvent::Subscribed(channel) => {
                    ear_changed = channel == INVALIDATIONS;
                    wakes = topics.subscribed(&channel);
                }
                ListenerEvent::Unsubscribed(channel) => topics.unsubscribed(&channel),
                ListenerEvent::Message(channel) => {
                    Message { announced, wakes } = topics.message(&channel);
                }
                ListenerEvent::Invalidated(keys) => {
                    drop(state);
                    self.reports.invalidated(keys.as_deref());
                    return;
                }
                ListenerEvent::Refused(channels, refusal) => {
                    ear_changed = channels == [INVALIDATIONS];
                    wakes = topics.refused(&channels, &refusal);
                }
                ListenerEvent::Lost(error) => {
                    wakes = topics.lost();
                    (*number, *misled) = (None, false);
                    failed = Some(error);
                }
            }
        }
        if let Some(name) = announced {
            self.reports.announced(&name);
        }
        // After the report: whoever is woken knows already that somebody else spoke.
        wakes.iter().for_each(Bell::ring);
        if ear_changed || failed.is_some() {
            self.reports.ear_changed(failed.is_some());
        }
        if let Some(error) = failed {
            self.reports.listening_failed(&self.server, error);
        }
    }
}
