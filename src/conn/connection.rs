//! One connection: sends one request at a time and waits for the whole reply.

mod round_trips;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::asking::{asking, with_asked};
use super::buffer::Buffer;
use super::server_start::ServerStart;
use super::socket::Socket;
use super::stream::Stream;
use super::trouble::{self, Moment};
use crate::error::{Error, Refusal};
use crate::time::Instant;
use crate::transport::{Fault, Identity, Limits, PubSub, Question};

/// A connection that is ready for requests.
pub(crate) struct Connection {
    pub(super) socket: Socket,
    pub(super) buffer: Buffer,
    /// The request that is to be sent; its memory serves the next one.
    packed: Vec<u8>,
    /// Where this connection leads; `None` where the server does not tell the id of the connection.
    pub(super) identity: Option<Identity>,
    /// The server as error texts show it.
    server: Arc<str>,
    /// Whether the server is known as a member of a cluster.
    pub(super) in_cluster: bool,
    /// The kind of pub/sub of the client.
    pub(super) pub_sub: PubSub,
    /// Whether the last reply did not arrive in time although the connection seemed intact.
    pub(super) is_mute: bool,
    /// Whether this connection asked when the server started, and the answer; `None` where it is not told to this user.
    pub(super) asked_start: bool,
    pub(super) server_start: Option<ServerStart>,
    /// Whether a request was answered, or the connection was idle, so that its login was accepted.
    pub(super) is_proven: bool,
    /// Whether the server wants a login anew.
    pub(super) is_logged_out: bool,
}

impl Connection {
    /// A connection that is to introduce itself.
    pub(super) fn new(socket: Socket, server: Arc<str>) -> Self {
        Self {
            socket,
            buffer: Buffer::default(),
            packed: vec![],
            identity: None,
            server,
            in_cluster: false,
            pub_sub: PubSub::Plain,
            is_mute: false,
            asked_start: false,
            server_start: None,
            is_proven: false,
            is_logged_out: false,
        }
    }

    /// Sends the request of a call, after an `ASKING` in the same write where it `asks`, and waits for the whole reply.
    /// A server that does not know the script gets its source, unless bytes came behind the refusal, which would count
    /// as the answer. After a fault other than a refusal the connection must be dropped, because late replies may still
    /// arrive.
    pub(super) fn ask<T>(&mut self, call: &dyn Question<Value, T>, asks: bool, limits: Limits) -> Result<T, Fault> {
        match self.ask_with(call, false, asks, limits) {
            Err(Fault::Refused(refusal)) if refusal.word() == "NOSCRIPT" => {
                if self.is_stale() {
                    let error = trouble::odd_reply();
                    return Err(Fault::NotSent(trouble::failed(&self.server, Moment::Request, error, Duration::ZERO)));
                }
                self.ask_with(call, true, asks, limits)
            }
            answer => answer,
        }
    }

    fn ask_with<T>(
        &mut self,
        call: &dyn Question<Value, T>,
        whole: bool,
        asks: bool,
        limits: Limits,
    ) -> Result<T, Fault> {
        if asks {
            self.packed.extend(asking());
        }
        call.pack(whole, self.pub_sub, &mut self.packed);
        let sent = self.socket.write_all(&self.packed, limits.end);
        self.packed.clear();
        self.packed.shrink_to(MOST_KEPT);
        let limit = limits.of(self.socket.stream.limit);
        sent.map_err(|error| Fault::NotSent(trouble::failed(&self.server, Moment::Request, error, limit)))?;
        let reply = self.receive_one(asks, limits.answer_by());
        let answer = reply.and_then(|reply| {
            let answer = self.interpret(&reply, |reply| call.read(reply));
            self.buffer.reclaim(reply);
            answer
        });
        answer.unwrap_or_else(|error| Err(self.broke(error, limit)))
    }

    /// Reads an answer or a refusal out of a reply. Fails for a reply that `read` does not understand.
    pub(super) fn interpret<T>(
        &mut self,
        reply: &Value,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> io::Result<Result<T, Fault>> {
        match reply {
            Value::ServerError(error) => Ok(Err(self.refused(Refusal::new(error)))),
            reply => {
                let answer = read(reply).ok_or_else(trouble::odd_reply)?;
                self.is_proven = true;
                Ok(Ok(answer))
            }
        }
    }

    /// The fault of the unanswered requests of a connection that broke, or that was silent for `limit`.
    pub(super) fn broke(&mut self, error: io::Error, limit: Duration) -> Fault {
        self.is_mute = error.kind() == io::ErrorKind::TimedOut;
        let error = trouble::failed(&self.server, Moment::Request, error, limit);
        Fault::Unanswered(self.identity.clone().map(Box::new), error)
    }

    /// A connection that answered before and wants a login now is to be closed. The request had no effect.
    fn refused(&mut self, refusal: Refusal) -> Fault {
        if refusal.is_of_login() {
            self.is_logged_out = true;
            if self.is_proven {
                return Fault::NotSent(self.login_ended());
            }
        }
        let refusal = if self.in_cluster { refusal.in_cluster() } else { refusal };
        Fault::Refused(refusal.at(Arc::clone(&self.server)))
    }

    pub(super) fn login_ended(&self) -> Error {
        trouble::at(&self.server, "ended the login of the connection")
    }

    pub(super) fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.socket.write_all(bytes, deadline)
    }

    /// Waits for the reply to one command, after that to an `ASKING` where the command `asks`.
    pub(super) fn receive_one(&mut self, asks: bool, deadline: Instant) -> io::Result<Value> {
        if !asks {
            return self.receive(deadline);
        }
        let asked = self.receive(deadline)?;
        Ok(with_asked(Some(asked), self.receive(deadline)?))
    }

    /// Waits for one whole reply.
    pub(super) fn receive(&mut self, deadline: Instant) -> io::Result<Value> {
        loop {
            if let Some(value) = self.buffer.take()? {
                return Ok(value);
            }
            self.fill(Some(deadline))?;
        }
    }

    /// Reads the available bytes: at least one by `deadline`, or those that are there, perhaps none, where there is no
    /// deadline. [`Buffer::take`] returns the replies among them.
    pub(super) fn fill(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            let read = self.socket.read(self.buffer.room(), deadline)?;
            self.buffer.filled(read);
            // A thread that sleeps on the stream would not see the decrypted bytes of a TLS session.
            if !self.socket.has_decrypted() {
                return Ok(());
            }
        }
    }

    /// Whether this idle connection cannot be used any more.
    pub(super) fn is_stale(&mut self) -> bool {
        !self.buffer.is_empty() || self.socket.is_stale()
    }

    /// The address of the other end; `None` for a Unix socket.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.socket.stream.peer()
    }

    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.socket.stream.stream
    }

    /// Whether this connection reaches the same server as the connection of `identity`.
    pub(super) fn leads_where(&self, identity: &Identity) -> bool {
        let Some(own) = &self.identity else { return self.peer() == identity.peer };
        match (&own.server, &identity.server) {
            (Some(own), Some(other)) => own == other,
            _ => own.peer == identity.peer,
        }
    }

    /// Reads id and addresses from the text of `CLIENT INFO`. An id that differs from the one in `HELLO` is dropped:
    /// a proxy answered one of the two commands itself, and a fence could then kill the connection of another client.
    pub(super) fn learn_from(&mut self, info: &str) {
        self.identity = match (self.identity.take(), Identity::read(info)) {
            (Some(told), Some(read)) if told.id != read.id => None,
            (told, read) => read.or(told),
        };
    }
}

/// A larger request gives its memory back.
const MOST_KEPT: usize = 4096;
