//! The hub: which channels are listened to, and whom a message wakes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::bell::Bell;
use crate::conn::{Audience, Demand, Notice, Server, Waker, listen};
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::name::LockName;
use crate::sync::Mutex;
use crate::time::Instant;

/// The waiters of one server, and its listening connection while there are any.
#[derive(Debug)]
pub(crate) struct Hub {
    server: Arc<Server>,
    command_timeout: Duration,
    reports: Box<dyn Reports>,
    topics: Mutex<Topics>,
    /// How many channels are listened to; read without the mutex by those who do not wait.
    live: AtomicUsize,
}

/// What the hub has to tell others than its waiters.
pub(crate) trait Reports: std::fmt::Debug + Send + Sync {
    /// Somebody else announced something about this lock.
    fn announced(&self, name: &LockName);

    fn listening_failed(&self, server: &Server, error: Error);
}

/// What is listened to; takes events, gives demands, does nothing else.
#[derive(Debug, Default)]
struct Topics {
    topics: HashMap<String, Topic>,
    next: u64,
    waker: Option<Waker>,
    connected: bool,
    /// A batch was refused; ask for each channel alone to learn which it was.
    one_by_one: bool,
    empty_since: Option<Instant>,
}

#[derive(Debug)]
struct Topic {
    /// The lock that everybody on this channel hears of; none where it is one waiter's own.
    name: Option<LockName>,
    state: State,
    bells: Vec<(u64, Bell)>,
    idle_since: Option<Instant>,
    /// Messages of our own releases that are still to come back.
    own: usize,
    refusal: Option<Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Wanted,
    Asked,
    Subscribed,
    Leaving,
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
        Self { server, command_timeout, reports, topics: Mutex::default(), live: AtomicUsize::new(0) }
    }

    /// Has `bell` rung for whatever comes on `channel`, beginning with the moment it is listened to.
    pub(crate) fn join(
        self: &Arc<Self>,
        name: Option<&LockName>,
        channel: String,
        bell: &Bell,
    ) -> Result<Subscription> {
        let mut topics = self.topics.lock();
        let number = topics.join(name, &channel, bell);
        self.live.store(topics.topics.len(), Ordering::Release);
        match &topics.waker {
            Some(waker) => waker.wake(),
            None => {
                let audience = Arc::downgrade(self) as Weak<dyn Audience>;
                match listen(Arc::clone(&self.server), audience, self.command_timeout) {
                    Ok(waker) => topics.waker = Some(waker),
                    Err(error) => {
                        topics.leave(&channel, number, Instant::now());
                        let text = format!("no thread could be started to listen to redis: {error}");
                        return Err(Error::with_source(ErrorKind::Connection, text, error));
                    }
                }
            }
        }
        drop(topics);
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
        let mut topics = self.topics.lock();
        if topics.topics.get(&channel)?.state != State::Subscribed {
            return None;
        }
        let number = topics.join(Some(name), &channel, bell);
        drop(topics);
        Some(Subscription { hub: Arc::clone(self), channel, number })
    }

    /// A release of ours is about to be announced: its message is no news to this process.
    /// Answers whether the channel is listened to.
    pub(crate) fn expect_own(&self, channel: &str) -> bool {
        if self.live.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut topics = self.topics.lock();
        match topics.topics.get_mut(channel) {
            Some(topic) if topic.state == State::Subscribed => {
                topic.own += 1;
                true
            }
            _ => false,
        }
    }

    /// The announcement was not made after all.
    pub(crate) fn unexpect_own(&self, channel: &str) {
        if let Some(topic) = self.topics.lock().topics.get_mut(channel) {
            topic.own = topic.own.saturating_sub(1);
        }
    }

    /// Ends the listening connection and wakes every waiter.
    pub(crate) fn close(&self) {
        let mut topics = self.topics.lock();
        topics.ring_everybody();
        if let Some(waker) = &topics.waker {
            waker.wake();
        }
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
        let topics = self.hub.topics.lock();
        match topics.topics.get(&self.channel) {
            Some(Topic { refusal: Some(refusal), .. }) => Err(Error::refused(refusal.clone())),
            Some(topic) => Ok(topic.state == State::Subscribed),
            None => Ok(false),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.topics.lock().leave(&self.channel, self.number, Instant::now());
    }
}

impl Audience for Hub {
    fn demand(&self, now: Instant) -> Demand {
        let mut topics = self.topics.lock();
        let demand = topics.demand(now);
        self.live.store(topics.topics.len(), Ordering::Release);
        demand
    }

    fn notice(&self, notice: Notice) {
        let mut announced = None;
        let mut failed = None;
        {
            let mut topics = self.topics.lock();
            match notice {
                Notice::Connected => topics.connected = true,
                Notice::Subscribed(channel) => topics.subscribed(&channel),
                Notice::Unsubscribed(channel) => topics.unsubscribed(&channel),
                Notice::Message(channel) => announced = topics.message(&channel),
                Notice::Refused(channels, refusal) => topics.refused(&channels, &refusal),
                Notice::Lost(error) => {
                    topics.lost();
                    failed = Some(error);
                }
            }
        }
        if let Some(name) = announced {
            self.reports.announced(&name);
        }
        if let Some(error) = failed {
            self.reports.listening_failed(&self.server, error);
        }
    }
}

impl Topics {
    fn join(&mut self, name: Option<&LockName>, channel: &str, bell: &Bell) -> u64 {
        self.next += 1;
        self.empty_since = None;
        let new = || Topic {
            name: name.cloned(),
            state: State::Wanted,
            bells: vec![],
            idle_since: None,
            own: 0,
            refusal: None,
        };
        let topic = self.topics.entry(channel.to_owned()).or_insert_with(new);
        topic.idle_since = None;
        if topic.state == State::Leaving {
            // What was asked is answered in order, so the new request comes after the old one.
            topic.state = State::Wanted;
        }
        topic.bells.push((self.next, bell.clone()));
        self.next
    }

    fn leave(&mut self, channel: &str, number: u64, now: Instant) {
        if let Some(topic) = self.topics.get_mut(channel) {
            topic.bells.retain(|(other, _)| *other != number);
            if topic.bells.is_empty() {
                // Nobody else can ever come to a waiter's own channel.
                topic.idle_since = Some(if topic.name.is_some() { now } else { now.before(CHANNEL_LINGER) });
            }
        }
    }

    fn subscribed(&mut self, channel: &str) {
        if let Some(topic) = self.topics.get_mut(channel)
            && topic.state == State::Asked
        {
            topic.state = State::Subscribed;
            topic.own = 0;
            topic.ring();
        }
    }

    fn unsubscribed(&mut self, channel: &str) {
        if self.topics.get(channel).is_some_and(|topic| topic.state == State::Leaving) {
            self.topics.remove(channel);
        }
    }

    /// Wakes the waiters of a channel; answers with the lock if somebody else spoke.
    fn message(&mut self, channel: &str) -> Option<LockName> {
        let topic = self.topics.get_mut(channel)?;
        topic.ring();
        if topic.own > 0 {
            topic.own -= 1;
            return None;
        }
        topic.name.clone()
    }

    fn refused(&mut self, channels: &[String], refusal: &Refusal) {
        self.one_by_one = true;
        for channel in channels {
            if let Some(topic) = self.topics.get_mut(channel)
                && topic.state == State::Asked
            {
                topic.state = State::Wanted;
                if channels.len() == 1 {
                    topic.refusal = Some(refusal.clone());
                    topic.ring();
                }
            }
        }
    }

    /// The connection is gone: what was listened to is wanted again, and everybody asks for himself.
    fn lost(&mut self) {
        self.connected = false;
        self.topics.retain(|_, topic| !topic.bells.is_empty());
        for topic in self.topics.values_mut() {
            topic.state = State::Wanted;
            topic.refusal = None;
            topic.ring();
        }
    }

    fn demand(&mut self, now: Instant) -> Demand {
        if !self.connected {
            self.topics.retain(|_, topic| !topic.bells.is_empty());
        }
        // A channel that was refused is asked for again when its last waiter has gone and one comes anew.
        self.topics.retain(|_, topic| !(topic.bells.is_empty() && topic.state == State::Wanted));
        if self.connected
            && let Some(demand) = self.subscribe().or_else(|| self.unsubscribe(now))
        {
            return demand;
        }
        if self.topics.is_empty() {
            let since = *self.empty_since.get_or_insert(now);
            let end = since.after(CONNECTION_LINGER);
            if end <= now {
                self.waker = None;
                self.connected = false;
                return Demand::Close;
            }
            return Demand::Rest(end);
        }
        Demand::Rest(now.after(CHANNEL_LINGER))
    }

    fn subscribe(&mut self) -> Option<Demand> {
        let most = if self.one_by_one { 1 } else { MOST_AT_ONCE };
        let wanted =
            self.topics.iter_mut().filter(|(_, topic)| topic.state == State::Wanted && topic.refusal.is_none());
        let mut channels = vec![];
        for (channel, topic) in wanted.take(most) {
            topic.state = State::Asked;
            channels.push(channel.clone());
        }
        if channels.is_empty() {
            self.one_by_one = false;
            return None;
        }
        Some(Demand::Subscribe(channels))
    }

    fn unsubscribe(&mut self, now: Instant) -> Option<Demand> {
        let idle = |topic: &Topic| topic.idle_since.is_some_and(|since| since.after(CHANNEL_LINGER) <= now);
        let mut channels = vec![];
        for (channel, topic) in self
            .topics
            .iter_mut()
            .filter(|(_, topic)| topic.state == State::Subscribed && idle(topic))
            .take(MOST_AT_ONCE)
        {
            topic.state = State::Leaving;
            channels.push(channel.clone());
        }
        (!channels.is_empty()).then_some(Demand::Unsubscribe(channels))
    }

    fn ring_everybody(&mut self) {
        self.topics.values().for_each(Topic::ring);
    }
}

impl Topic {
    fn ring(&self) {
        for (_, bell) in &self.bells {
            bell.ring();
        }
    }
}

/// How long a channel without waiters is listened to: the next waiter then needs no new request.
const CHANNEL_LINGER: Duration = Duration::from_secs(1);
const CONNECTION_LINGER: Duration = Duration::from_secs(3);
const MOST_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> LockName {
        LockName::new("n").unwrap()
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(1_000_000 + millis)
    }

    fn rung(bell: &Bell) -> bool {
        let before = Instant::now();
        bell.wait(before.after(Duration::from_millis(1)));
        before.until(Instant::now()) < Duration::from_millis(1)
    }

    fn subscribed() -> (Topics, Bell) {
        let mut topics = Topics { connected: true, ..Topics::default() };
        let bell = Bell::new();
        topics.join(Some(&name()), "c", &bell);
        assert_eq!(topics.demand(at(0)), Demand::Subscribe(vec!["c".into()]));
        topics.subscribed("c");
        assert!(rung(&bell), "from here on nothing is missed: ask again");
        (topics, bell)
    }

    #[test]
    fn nothing_is_asked_before_the_connection_stands() {
        let mut topics = Topics::default();
        topics.join(Some(&name()), "c", &Bell::new());
        assert!(matches!(topics.demand(at(0)), Demand::Rest(_)));
    }

    #[test]
    fn a_lost_connection_wakes_all_and_asks_for_all_again() {
        let (mut topics, bell) = subscribed();
        topics.lost();
        assert!(rung(&bell));
        topics.connected = true;
        assert_eq!(topics.demand(at(1)), Demand::Subscribe(vec!["c".into()]));
    }

    #[test]
    fn only_foreign_messages_are_news() {
        let (mut topics, bell) = subscribed();
        topics.topics.get_mut("c").unwrap().own = 1;
        assert_eq!(topics.message("c"), None);
        assert!(rung(&bell), "also our own release wakes our waiters");
        assert_eq!(topics.message("c"), Some(name()));
        assert_eq!(topics.message("another"), None);
    }

    #[test]
    fn a_channel_outlives_its_last_waiter_by_its_linger_and_the_connection_its_last_channel() {
        let (mut topics, _bell) = subscribed();
        topics.leave("c", 1, at(0));
        assert!(matches!(topics.demand(at(999)), Demand::Rest(_)));
        assert_eq!(topics.demand(at(1_000)), Demand::Unsubscribe(vec!["c".into()]));
        topics.unsubscribed("c");
        assert_eq!(topics.demand(at(1_001)), Demand::Rest(at(4_001)));
        assert_eq!(topics.demand(at(4_001)), Demand::Close);
    }

    #[test]
    fn a_waiter_that_comes_while_a_channel_is_left_gets_it_anew() {
        let (mut topics, bell) = subscribed();
        topics.leave("c", 1, at(0));
        assert!(matches!(topics.demand(at(2_000)), Demand::Unsubscribe(_)));
        topics.join(Some(&name()), "c", &bell);
        assert_eq!(topics.demand(at(2_001)), Demand::Subscribe(vec!["c".into()]));
        topics.unsubscribed("c");
        topics.subscribed("c");
        assert_eq!(topics.topics["c"].state, State::Subscribed);
    }

    #[test]
    fn one_refused_channel_does_not_cost_the_others() {
        let mut topics = Topics { connected: true, ..Topics::default() };
        for channel in ["a", "b"] {
            topics.join(Some(&name()), channel, &Bell::new());
        }
        let Demand::Subscribe(both) = topics.demand(at(0)) else { panic!("nothing asked") };
        let refusal = Refusal::for_test("NOPERM");
        topics.refused(&both, &refusal);
        for _ in 0..2 {
            let Demand::Subscribe(one) = topics.demand(at(1)) else { panic!("not asked again") };
            assert_eq!(one.len(), 1);
            if one[0] == "a" { topics.refused(&one, &refusal) } else { topics.subscribed("b") }
        }
        assert!(matches!(topics.demand(at(2)), Demand::Rest(_)));
        assert_eq!(topics.topics["b"].state, State::Subscribed);
        assert_eq!(topics.topics["a"].refusal, Some(refusal));
    }
}
