//! The channels of one server: which are subscribed, and which waiters a message wakes.
//!
//! | state      | means                                       | leaves it by                              |
//! |------------|---------------------------------------------|-------------------------------------------|
//! | Wanted     | to be subscribed, perhaps after a pause     | asked; removed without waiters            |
//! | Asked      | the SUBSCRIBE is in flight                  | confirmed, refused, connection lost       |
//! | Subscribed | no message is missed                        | idle, ended by the server, connection lost |
//! | Leaving    | the UNSUBSCRIBE is in flight                | confirmed, a new waiter, connection lost  |

use std::time::Duration;

use crate::error::Refusal;
use crate::name::{INVALIDATIONS, LockName};
use crate::system::HashMap;
use crate::time::Instant;
use crate::transport::{Demand, PubSub};

/// The channels of one server, with their waiters.
#[derive(Debug, Default)]
pub(crate) struct Channels<Waiter> {
    channels: HashMap<String, Channel<Waiter>>,
    next: u64,
    connected: bool,
    pub_sub: PubSub,
    empty_since: Option<Instant>,
}

/// The subject of the messages of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Releases of a lock, of which this process may have holds. A message wakes every waiter that joined for it.
    Lock(LockName),
    /// The same for a waiter in the queue of a lock, which wakes its first waiter: changes of the subscription wake this
    /// one, and messages do not.
    Queue(LockName),
    /// The count of free permits. The count decides which waiters to wake.
    Count(LockName),
    /// Anything else. A message wakes every waiter, and the channel is left with its last waiter.
    #[default]
    Other,
}

impl Subject {
    /// A channel is about every name under its key.
    fn of_channel(&self) -> Self {
        match self {
            Self::Lock(name) | Self::Queue(name) => Self::Lock(name.whole()),
            other => other.clone(),
        }
    }
}

/// The meaning of a message.
#[derive(Debug, Default)]
pub(crate) struct Message<Waiter> {
    /// Another client published about this lock.
    pub(crate) announced: Option<LockName>,
    /// The message is a count, and the waiters of this semaphore wait for a part of it.
    pub(crate) counted: Option<LockName>,
    /// The waiters to wake.
    pub(crate) wakes: Vec<Waiter>,
}

#[derive(Debug, Default)]
struct Channel<Waiter> {
    subject: Subject,
    state: State,
    /// The server told that another server has the slot: the next request comes after this time.
    elsewhere_until: Option<Instant>,
    /// With their numbers, and whether messages wake them.
    waiters: Vec<(u64, Waiter, bool)>,
    idle_since: Option<Instant>,
    /// The number of messages of own releases that have not arrived.
    own: usize,
    refusal: Option<Refusal>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Wanted,
    Asked,
    Subscribed,
    Leaving,
}

impl<Waiter: Clone + Default> Channels<Waiter> {
    /// Adds a waiter. Returns its number.
    pub(crate) fn join(&mut self, subject: &Subject, channel: &str, waiter: Waiter) -> u64 {
        self.next += 1;
        self.empty_since = None;
        let new = || Channel { subject: subject.of_channel(), ..Channel::default() };
        let entry = self.channels.entry(channel.to_owned()).or_insert_with(new);
        entry.idle_since = None;
        if entry.state == State::Leaving {
            // Requests are answered in order, so the new request follows the old one.
            entry.state = State::Wanted;
        }
        // Two names of one channel have a queue each, and a message is about the first one.
        let heeds_messages = match subject {
            Subject::Lock(_) | Subject::Other => true,
            Subject::Queue(_) | Subject::Count(_) => entry.subject != subject.of_channel(),
        };
        entry.waiters.push((self.next, waiter, heeds_messages));
        self.next
    }

    /// Removes a waiter.
    pub(crate) fn leave(&mut self, channel: &str, number: u64, now: Instant) {
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.waiters.retain(|(other, ..)| *other != number);
            if entry.waiters.is_empty() {
                let lingers = entry.subject != Subject::Other;
                entry.idle_since = Some(if lingers { now } else { now.before(CHANNEL_LINGER) });
            }
        }
    }

    /// The number of channels.
    pub(crate) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether the channel is subscribed, so that no later message can be missed.
    pub(crate) fn is_subscribed(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|entry| entry.state == State::Subscribed)
    }

    /// Checks the same for a waiter, which must learn of a refusal.
    pub(crate) fn is_live(&self, channel: &str) -> Result<bool, Refusal> {
        match self.channels.get(channel) {
            Some(Channel { refusal: Some(refusal), .. }) => Err(refusal.clone()),
            _ => Ok(self.is_subscribed(channel)),
        }
    }

    /// Records that this process is about to publish. Returns whether the message will arrive here.
    pub(crate) fn expect_own(&mut self, channel: &str) -> bool {
        let entry = self.in_state(State::Subscribed, channel);
        entry.map(|entry| entry.own += 1).is_some()
    }

    /// Records that the message was not published.
    pub(crate) fn unexpect_own(&mut self, channel: &str) {
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.own = entry.own.saturating_sub(1);
        }
    }

    pub(crate) fn connected(&mut self, pub_sub: PubSub) {
        (self.connected, self.pub_sub) = (true, pub_sub);
    }

    /// Records the confirmation of a subscription. Earlier messages may have been missed, so the waiters to wake are
    /// returned.
    #[must_use]
    pub(crate) fn subscribed(&mut self, channel: &str) -> Vec<Waiter> {
        let Some(entry) = self.in_state(State::Asked, channel) else { return vec![] };
        (entry.state, entry.own) = (State::Subscribed, 0);
        entry.waiters().collect()
    }

    /// Records the end of a subscription. Where the server ended it unasked, because the slot of the channel has left
    /// the server, the waiters to wake are returned: they ask, and subscribe at the server that has the slot.
    #[must_use]
    pub(crate) fn unsubscribed(&mut self, channel: &str, now: Instant) -> Vec<Waiter> {
        match self.channels.get_mut(channel) {
            Some(entry) if entry.state == State::Subscribed => entry.is_elsewhere(now).collect(),
            Some(entry) if entry.state == State::Leaving => {
                self.channels.remove(channel);
                vec![]
            }
            // A waiter has joined meanwhile, and the reply to its request decides.
            _ => vec![],
        }
    }

    /// Records that another server has the slot of this channel. Returns the waiters to wake.
    #[must_use]
    pub(crate) fn elsewhere(&mut self, channel: &str, now: Instant) -> Vec<Waiter> {
        let Some(entry) = self.in_state(State::Asked, channel) else { return vec![] };
        entry.is_elsewhere(now).collect()
    }

    /// Records a message. The waiters are woken after the report about the lock, so that the sender is known by then.
    pub(crate) fn message(&mut self, channel: &str) -> Message<Waiter> {
        let Some(entry) = self.channels.get_mut(channel) else { return Message::default() };
        let is_own = entry.own > 0;
        entry.own = entry.own.saturating_sub(1);
        let (name, counted) = match &entry.subject {
            Subject::Lock(name) | Subject::Queue(name) => (Some(name), None),
            Subject::Count(name) => (Some(name), Some(name.clone())),
            Subject::Other => (None, None),
        };
        let announced = name.filter(|_| !is_own).cloned();
        let woken = entry.waiters.iter().filter(|(_, _, heeds_messages)| *heeds_messages);
        Message { announced, counted, wakes: woken.map(|(_, waiter, _)| waiter.clone()).collect() }
    }

    /// Records that the server refused to subscribe to this channel. Returns the waiters to wake.
    #[must_use]
    pub(crate) fn refused(&mut self, channel: &str, refusal: Refusal) -> Vec<Waiter> {
        let Some(entry) = self.in_state(State::Asked, channel) else { return vec![] };
        (entry.state, entry.refusal) = (State::Wanted, Some(refusal));
        entry.waiters().collect()
    }

    /// Records the loss of the connection: all channels are wanted again, and every waiter is woken to ask.
    #[must_use]
    pub(crate) fn lost(&mut self) -> Vec<Waiter> {
        self.connected = false;
        self.channels.retain(|_, entry| !entry.waiters.is_empty());
        for entry in self.channels.values_mut() {
            entry.state = State::Wanted;
            (entry.refusal, entry.elsewhere_until) = (None, None);
        }
        self.waiters()
    }

    /// Returns all waiters.
    pub(crate) fn waiters(&self) -> Vec<Waiter> {
        self.channels.values().flat_map(Channel::waiters).collect()
    }

    /// Returns the next demand. Called again until the demand is to rest or to close.
    pub(crate) fn demand(&mut self, now: Instant) -> Demand {
        // A refused channel is requested again when a waiter joins after the last one has left.
        self.channels.retain(|_, entry| !(entry.waiters.is_empty() && entry.state == State::Wanted));
        if self.connected {
            if let Some((pub_sub, channels)) = self.moved(State::Asked, |entry| entry.is_due(now)) {
                return Demand::Subscribe(pub_sub, channels);
            }
            if let Some((pub_sub, channels)) = self.moved(State::Leaving, |entry| entry.is_idle(now)) {
                return Demand::Unsubscribe(pub_sub, channels);
            }
        }
        if self.channels.is_empty() {
            let since = *self.empty_since.get_or_insert(now);
            let end = since.after(CONNECTION_LINGER);
            if end <= now {
                self.connected = false;
                return Demand::Close;
            }
            return Demand::Rest(end);
        }
        let pauses = self.channels.values().filter_map(|entry| entry.elsewhere_until.filter(|until| *until > now));
        Demand::Rest(pauses.fold(now.after(CHANNEL_LINGER), Instant::min))
    }

    fn in_state(&mut self, state: State, channel: &str) -> Option<&mut Channel<Waiter>> {
        self.channels.get_mut(channel).filter(|entry| entry.state == state)
    }

    /// Moves some channels to `state`. Returns the channels, a command for each, and the kind of pub/sub: a refusal
    /// concerns one channel, and the sharded channels of one command would have to share a slot.
    fn moved(&mut self, state: State, fits: impl Fn(&Channel<Waiter>) -> bool) -> Option<(PubSub, Vec<String>)> {
        if let Some(entry) = self.channels.get_mut(INVALIDATIONS)
            && fits(entry)
        {
            entry.state = state;
            return Some((PubSub::Plain, vec![INVALIDATIONS.to_owned()]));
        }
        let fitting = self.channels.iter_mut().filter(|(_, entry)| fits(entry)).take(MOST_AT_ONCE);
        let moved = |(channel, entry): (&String, &mut Channel<Waiter>)| {
            entry.state = state;
            channel.clone()
        };
        let channels: Vec<_> = fitting.map(moved).collect();
        (!channels.is_empty()).then_some((self.pub_sub, channels))
    }
}

impl<Waiter: Clone> Channel<Waiter> {
    /// Whether the channel is to be subscribed now.
    fn is_due(&self, now: Instant) -> bool {
        let pauses = self.elsewhere_until.is_some_and(|until| until > now);
        self.state == State::Wanted && self.refusal.is_none() && !pauses
    }

    /// Whether the channel is to be left now.
    fn is_idle(&self, now: Instant) -> bool {
        self.state == State::Subscribed && self.idle_since.is_some_and(|since| since.after(CHANNEL_LINGER) <= now)
    }

    /// Records that another server has the slot. Returns the waiters to wake. The waiters that find the slot here
    /// again are subscribed after a pause.
    fn is_elsewhere(&mut self, now: Instant) -> impl Iterator<Item = Waiter> {
        self.state = State::Wanted;
        self.elsewhere_until = Some(now.after(ELSEWHERE_PAUSE));
        self.waiters()
    }

    fn waiters(&self) -> impl Iterator<Item = Waiter> {
        self.waiters.iter().map(|(_, waiter, _)| waiter.clone())
    }
}

/// The time for which a channel without waiters stays subscribed, so that the next waiter needs no request.
const CHANNEL_LINGER: Duration = Duration::from_secs(1);
const CONNECTION_LINGER: Duration = Duration::from_secs(3);
/// A slot that was elsewhere may come back, or the server may not know yet that it has the slot.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(100);
const MOST_AT_ONCE: usize = 256;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
