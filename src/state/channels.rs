//! What is listened to on one server, and whom a message wakes; takes events, gives demands, does nothing else.
//!
//! | state      | means                                       | leaves it by                              |
//! |------------|---------------------------------------------|-------------------------------------------|
//! | Wanted     | is to be subscribed                         | asked; forgotten without waiters          |
//! | Asked      | the SUBSCRIBE is on its way                 | confirmed, refused, connection lost       |
//! | Subscribed | no message is missed                        | idle for a while, connection lost         |
//! | Leaving    | the UNSUBSCRIBE is on its way               | confirmed, a new waiter, connection lost  |

use std::collections::HashMap;
use std::time::Duration;

use crate::error::Refusal;
use crate::name::INVALIDATIONS;
use crate::name::LockName;
use crate::time::Instant;
use crate::transport::Demand;

/// The channels of one server and their waiters.
#[derive(Debug)]
pub(crate) struct Topics<Waiter> {
    topics: HashMap<String, Topic<Waiter>>,
    next: u64,
    connected: bool,
    /// A batch was refused; ask for each channel alone to learn which it was.
    one_by_one: bool,
    empty_since: Option<Instant>,
}

/// What a message means.
#[derive(Debug)]
pub(crate) struct Message<Waiter> {
    /// Somebody else spoke about this lock.
    pub(crate) announced: Option<LockName>,
    /// They are to be woken.
    pub(crate) wakes: Vec<Waiter>,
}

#[derive(Debug)]
struct Topic<Waiter> {
    /// The lock that everybody on this channel hears of; none where it is one waiter's own.
    name: Option<LockName>,
    state: State,
    waiters: Vec<(u64, Waiter)>,
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

impl<Waiter: Clone> Topics<Waiter> {
    /// A waiter comes; answers with its number.
    pub(crate) fn join(&mut self, name: Option<&LockName>, channel: &str, waiter: Waiter) -> u64 {
        self.next += 1;
        self.empty_since = None;
        let new = || Topic {
            name: name.cloned(),
            state: State::Wanted,
            waiters: vec![],
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
        topic.waiters.push((self.next, waiter));
        self.next
    }

    /// A waiter goes.
    pub(crate) fn leave(&mut self, channel: &str, number: u64, now: Instant) {
        if let Some(topic) = self.topics.get_mut(channel) {
            topic.waiters.retain(|(other, _)| *other != number);
            if topic.waiters.is_empty() {
                // Nobody else can ever come to a waiter's own channel.
                topic.idle_since = Some(if topic.name.is_some() { now } else { now.before(CHANNEL_LINGER) });
            }
        }
    }

    /// How many channels there are.
    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether messages of this channel arrive: from here on none can be missed.
    pub(crate) fn is_subscribed(&self, channel: &str) -> bool {
        self.topics.get(channel).is_some_and(|topic| topic.state == State::Subscribed)
    }

    /// The same for one who waits there and must hear of a refusal.
    pub(crate) fn is_live(&self, channel: &str) -> Result<bool, Refusal> {
        match self.topics.get(channel) {
            Some(Topic { refusal: Some(refusal), .. }) => Err(refusal.clone()),
            _ => Ok(self.is_subscribed(channel)),
        }
    }

    /// A message of our own is about to be published; answers whether it will come back.
    pub(crate) fn expect_own(&mut self, channel: &str) -> bool {
        match self.topics.get_mut(channel) {
            Some(topic) if topic.state == State::Subscribed => {
                topic.own += 1;
                true
            }
            _ => false,
        }
    }

    /// The message was not published after all.
    pub(crate) fn unexpect_own(&mut self, channel: &str) {
        if let Some(topic) = self.topics.get_mut(channel) {
            topic.own = topic.own.saturating_sub(1);
        }
    }

    pub(crate) fn connected(&mut self) {
        self.connected = true;
    }

    /// From now on messages arrive; what was said before may have been missed. Answers whom to wake.
    #[must_use]
    pub(crate) fn subscribed(&mut self, channel: &str) -> Vec<Waiter> {
        match self.topics.get_mut(channel) {
            Some(topic) if topic.state == State::Asked => {
                topic.state = State::Subscribed;
                topic.own = 0;
                topic.waiters().collect()
            }
            _ => vec![],
        }
    }

    /// Confirms the request to leave, unless somebody came meanwhile.
    pub(crate) fn unsubscribed(&mut self, channel: &str) {
        if self.topics.get(channel).is_some_and(|topic| topic.state == State::Leaving) {
            self.topics.remove(channel);
        }
    }

    /// A message came. The waiters are to be woken after the lock was reported: by then it is known who spoke.
    pub(crate) fn message(&mut self, channel: &str) -> Message<Waiter> {
        let Some(topic) = self.topics.get_mut(channel) else { return Message { announced: None, wakes: vec![] } };
        let is_own = topic.own > 0;
        topic.own = topic.own.saturating_sub(1);
        let announced = if is_own { None } else { topic.name.clone() };
        Message { announced, wakes: topic.waiters().collect() }
    }

    /// The server does not let us listen to one of these. Answers whom to wake.
    #[must_use]
    pub(crate) fn refused(&mut self, channels: &[String], refusal: &Refusal) -> Vec<Waiter> {
        self.one_by_one |= channels.len() > 1;
        let mut wakes = vec![];
        for channel in channels {
            if let Some(topic) = self.topics.get_mut(channel)
                && topic.state == State::Asked
            {
                topic.state = State::Wanted;
                if channels.len() == 1 {
                    topic.refusal = Some(refusal.clone());
                    wakes.extend(topic.waiters());
                }
            }
        }
        wakes
    }

    /// The connection is gone: what was listened to is wanted again, and every waiter is to be woken and asks.
    #[must_use]
    pub(crate) fn lost(&mut self) -> Vec<Waiter> {
        self.connected = false;
        self.topics.retain(|_, topic| !topic.waiters.is_empty());
        for topic in self.topics.values_mut() {
            topic.state = State::Wanted;
            topic.refusal = None;
        }
        self.waiters()
    }

    /// All waiters there are.
    pub(crate) fn waiters(&self) -> Vec<Waiter> {
        self.topics.values().flat_map(Topic::waiters).collect()
    }

    /// What to do next; to be asked again until it is to rest or to close.
    pub(crate) fn demand(&mut self, now: Instant) -> Demand {
        if !self.connected {
            self.topics.retain(|_, topic| !topic.waiters.is_empty());
        }
        // A channel that was refused is asked for again when its last waiter has gone and one comes anew.
        self.topics.retain(|_, topic| !(topic.waiters.is_empty() && topic.state == State::Wanted));
        if self.connected
            && let Some(demand) = self.subscribe().or_else(|| self.unsubscribe(now))
        {
            return demand;
        }
        if self.topics.is_empty() {
            let since = *self.empty_since.get_or_insert(now);
            let end = since.after(CONNECTION_LINGER);
            if end <= now {
                self.connected = false;
                return Demand::Close;
            }
            return Demand::Rest(end);
        }
        Demand::Rest(now.after(CHANNEL_LINGER))
    }

    fn subscribe(&mut self) -> Option<Demand> {
        // Alone: it needs a right of its own, and a refusal must not cost the waiters a second question.
        if let Some(topic) = self.topics.get_mut(INVALIDATIONS)
            && topic.state == State::Wanted
            && topic.refusal.is_none()
        {
            topic.state = State::Asked;
            return Some(Demand::Subscribe(vec![INVALIDATIONS.to_owned()]));
        }
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
        let idle = |topic: &Topic<Waiter>| topic.idle_since.is_some_and(|since| since.after(CHANNEL_LINGER) <= now);
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
}

impl<Waiter: Clone> Topic<Waiter> {
    fn waiters(&self) -> impl Iterator<Item = Waiter> {
        self.waiters.iter().map(|(_, waiter)| waiter.clone())
    }
}

impl<Waiter> Default for Topics<Waiter> {
    fn default() -> Self {
        Self { topics: HashMap::new(), next: 0, connected: false, one_by_one: false, empty_since: None }
    }
}

/// How long a channel without waiters is listened to: the next waiter then needs no new request.
const CHANNEL_LINGER: Duration = Duration::from_secs(1);
const CONNECTION_LINGER: Duration = Duration::from_secs(3);
const MOST_AT_ONCE: usize = 256;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
