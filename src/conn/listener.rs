//! The listening connection of one server: its thread sleeps on the socket and on a waker.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::connection::Connection;
use super::server::Server;
use super::trouble::{self, Moment};
use super::waker::{Sleeper, Waker, sleeper};
use crate::error::{Error, Refusal};
use crate::name::INVALIDATIONS;
use crate::reply::{list, text, texts};
use crate::system::thread;
use crate::time::Instant;
use crate::transport::{Demand, Fault, Identity, PubSub};

/// The receiver of messages. It decides which channels to subscribe to, and gets the events.
pub(crate) trait Audience: Send + Sync {
    /// Returns the next step. Called repeatedly until the answer is [`Demand::Rest`] or [`Demand::Close`].
    fn demand(&self, now: Instant) -> Demand;

    /// Takes an event; called on the listening thread.
    fn handle(&self, event: ListenerEvent);
}

/// An event on the listening connection.
#[derive(Debug)]
pub(crate) enum ListenerEvent {
    /// A connection was opened, of this identity, where the server reports one. The channels of locks are subscribed by
    /// this kind of pub/sub.
    Connected(Option<Identity>, PubSub),
    Subscribed(String),
    /// Also unasked, when the slot of the channel has left the server.
    Unsubscribed(String),
    /// Another server has the slot of this channel, or no server at present.
    Elsewhere(String, Refusal),
    Message {
        channel: String,
        /// As the sender wrote it: any bytes.
        payload: Vec<u8>,
    },
    /// Tracked keys were changed or deleted; `None` means all keys.
    Invalidated(Option<Vec<String>>),
    /// The server refused to subscribe to this channel.
    Refused(String, Refusal),
    /// The connection broke, and with it all subscriptions.
    Lost(Error),
}

/// Starts to listen to `server` for `audience`.
pub(crate) fn listen(
    server: Arc<Server>,
    audience: Weak<dyn Audience>,
    command_timeout: Duration,
) -> io::Result<Waker> {
    let (waker, sleeper) = sleeper()?;
    let listener = Listener { server, audience, sleeper, command_timeout, pause: FIRST_PAUSE };
    thread::Builder::new().name("lockson-listen".into()).spawn(move || listener.run())?;
    Ok(waker)
}

struct Listener {
    server: Arc<Server>,
    audience: Weak<dyn Audience>,
    sleeper: Sleeper,
    command_timeout: Duration,
    /// The pause before the next attempt to connect.
    pause: Duration,
}

impl Listener {
    fn run(mut self) {
        while let Err(error) = self.listen() {
            if self.server.dialer.streams.are_closed() {
                return;
            }
            self.tell(ListenerEvent::Lost(error));
            if self.rest_before_redial().is_none() {
                return;
            }
        }
    }

    /// Listens over a new connection until no waiter is left, or until the connection breaks.
    fn listen(&mut self) -> Result<(), Error> {
        let deadline = Instant::now().after(self.command_timeout);
        let connection = self.server.dialer.dial(deadline).map_err(Fault::into_error)?;
        self.tell(ListenerEvent::Connected(connection.identity.clone(), connection.pub_sub));
        let (sent, heard) = (VecDeque::new(), Instant::now());
        let mut session = ListeningSession { listener: self, connection, sent, heard, confirmed: false };
        let (end, confirmed) = (session.run(), session.confirmed);
        if confirmed {
            self.pause = FIRST_PAUSE;
        }
        end
    }

    /// Pauses before the next attempt, longer each time. Returns `None` when no waiter is left.
    fn rest_before_redial(&mut self) -> Option<()> {
        let next = Instant::now().after(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        while Instant::now() < next {
            if self.audience.upgrade()?.demand(Instant::now()) == Demand::Close {
                return None;
            }
            self.sleeper.sleep(None, next);
        }
        Some(())
    }

    fn tell(&self, event: ListenerEvent) {
        if let Some(audience) = self.audience.upgrade() {
            audience.handle(event);
        }
    }
}

/// The life of one listening connection.
struct ListeningSession<'a> {
    listener: &'a Listener,
    connection: Box<Connection>,
    /// Requests without a reply so far, in the order of sending.
    sent: VecDeque<Sent>,
    /// The time of the last whole frame.
    heard: Instant,
    /// Whether the server confirmed a request on this connection. An accepted connection alone is no proof that the
    /// server works, so the pause between attempts is reset only then.
    confirmed: bool,
}

enum Sent {
    Ping,
    /// To subscribe to a channel or to end that.
    Channel {
        subscribes: bool,
        channel: String,
    },
}

impl ListeningSession<'_> {
    fn run(&mut self) -> Result<(), Error> {
        while self.turn()? {}
        Ok(())
    }

    /// Returns the error of a broken connection.
    fn broken(&self, error: io::Error) -> Error {
        let (server, limit) = (self.listener.server.label(), SILENCE_BEFORE_PING + ANSWER_LIMIT);
        trouble::failed(&server, Moment::Request, error, limit)
    }

    /// One turn: send requests, sleep, read frames. `Ok(false)` means that no waiter is left.
    fn turn(&mut self) -> Result<bool, Error> {
        let rest = loop {
            let Some(audience) = self.listener.audience.upgrade() else { return Ok(false) };
            match audience.demand(Instant::now()) {
                Demand::Subscribe(pub_sub, channels) => self.send_each(pub_sub.subscribe(), true, channels)?,
                Demand::Unsubscribe(pub_sub, channels) => self.send_each(pub_sub.unsubscribe(), false, channels)?,
                Demand::Rest(until) => break until,
                Demand::Redial => {
                    let what = "is another server by now: the listening connection is made anew";
                    return Err(trouble::at(&self.listener.server.label(), what));
                }
                Demand::Close => return Ok(false),
            }
        };
        let next_check = self.check_liveness()?;
        if self.listener.sleeper.sleep(Some(&self.connection), rest.min(next_check)) {
            self.connection.fill(None).map_err(|error| self.broken(error))?;
            while let Some(frame) = self.connection.buffer.take().map_err(|error| self.broken(error))? {
                self.heard = Instant::now();
                if let Some(event) = self.hear(frame)? {
                    self.listener.tell(event);
                }
            }
        }
        Ok(true)
    }

    fn send_each(&mut self, word: &str, subscribes: bool, channels: Vec<String>) -> Result<(), Error> {
        let mut packed = vec![];
        for channel in &channels {
            redis::cmd(word).arg(channel).write_packed_command(&mut packed);
        }
        self.send(&packed)?;
        self.sent.extend(channels.into_iter().map(|channel| Sent::Channel { subscribes, channel }));
        Ok(())
    }

    /// Sends a ping to a silent server. Returns the time of the next check.
    fn check_liveness(&mut self) -> Result<Instant, Error> {
        let now = Instant::now();
        let silent = self.heard.until(now);
        if silent >= SILENCE_BEFORE_PING + ANSWER_LIMIT {
            return Err(self.broken(io::Error::new(io::ErrorKind::TimedOut, "the server fell silent")));
        }
        if self.sent.is_empty() && silent >= SILENCE_BEFORE_PING {
            self.send(&redis::cmd("PING").get_packed_command())?;
            self.sent.push_back(Sent::Ping);
        }
        let limit = if self.sent.is_empty() { SILENCE_BEFORE_PING } else { SILENCE_BEFORE_PING + ANSWER_LIMIT };
        Ok(self.heard.after(limit))
    }

    fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        let deadline = Instant::now().after(self.listener.command_timeout);
        if self.sent.is_empty() {
            // The silence is measured from the request, not from the last message before the request.
            self.heard = self.heard.max(Instant::now().before(SILENCE_BEFORE_PING));
        }
        self.connection.send(request, deadline).map_err(|error| self.broken(error))
    }

    /// Returns the event that one frame tells of, if any.
    fn hear(&mut self, frame: Value) -> Result<Option<ListenerEvent>, Error> {
        let (kind, data) = match &frame {
            Value::ServerError(error) => return self.refused(Refusal::new(error).at(self.listener.server.label())),
            Value::Push { kind, data } => (kind.to_string(), &data[..]),
            Value::Array(values) => (values.first().and_then(text).unwrap_or_default(), values.get(1..).unwrap_or(&[])),
            _ => (String::new(), &[][..]),
        };
        let channel = data.first().and_then(text).unwrap_or_default();
        Ok(Some(match kind.as_str() {
            "invalidate" => invalidated(data.first()),
            "message" if channel == INVALIDATIONS => invalidated(data.get(1)),
            "message" | "smessage" => {
                let payload = data.get(1).and_then(|payload| redis::from_redis_value_ref(payload).ok());
                ListenerEvent::Message { channel, payload: payload.unwrap_or_default() }
            }
            "subscribe" | "ssubscribe" => {
                self.answered();
                ListenerEvent::Subscribed(channel)
            }
            "unsubscribe" | "sunsubscribe" => {
                // A slot that leaves the server ends subscriptions unasked.
                if let Some(Sent::Channel { subscribes: false, channel: left }) = self.sent.front()
                    && *left == channel
                {
                    self.answered();
                }
                ListenerEvent::Unsubscribed(channel)
            }
            // The reply to a ping, or a push of an unknown kind.
            _ => {
                if let Some(Sent::Ping) = self.sent.front() {
                    self.sent.pop_front();
                }
                return Ok(None);
            }
        }))
    }

    fn refused(&mut self, refusal: Refusal) -> Result<Option<ListenerEvent>, Error> {
        let passes = refusal.is_transient() || (refusal.is_of_login() && self.confirmed);
        Ok(match self.sent.pop_front() {
            Some(Sent::Channel { subscribes: true, channel }) if refusal.is_of_routing() => {
                Some(ListenerEvent::Elsewhere(channel, refusal))
            }
            // The subscription is requested again on the next connection, after a pause.
            Some(Sent::Channel { subscribes: true, .. }) if passes => return Err(Error::refused(refusal)),
            Some(Sent::Channel { subscribes: true, channel }) => Some(ListenerEvent::Refused(channel, refusal)),
            // Without the right to unsubscribe the channel stays subscribed. Its messages wake no waiter.
            Some(Sent::Channel { channel, .. }) => Some(ListenerEvent::Unsubscribed(channel)),
            Some(Sent::Ping) if refusal.is_of_login() => return Err(Error::refused(refusal)),
            _ => None,
        })
    }

    fn answered(&mut self) {
        self.confirmed = true;
        if let Some(Sent::Channel { .. }) = self.sent.front() {
            self.sent.pop_front();
        }
    }
}

/// Reads a list of keys; a null instead of the list means all keys.
fn invalidated(keys: Option<&Value>) -> ListenerEvent {
    ListenerEvent::Invalidated(keys.filter(|keys| list(keys).is_some()).map(texts))
}

/// A half-open connection is detected within the sum of both.
const SILENCE_BEFORE_PING: Duration = Duration::from_secs(1);
const ANSWER_LIMIT: Duration = Duration::from_millis(1_500);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
