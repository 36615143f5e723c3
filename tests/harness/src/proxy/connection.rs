//! One client's connection and the matching connection to the server.

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::expected::{Expected, Meaning, is_subscribe};
use super::frame;
use super::lane::{End, Gate, Lane, Step, Stop};
use super::opaque::{Limit, Opaque};
use super::records::Records;
use super::request::{Fate, Kind, Request};
use super::rule::{Decision, Direction, Rules, Then};

/// Two sockets and all bytes in transit between the two.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) index: usize,
    pub(super) client: Option<Arc<TcpStream>>,
    pub(super) server: Option<Arc<TcpStream>>,
    pub(super) client_address: Option<SocketAddr>,
    pub(super) server_side_address: Option<SocketAddr>,
    /// Whether the client has ever sent a SUBSCRIBE.
    pub(super) subscriber: bool,
    /// The direction that a rule has muted; muting by tests is stored with the scopes.
    pub(super) muted: Option<Direction>,
    pub(super) client_is_full: bool,
    pub(super) server_is_full: bool,
    to_server: Lane,
    to_client: Lane,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
    requests_garbled: bool,
    replies_garbled: bool,
    pub(super) opaque_requests: Opaque,
    pub(super) opaque_replies: Opaque,
    expected: Expected,
}

/// The parts of the proxy that a connection needs.
pub(super) struct Context<'a> {
    pub(super) rules: &'a mut Rules,
    pub(super) records: &'a mut Records,
    pub(super) reset: bool,
}

impl Connection {
    pub(super) fn new(index: usize, client: Option<TcpStream>, server: TcpStream) -> Connection {
        for stream in client.iter().chain([&server]) {
            // Both calls fail only on a broken socket, and a broken socket shows at the first use.
            let _ = stream.set_nodelay(true);
            let _ = stream.set_nonblocking(true);
        }
        Connection {
            index,
            client_address: client.as_ref().and_then(|client| client.peer_addr().ok()),
            server_side_address: server.local_addr().ok(),
            client: client.map(Arc::new),
            server: Some(Arc::new(server)),
            subscriber: false,
            muted: None,
            client_is_full: false,
            server_is_full: false,
            to_server: Lane::default(),
            to_client: Lane::default(),
            from_client: Vec::new(),
            from_server: Vec::new(),
            requests_garbled: false,
            replies_garbled: false,
            opaque_requests: Opaque::default(),
            opaque_replies: Opaque::default(),
            expected: Expected::default(),
        }
    }

    /// Whether both sides are closed.
    pub(super) fn is_over(&self) -> bool {
        self.client.is_none() && self.server.is_none()
    }

    /// Reads the client's bytes.
    pub(super) fn read_client(&mut self, context: &mut Context<'_>) {
        let Some(client) = self.client.clone() else {
            return;
        };
        let alive = read_all(&client, &mut self.from_client);
        while !self.requests_garbled {
            match frame::request_length(&self.from_client) {
                Ok(Some(length)) => {
                    let bytes: Vec<u8> = self.from_client.drain(..length).collect();
                    self.take_request(&bytes, context);
                }
                Ok(None) => break,
                Err(_) => self.requests_garbled = true,
            }
        }
        if self.requests_garbled && !self.from_client.is_empty() {
            // Not the protocol of Redis, TLS for example: the bytes pass unchanged.
            let bytes = std::mem::take(&mut self.from_client);
            self.opaque_requests.steps(bytes).into_iter().for_each(|step| self.to_server.push(step));
        }
        if !alive {
            self.end_client();
            let rest = std::mem::take(&mut self.from_client);
            self.to_server.push(Step::ending(rest, End::Finish));
        }
    }

    /// Reads the server's bytes.
    pub(super) fn read_server(&mut self, context: &mut Context<'_>) {
        let Some(server) = self.server.clone() else {
            return;
        };
        let alive = read_all(&server, &mut self.from_server);
        while !self.replies_garbled {
            match frame::reply_length(&self.from_server) {
                Ok(Some(length)) => {
                    let bytes: Vec<u8> = self.from_server.drain(..length).collect();
                    self.take_reply(bytes, context);
                }
                Ok(None) => break,
                Err(_) => self.replies_garbled = true,
            }
        }
        if self.replies_garbled && !self.from_server.is_empty() {
            let bytes = std::mem::take(&mut self.from_server);
            self.opaque_replies.steps(bytes).into_iter().for_each(|step| self.push_to_client(step));
        }
        if !alive {
            let rest = std::mem::take(&mut self.from_server);
            self.end_server(context.records, "the server closed the connection");
            self.push_to_client(Step::ending(rest, End::Finish));
        }
    }

    /// Sends every byte that may leave, and returns the time of the next step.
    pub(super) fn advance(&mut self, now: Instant, muted: [bool; 2], context: &mut Context<'_>) -> Option<Instant> {
        let [requests_muted, replies_muted] = muted;
        let mut again = None;
        (self.client_is_full, self.server_is_full) = (false, false);
        if let Some(server) = self.server.clone().filter(|_| !requests_muted) {
            let records = &mut *context.records;
            let stop = self.to_server.flush(&server, now, |number| {
                records.set_fate(number, Fate::Forwarded);
            });
            self.server_is_full = matches!(stop, Stop::Full);
            match stop {
                Stop::Until(moment) => again = Some(moment),
                Stop::Ended(End::Finish) => {
                    // Only half: the answers to late requests still have to be seen.
                    let _ = server.shutdown(Shutdown::Write);
                }
                Stop::Ended(End::Cut) => self.cut(context, "cut by a rule"),
                Stop::Broken(error) => {
                    self.read_server(context); // the last bytes may be readable
                    self.end_server(context.records, &format!("cannot write: {error}"));
                    self.push_to_client(Step::ending([], End::Finish));
                }
                Stop::Idle | Stop::Full => {}
            }
        }
        if let Some(client) = self.client.clone().filter(|_| !replies_muted) {
            let records = &mut *context.records;
            let stop = self.to_client.flush(&client, now, |number| {
                records.set_fate(number, Fate::Forwarded);
            });
            self.client_is_full = matches!(stop, Stop::Full);
            match stop {
                Stop::Until(moment) => again = again.into_iter().chain([moment]).min(),
                Stop::Ended(End::Finish) => self.end_client(),
                Stop::Ended(End::Cut) => self.cut(context, "cut by a rule"),
                Stop::Broken(_) => {
                    self.end_client();
                    self.to_server.push(Step::ending([], End::Finish));
                }
                Stop::Idle | Stop::Full => {}
            }
        }
        again
    }

    /// Closes both sockets at once.
    pub(super) fn cut(&mut self, context: &mut Context<'_>, why: &str) {
        if let Some(client) = &self.client {
            if context.reset {
                let _ = rustix::net::sockopt::set_socket_linger(client, Some(Duration::ZERO));
            } else {
                // Unread bytes would turn the close into a reset, and a reset could discard sent bytes.
                let _ = read_all(client, &mut Vec::new());
                let _ = client.shutdown(Shutdown::Write);
            }
        }
        self.end_client();
        self.end_server(context.records, why);
    }

    /// Limits the bytes that cannot be read.
    pub(super) fn limit(&mut self, limit: Limit) {
        let wanted = |one| limit.direction == one || limit.direction == Direction::Both;
        if wanted(Direction::Requests) {
            self.opaque_requests.limit = Some(limit);
        }
        if wanted(Direction::Replies) {
            self.opaque_replies.limit = Some(limit);
        }
    }

    /// Queues a copy of a request for the server; the reply to the copy is hidden from the client.
    pub(super) fn send_copy(&mut self, copy: &Request) {
        self.expected.push(copy, None).visible = false;
        self.to_server.push_before_end(Step { number: Some(copy.number), ..Step::new(&*copy.bytes) });
    }

    /// Ends the direction to the server after the queued bytes.
    pub(super) fn finish(&mut self) {
        self.to_server.push(Step::ending([], End::Finish));
    }

    /// Releases everything that a rule holds; a reply that is still to come from the server is not held either.
    pub(super) fn release(&mut self, rule: u64) {
        self.expected.release(rule);
        self.to_server.release(rule);
        self.to_client.release(rule);
    }

    pub(super) fn heal(&mut self) {
        self.muted = None;
        (self.opaque_requests.limit, self.opaque_replies.limit) = (None, None);
        self.expected.release_all();
        self.to_server.release_all();
        self.to_client.release_all();
    }

    fn take_request(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        let request = context.records.add(self.index, Kind::Request, bytes);
        if request.command.is_empty() {
            self.to_server.push(Step::new(bytes)); // an empty line has no answer
            return context.records.set_fate(request.number, Fate::Dropped);
        }
        self.subscriber |= is_subscribe(&request.command);
        let (on_request, on_reply) = context.rules.decide(&request);
        if self.server.is_none() {
            let why = "the connection to the server had ended before".to_owned();
            return context.records.set_fate(request.number, Fate::Failed(why));
        }
        let mut step = Step { number: Some(request.number), ..Step::new(bytes) };
        match on_request {
            Some((rule, Then::HoldRequest)) => step.gate = Gate::Held(rule),
            Some((_, Then::DelayRequest(time))) => step.gate = Gate::Until(Instant::now() + time),
            Some((_, Then::Mute(direction))) => self.muted = Some(direction),
            Some((_, Then::CutRequestAfter(length))) if length >= bytes.len() => {
                step.end = Some(End::Cut);
            }
            Some((_, then)) => {
                context.records.set_fate(request.number, Fate::Dropped);
                return self.divert(&request, then);
            }
            None => {}
        }
        self.expected.push(&request, on_reply);
        self.to_server.push(step);
    }

    /// Handles a request that never reaches the server as a whole.
    fn divert(&mut self, request: &Request, then: Then) {
        match then {
            Then::AnswerInstead(reply) => {
                self.expected.push(request, None).canned = Some(reply);
                self.answer_canned();
            }
            Then::CutBeforeRequest => self.to_server.push(Step::ending([], End::Cut)),
            Then::CutRequestAfter(length) => {
                let part = &request.bytes[..length];
                self.to_server.push(Step::ending(part, End::Cut));
            }
            _ => {} // swallowed
        }
    }

    fn take_reply(&mut self, bytes: Vec<u8>, context: &mut Context<'_>) {
        let meaning = self.expected.meaning(&bytes);
        if meaning == Meaning::Message {
            let message = context.records.add(self.index, Kind::Message, &bytes);
            let (_, decision) = context.rules.decide(&message);
            if matches!(decision, Some((_, Then::SwallowReply))) {
                context.records.set_fate(message.number, Fate::Dropped);
            }
            return self.pass(&bytes, 0, true, decision, Some(message.number));
        }
        let Some(front) = self.expected.front() else {
            return;
        };
        let before = front.bytes.len();
        front.bytes.extend_from_slice(&bytes);
        let (decision, visible) = (front.decision.clone(), front.visible);
        let whole = meaning == Meaning::Whole;
        if visible {
            self.pass(&bytes, before, whole, decision, None);
        }
        if whole && let Some(done) = self.expected.pop() {
            context.records.set_fate(done.number, Fate::Answered(done.bytes));
            self.answer_canned();
        }
    }

    /// Queues a frame of the server for the client, as a rule demands.
    ///
    /// A reply may have several frames: `before` counts the bytes of the earlier frames.
    fn pass(&mut self, bytes: &[u8], before: usize, last: bool, decision: Option<Decision>, number: Option<u64>) {
        let mut step = Step { number, ..Step::new(bytes) };
        match decision {
            Some((rule, Then::HoldReply)) => step.gate = Gate::Held(rule),
            Some((_, Then::DelayReply(time))) => step.gate = Gate::Until(Instant::now() + time),
            Some((_, Then::SwallowReply)) => return,
            Some((_, Then::SlowReply(pace))) => step.pace = Some(pace),
            Some((_, Then::ReplaceReply(_))) if before > 0 => return,
            Some((_, Then::ReplaceReply(other))) => step.bytes = other,
            Some((_, Then::InsertIntoReply(place, other))) => {
                let end = before + bytes.len();
                if (before..end).contains(&place) || (last && place >= end) {
                    let place = place.min(end) - before;
                    step.bytes.splice(place..place, other);
                }
            }
            Some((_, Then::CutReplyAfter(length))) => {
                let length = length.saturating_sub(before);
                if last || length < bytes.len() {
                    step.bytes.truncate(length);
                    step.end = Some(End::Cut);
                }
            }
            _ => {}
        }
        self.push_to_client(step);
    }

    fn answer_canned(&mut self) {
        while let Some(reply) = self.expected.pop_canned().and_then(|done| done.canned) {
            self.push_to_client(Step::new(reply));
        }
    }

    fn push_to_client(&mut self, step: Step) {
        if self.client.is_some() {
            self.to_client.push(step);
        }
    }

    fn end_client(&mut self) {
        self.client = None;
        self.to_client.clear();
    }

    fn end_server(&mut self, records: &mut Records, why: &str) {
        if let Some(server) = self.server.take() {
            let _ = server.shutdown(Shutdown::Write); // an error means that the socket is closed already
        }
        self.to_server.clear();
        while let Some(lost) = self.expected.pop() {
            records.set_fate(lost.number, Fate::Failed(why.to_owned()));
        }
    }
}

/// Reads until the socket has no more bytes; returns whether more bytes can ever follow.
fn read_all(mut stream: &TcpStream, into: &mut Vec<u8>) -> bool {
    let mut part = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return false,
            Ok(length) => into.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}
