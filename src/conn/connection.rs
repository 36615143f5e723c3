//! One connection: introduced to the server, one request and one whole reply at a time.

use std::io;
use std::sync::{Arc, Weak};

use redis::{Cmd, Value};

use super::address::Address;
use super::frame;
use super::socket::{Socket, Stream};
use crate::error::{Error, ErrorKind, Refusal};
use crate::time::Instant;

/// Why a request has no answer that can be used.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server has not got the whole request, so it had no effect.
    NotSent(Error),
    /// The request may have been carried out, or may be yet. The server knows the sender by this.
    Unanswered(Option<Identity>, Error),
    /// The server answered with an error.
    Refused(Refusal),
}

impl Fault {
    /// The fault as a caller sees it, for requests that change nothing.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NotSent(error) | Self::Unanswered(_, error) => error,
            Self::Refused(refusal) => Error::refused(refusal),
        }
    }
}

/// What a server calls one of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    id: u64,
    /// The client's end as the server sees it. Numbers start anew with a restart; both together
    /// never mean somebody else.
    address: Option<String>,
}

/// Makes connections to one server.
#[derive(Debug)]
pub(crate) struct Dialer {
    address: Address,
    client_name: String,
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Socket,
    buffer: Buffer,
    identity: Option<Identity>,
}

impl Dialer {
    pub(crate) fn new(address: Address, client_name: String) -> Self {
        Self { address, client_name }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Connects and introduces ourselves, all by `deadline`. `opened` sees the stream before the
    /// first byte, so that closing the client can end this too.
    pub(super) fn dial(&self, deadline: Instant, opened: impl FnOnce(Weak<Stream>)) -> Result<Link, Fault> {
        let socket =
            Socket::dial(&self.address.place, deadline).map_err(|error| Fault::NotSent(self.unreachable(error)))?;
        opened(Arc::downgrade(socket.stream()));
        let mut link = Link { socket, buffer: Buffer::default(), identity: None };
        self.introduce(&mut link, deadline).map_err(|fault| match fault {
            // Nothing of a caller's went over this connection yet.
            Fault::Unanswered(_, error) => Fault::NotSent(error),
            other => other,
        })?;
        Ok(link)
    }

    fn introduce(&self, link: &mut Link, deadline: Instant) -> Result<(), Fault> {
        let mut steps = vec![];
        if self.address.resp3 {
            let mut hello = Cmd::new();
            hello.arg("HELLO").arg(3);
            if let Some(password) = &self.address.password {
                hello.arg("AUTH").arg(self.address.username.as_deref().unwrap_or("default")).arg(password);
            }
            steps.push((hello, Step::Login));
        } else if let Some(password) = &self.address.password {
            let mut auth = Cmd::new();
            auth.arg("AUTH").arg(self.address.username.as_deref()).arg(password);
            steps.push((auth, Step::Login));
        }
        if self.address.database != 0 {
            steps.push((command(&["SELECT", &self.address.database.to_string()]), Step::Needed));
        }
        // The rest helps where the user may do it: a name for the operator, an identity for fencing.
        steps.push((command(&["CLIENT", "SETNAME", &self.client_name]), Step::Wished));
        steps.push((command(&["CLIENT", "ID"]), Step::Id));
        steps.push((command(&["CLIENT", "INFO"]), Step::Info));

        let mut request = vec![];
        for (step, _) in &steps {
            step.write_packed_command(&mut request);
        }
        link.send(&request, deadline).map_err(|error| Fault::NotSent(self.unreachable(error)))?;
        for (_, step) in steps {
            let reply = link.receive(deadline).map_err(|error| Fault::NotSent(self.unreachable(error)))?;
            self.take_step(link, &step, reply)?;
        }
        Ok(())
    }

    fn take_step(&self, link: &mut Link, step: &Step, reply: Value) -> Result<(), Fault> {
        match (step, reply) {
            (_, Value::ServerError(error)) => {
                // Some servers quote what they do not understand, here the password.
                let refusal = Refusal::new(&error);
                let refusal = if matches!(step, Step::Login) { refusal.without_text() } else { refusal };
                let lacks_right = matches!(refusal.word(), "NOPERM" | "ERR");
                if matches!(step, Step::Login | Step::Needed) || !lacks_right {
                    return Err(Fault::Refused(refusal));
                }
            }
            (Step::Id, Value::Int(id)) => {
                link.identity = u64::try_from(id).ok().map(|id| Identity { id, address: None });
            }
            (Step::Info, Value::BulkString(_) | Value::VerbatimString { .. }) if link.identity.is_none() => {}
            (Step::Info, Value::BulkString(text)) => link.learn_address(&String::from_utf8_lossy(&text)),
            (Step::Info, Value::VerbatimString { text, .. }) => link.learn_address(&text),
            _ => {}
        }
        Ok(())
    }

    fn unreachable(&self, error: io::Error) -> Error {
        Error::with_source(
            ErrorKind::Connection,
            format!("redis at {} cannot be reached: {error}", self.address),
            error,
        )
    }
}

/// What the reply of one step of the introduction is good for.
enum Step {
    /// It carries the credentials.
    Login,
    Needed,
    Wished,
    Id,
    Info,
}

impl Link {
    /// Sends one request and waits for its whole reply. After a fault other than a refusal the
    /// connection must be dropped: it may owe replies.
    pub(super) fn request<T>(
        &mut self,
        request: &[u8],
        deadline: Instant,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Fault> {
        let lost =
            |error: io::Error, what| Error::with_source(ErrorKind::Connection, format!("{what}: {error}"), error);
        self.send(request, deadline).map_err(|error| Fault::NotSent(lost(error, "the request could not be sent")))?;
        let error = match self.receive(deadline) {
            Ok(Value::ServerError(error)) => return Err(Fault::Refused(Refusal::new(&error))),
            Ok(value) => match read(&value) {
                Some(answer) => return Ok(answer),
                None => io::Error::new(io::ErrorKind::InvalidData, "an answer that this request never has"),
            },
            Err(error) => error,
        };
        Err(Fault::Unanswered(self.identity.clone(), lost(error, "redis did not answer")))
    }

    /// Several round trips in which each request may depend on the replies before. `talk` is given
    /// the way to say commands and hear as many replies, error replies among them; it answers `None`
    /// where one of them has a shape that it does not know. After any fault the connection must be
    /// dropped: it may be in the middle of a transaction.
    pub(super) fn converse<T>(
        &mut self,
        deadline: Instant,
        talk: impl FnOnce(&mut dyn FnMut(&[Cmd]) -> Option<Vec<Value>>) -> Option<Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let (mut failure, mut said) = (None, 0);
        let outcome = talk(&mut |commands| {
            if failure.is_some() {
                return None;
            }
            let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
            said += commands.len();
            let sent = self.send(&packed, deadline).map_err(|error| (error, false));
            let heard = sent.and_then(|()| {
                let replies = commands.iter().map(|_| self.receive(deadline));
                replies.collect::<io::Result<_>>().map_err(|error| (error, true))
            });
            heard.map_err(|error| failure = Some(error)).ok()
        });
        let (error, sent) = match (outcome, failure) {
            (Some(outcome), None) => return outcome,
            (_, Some(failure)) => failure,
            (None, None) => (io::Error::new(io::ErrorKind::InvalidData, "an answer that this request never has"), true),
        };
        let error = Error::with_source(ErrorKind::Connection, format!("redis did not answer: {error}"), error);
        // Of several commands the first ones may have arrived whole.
        if !sent && said == 1 {
            Err(Fault::NotSent(error))
        } else {
            Err(Fault::Unanswered(self.identity.clone(), error))
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.socket.write_all(bytes, deadline)
    }

    /// Waits for one whole reply.
    pub(super) fn receive(&mut self, deadline: Instant) -> io::Result<Value> {
        loop {
            if let Some(value) = self.buffer.take()? {
                return Ok(value);
            }
            self.fill(deadline)?;
        }
    }

    /// Reads what has come, at least one byte.
    pub(super) fn fill(&mut self, deadline: Instant) -> io::Result<()> {
        let read = self.socket.read(self.buffer.room(), deadline)?;
        self.buffer.filled(read);
        Ok(())
    }

    /// A whole reply that is here already.
    pub(super) fn received(&mut self) -> io::Result<Option<Value>> {
        self.buffer.take()
    }

    /// Whether this idle connection is of no use any more.
    pub(super) fn is_stale(&self) -> bool {
        !self.buffer.is_empty() || self.socket.is_stale()
    }

    pub(super) fn stream(&self) -> &Arc<Stream> {
        self.socket.stream()
    }

    fn learn_address(&mut self, info: &str) {
        if let Some(identity) = &mut self.identity {
            identity.address = address_of(info);
        }
    }
}

impl Identity {
    /// The command that makes sure nothing of this connection is carried out any more.
    pub(super) fn kill(&self) -> Cmd {
        let mut kill = command(&["CLIENT", "KILL", "ID", &self.id.to_string()]);
        if let Some(address) = &self.address {
            kill.arg("ADDR").arg(address);
        }
        kill
    }
}

/// Our end in the text of `CLIENT INFO`; the path of a Unix socket may contain spaces.
fn address_of(info: &str) -> Option<String> {
    let (_, after) = info.split_once(" addr=")?;
    let (address, _) = after.split_once(" laddr=").or_else(|| after.split_once(" fd="))?;
    Some(address.to_owned())
}

/// Packs plain words as a command.
pub(crate) fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command
}

/// Bytes received and not yet taken as replies.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn take(&mut self) -> io::Result<Option<Value>> {
        if self.is_empty() {
            return Ok(None);
        }
        let garbled =
            |error: Box<dyn std::error::Error + Send + Sync>| io::Error::new(io::ErrorKind::InvalidData, error);
        let here = &self.bytes[self.start..self.end];
        let Some(length) = frame::length(here).map_err(|error| garbled(error.into()))? else { return Ok(None) };
        let reply = &here[..length];
        let value = match frame::plain(reply) {
            Some(value) => value,
            None => redis::parse_redis_value(reply).map_err(|error| garbled(error.into()))?,
        };
        self.start += length;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        Ok(Some(value))
    }

    /// Free space to read into.
    fn room(&mut self) -> &mut [u8] {
        if self.start > 0 && self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            self.bytes.resize((self.bytes.len() * 2).max(SMALLEST_BUFFER), 0);
        }
        &mut self.bytes[self.end..]
    }

    fn filled(&mut self, read: usize) {
        self.end += read;
    }
}

const SMALLEST_BUFFER: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_whole() {
        let check = |info, address: Option<&str>| assert_eq!(address_of(info).as_deref(), address, "{info}");
        check("id=3 addr=127.0.0.1:50188 laddr=127.0.0.1:6379 fd=8 name=addr=x", Some("127.0.0.1:50188"));
        check("id=4 addr=/run/my redis.sock:0 laddr=/run/my redis.sock:0 fd=9 name=", Some("/run/my redis.sock:0"));
        check("id=5 addr=[::1]:7 fd=9 name=", Some("[::1]:7"));
        check("id=6", None);
    }
}
