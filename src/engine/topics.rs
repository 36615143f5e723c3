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

use crate::bell::Bell;
use crate::error::Refusal;
use crate::name::INVALIDATIONS;
use crate::name::LockName;
use crate::time::Instant;
use crate::transport::Demand;

/// The channels of one server and their waiters.
#[derive(Debug, Default)]
pub(super) struct Topics {
    topics: HashMap<String, Topic>,
    next: u64,
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

impl Topics {
    /// A waiter comes; answers with its number.
    pub(super) fn join(&mut self, name: Option<&LockName>, channel: &str, bell: &Bell) -> u64 {
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

    /// A waiter goes.
    pub(super) fn leave(&mut self, channel: &str, number: u64, now: Instant) {
        if let Some(topic) = self.topics.get_mut(channel) {
            topic.bells.retain(|(other, _)| *other != number);
            if topic.bells.is_empty() {
                // Nobody else can ever come to a waiter's own channel.
                topic.idle_since = Some(if topic.name.is_some() { now } else { now.before(CHANNEL_LINGER) });
            }
        }
    }

    /// How many channels there are.
    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether messages of this channel arrive: from here on none can be missed.
    pub(super) fn is_subscribed(&self, channel: &str) -> bool {
        self.topics.get(channel).is_some_and(|topic| topic.state == State::Subscribed)
    }

    /// The same for one who waits there and must hear of a refusal.
    pub(super) fn is_live(&self, channel: &str) -> Result<bool, Refusal> {
        match self.topics.get(channel) {
            Some(Topic { refusal: Some(refusal), .. }) => Err(refusal.clone()),
            _ => Ok(self.is_subscribed(channel)),
        }
    }

    /// A message of our own is about to be published; answers whether it will come back.
    pub(super) fn expect_own(&mut self, channel: &str) -> bool {
        match self.topics.get_mut(channel) {
            Some(topic) if topic.state == State::Subscribed => {
                topic.own += 1;
                true
            }
            _ => false,
        }
    }

    /// The message was not published after all.
    pub(super) fn unexpect_own(&mut self, channel: &str) {
        if let Some(topic) = self.topics.get_mut(channel) {
            topic.own = topic.own.saturating_sub(1);
        }
    }

    pub(super) fn connected(&mut self) {
        self.connected = true;
    }

    /// From now on messages arrive; what was said before may have been missed.
    pub(super) fn subscribed(&mut self, channel: &str) {
        if let Some(topic) = self.topics.get_mut(channel)
            && topic.state == State::Asked
        {
            topic.state = State::Subscribed;
            topic.own = 0;
            topic.ring();
        }
    }

    /// Confirms the request to leave, unless somebody came meanwhile.
    pub(super) fn unsubscribed(&mut self, channel: &str) {
        if self.topics.get(channel).is_some_and(|topic| topic.state == State::Leaving) {
            self.topics.remove(channel);
        }
    }

    /// A message came; answers with the lock if somebody else spoke. The waiters are to be rung after it.
    pub(super) fn message(&mut self, channel: &str) -> Option<LockName> {
        let topic = self.topics.get_mut(channel)?;
        if topic.own > 0 {
            topic.own -= 1;
            return None;
        }
        topic.name.clone()
    }

    /// Wakes the waiters of a channel.
    pub(super) fn ring(&self, channel: &str) {
        self.topics.get(channel).inspect(|topic| topic.ring());
    }

    /// The server does not let us listen to one of these.
    pub(super) fn refused(&mut self, channels: &[String], refusal: &Refusal) {
        self.one_by_one |= channels.len() > 1;
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
    pub(super) fn lost(&mut self) {
        self.connected = false;
        self.topics.retain(|_, topic| !topic.bells.is_empty());
        for topic in self.topics.values_mut() {
            topic.state = State::Wanted;
            topic.refusal = None;
            topic.ring();
        }
    }

    /// What to do next; to be asked again until it is to rest or to close.
    pub(super) fn demand(&mut self, now: Instant) -> Demand {
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

    /// Wakes all: they are to look why.
    pub(super) fn ring_everybody(&self) {
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
mod model;
#[cfg(test)]
mod tests;
