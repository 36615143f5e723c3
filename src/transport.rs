//! The words between the movers of bytes and the deciders: limits, faults, what is listened to.

use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use crate::durability::Copies;
use crate::durability::Durability;
use crate::error::{Error, Refusal};
use crate::time::Instant;

/// The reason why a request has no usable answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The server did not receive the whole request, so the request had no effect.
    NotSent(Error),
    /// The server may have run the request, or may still run it. The identity names the connection on the server.
    Unanswered(Option<Box<Identity>>, Error),
    /// The server replied with an error.
    Refused(Refusal),
}

impl Fault {
    /// Converts the fault into the error of a request that changes nothing.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NotSent(error) | Self::Unanswered(_, error) => error,
            Self::Refused(refusal) => Error::refused(refusal),
        }
    }
}

/// What a request asks for.
pub(crate) trait Question<Reply, T>: Sync {
    /// Reads the reply; `None` for a reply of an unknown shape.
    fn read(&self, reply: &Reply) -> Option<T>;

    /// Adds the words of the request for a client with this kind of pub/sub. The `whole` request has the source of its
    /// script, if it has one, for a server that does not know the script.
    fn pack(&self, whole: bool, pub_sub: PubSub, request: &mut Vec<u8>);

    /// The step that must follow this answer over the same connection before the answer counts.
    fn confirmation(&self, _: &T) -> Option<&Confirmation> {
        None
    }
}

/// A wait for replicas or a disk.
#[derive(Clone, Debug)]
pub(crate) struct Confirmation {
    /// A write that precedes the wait, packed. The server waits for the last write of the connection, and the request
    /// itself may have written no data.
    pub(crate) touch: Vec<u8>,
    pub(crate) needs: Durability,
}

/// The kind of pub/sub of a client. Messages of one kind do not reach subscriptions of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PubSub {
    #[default]
    Plain,
    /// A channel belongs to the server of its slot.
    Sharded,
}

impl PubSub {
    /// The command that publishes.
    pub(crate) fn publish(self) -> &'static str {
        if self == Self::Plain { "PUBLISH" } else { "SPUBLISH" }
    }

    /// The command that subscribes.
    pub(crate) fn subscribe(self) -> &'static str {
        if self == Self::Plain { "SUBSCRIBE" } else { "SSUBSCRIBE" }
    }

    /// The command that ends a subscription.
    pub(crate) fn unsubscribe(self) -> &'static str {
        if self == Self::Plain { "UNSUBSCRIBE" } else { "SUNSUBSCRIBE" }
    }
}

/// Identifies a server within its topology; a number is never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerNumber(pub(crate) usize);

/// A part of the keys that is on one server at all times; without a cluster all keys are one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u16);

/// Identifies one connection on the server, for fencing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The server that got the request: a later request may be routed to another server.
    pub(crate) number: ServerNumber,
    pub(crate) id: u64,
    /// The address of the client as the server sees it. A restarted server counts connections from 1 again; number
    /// and address together never match another connection, but for a Unix socket, where all clients have one address.
    pub(crate) address: Option<String>,
    /// The address of the server as the server sees it, or when its Unix socket was made, which is at each start; and the
    /// address that was dialled. Both tell whether a later connection reaches the same server.
    pub(crate) server: Option<String>,
    pub(crate) peer: Option<SocketAddr>,
    /// How often the server had moved to another place when the connection was opened.
    pub(crate) stay: u64,
}

impl Identity {
    pub(crate) fn new(id: u64) -> Self {
        Self { number: ServerNumber::default(), id, address: None, server: None, peer: None, stay: 0 }
    }
}

/// The deadline of a request, and the time that the server has for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The deadline of the whole request.
    pub(crate) end: Instant,
    answer: Option<Duration>,
}

impl Limits {
    /// Sets one deadline for the whole request.
    pub(crate) fn by(end: Instant) -> Self {
        Self { end, answer: None }
    }

    /// Sets a deadline for the whole request, and for the reply a limit that starts when the request was sent.
    pub(crate) fn answered_within(end: Instant, answer: Duration) -> Self {
        Self { end, answer: Some(answer) }
    }

    /// The time that the server had for its reply, if `left` was left for the whole request.
    pub(crate) fn of(self, left: Duration) -> Duration {
        self.answer.map_or(left, |answer| answer.min(left))
    }

    /// The deadline of the reply to a request that is sent now.
    pub(crate) fn answer_by(self) -> Instant {
        self.answer.map_or(self.end, |answer| Instant::now().after(answer).min(self.end))
    }
}

/// What the process of a server must be like to get a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fitness {
    /// Whether the server is not asked while it is down. A missing answer then marks the server as down.
    pub(crate) is_up: bool,
    /// A server that started less than this ago may have forgotten locks, and is not asked.
    pub(crate) age: Option<Duration>,
    /// What the user can do about such a server.
    pub(crate) advice: &'static str,
}

/// The next step of the listening connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// One command for each channel.
    Subscribe(PubSub, Vec<String>),
    /// One command for each channel.
    Unsubscribe(PubSub, Vec<String>),
    /// Nothing to do until this moment, or until the thread is woken.
    Rest(Instant),
    /// The connection leads to the wrong server: make it anew.
    Redial,
    /// End the thread, because no waiter is left. After this answer a new listener may be started at once.
    Close,
}
