//! Several requests at once by one thread: pipelined to each server, and all servers side by side.

mod confirmed;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::asking::{asking, with_asked};
use super::connection::Connection;
use super::server::{Confirmed, Server, is_of_replica};
use super::side_by_side::by_server;
use super::stream::timed_out;
use super::trouble;
use crate::error::{Error, ErrorKind};
use crate::system::{poll, thread};
use crate::time::Instant;
use crate::transport::{Confirmation, Fault, Fitness, Limits, Question, ServerNumber};
use confirmed::confirm_all;

/// One of several requests.
pub(crate) struct Request<'a, T> {
    pub(crate) server: Arc<Server>,
    /// Whether the server gets the key at present, and the request must say so.
    pub(crate) asking: bool,
    pub(crate) limits: Limits,
    pub(crate) fitness: Fitness,
    pub(crate) call: &'a dyn Question<Value, T>,
    /// Whether the request has the source of its script.
    pub(crate) whole: bool,
}

/// The outcome of one of several requests.
#[derive(Debug)]
pub(crate) struct Response<T> {
    /// The server that was asked.
    pub(crate) server: ServerNumber,
    pub(crate) answer: Confirmed<T>,
    /// A time before the request was sent, from which leases are counted.
    pub(crate) sent: Instant,
    /// The time when the fault was known. With an answer this time means nothing.
    pub(crate) ended: Instant,
    /// The run of the server process, where a request with an [age](Fitness::age) asked for it: two addresses with the
    /// same run are one server.
    pub(crate) run_id: Option<Arc<str>>,
}

impl<T> Response<T> {
    pub(crate) fn of(server: &Server, answer: Confirmed<T>, sent: Instant) -> Self {
        let ended = if answer.is_ok() { sent } else { Instant::now() };
        Self { server: server.number(), answer, sent, ended, run_id: None }
    }
}

/// Sends all requests and returns their outcomes in the same order.
///
/// The requests to one server are pipelined over one connection. All servers are written to before any reply is
/// awaited, so the call takes as long as the slowest server, and a silent server delays no answer of another one.
///
/// This thread uses idle connections and waits for no pool while it has any, so two threads with exhausted pools
/// cannot wait for each other. Where a connection must be opened or awaited, one thread for each such server does so.
pub(crate) fn gather<T: Send>(mut requests: Vec<Request<'_, T>>) -> Vec<Response<T>> {
    if requests.len() <= 1 {
        return requests.pop().map(|request| vec![ask(request, Instant::now())]).unwrap_or_default();
    }
    let (mut ready, mut waiting) = (vec![], vec![]);
    let requests = requests.into_iter().enumerate().map(|(place, one)| (Arc::clone(&one.server), (place, one)));
    for (server, requests) in by_server(requests) {
        let mut pipeline = Pipeline::new(server, requests);
        if pipeline.begin_if_idle() { ready.push(pipeline) } else { waiting.push(pipeline) }
    }
    on_threads(waiting.iter_mut().collect(), Pipeline::run_alone, || {
        run(&mut ready);
        confirm_all(&mut ready);
    });
    // Where the login of a connection ended, the rest goes over another one.
    on_threads(ready.iter_mut().filter(|pipeline| !pipeline.requests.is_empty()).collect(), Pipeline::run_alone, || {});
    let mut outcomes: Vec<_> = ready.into_iter().chain(waiting).flat_map(|pipeline| pipeline.outcomes).collect();
    outcomes.sort_by_key(|(place, _)| *place);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Does the work of each pipeline on a thread of its own, beside `own`. The work is nothing where it is done.
fn on_threads<P: Send>(mut pipelines: Vec<&mut P>, work: fn(&mut P), own: impl FnOnce()) {
    if pipelines.is_empty() {
        return own();
    }
    thread::scope(|scope| {
        for pipeline in &mut pipelines {
            // A thread that cannot be started leaves its pipeline for later.
            let _ = thread::Builder::new().name("lockson-dial".into()).spawn_scoped(scope, || work(pipeline));
        }
        own();
    });
    pipelines.into_iter().for_each(work);
}

/// Sends one request after `sent`.
pub(crate) fn ask<T>(request: Request<'_, T>, sent: Instant) -> Response<T> {
    if request.fitness != Fitness::default() {
        let mut pipeline = Pipeline::new(Arc::clone(&request.server), vec![(0, request)]);
        pipeline.run_alone();
        // A pipeline that has run has an outcome for each request, so the last one is that of this request.
        let none = || Err(Fault::NotSent(trouble::no_time(&pipeline.server.label())));
        let outcome = pipeline.outcomes.pop().map(|(_, outcome)| outcome);
        return outcome.unwrap_or_else(|| Response::of(&pipeline.server, none(), Instant::now()));
    }
    let Request { server, asking, limits, call, .. } = request;
    Response::of(&server, server.ask(call, asking, limits), sent)
}

/// The requests to one server, sent in batches over one connection.
struct Pipeline<'a, T> {
    server: Arc<Server>,
    /// Whether a server that is down does not get the requests.
    needs_it_up: bool,
    /// The requests to send, each with its place among all requests.
    requests: VecDeque<(usize, Request<'a, T>)>,
    /// The requests of the batch, which are sent in one write, each with its end among the bytes.
    under_way: VecDeque<(usize, Request<'a, T>, usize)>,
    /// The outcomes so far, by the places of their requests.
    outcomes: Vec<(usize, Response<T>)>,
    /// Set while requests are under way, and until the answers are confirmed.
    connection: Option<Box<Connection>>,
    /// The bytes of the batch.
    bytes: Vec<u8>,
    /// The number of bytes that the system took.
    written: usize,
    begun: Instant,
    /// The deadline of the batch, which is that of its last request to pass; it is set anew when all bytes are
    /// written.
    deadline: Instant,
    /// The reply to the `ASKING` before the next request, once it was read.
    asked: Option<Value>,
    /// Whether the server refused a request because it is a replica.
    is_replica: bool,
    run_id: Option<Arc<str>>,
    /// The latest time at which the server started, where the connection asked for it.
    started: Option<Instant>,
    /// The step that confirms the answers at these places among the outcomes, after an `ASKING` or not.
    confirmation: Option<(Confirmation, bool)>,
    unconfirmed: Vec<usize>,
}

/// Moves the bytes of several pipelines until each has its outcomes.
fn run<T>(pipelines: &mut [Pipeline<'_, T>]) {
    loop {
        let now = Instant::now();
        let (mut nap, mut fds) = (Duration::MAX, vec![]);
        for pipeline in pipelines.iter().filter(|pipeline| !pipeline.under_way.is_empty()) {
            let Some(connection) = &pipeline.connection else { continue };
            nap = nap.min(now.nap_until(pipeline.deadline));
            fds.push(PollFd::from_borrowed_fd(connection.stream().as_fd(), pipeline.events()));
        }
        if fds.is_empty() {
            return;
        }
        // A signal, or a stop of this process, hides events. After another error no event is set.
        if poll(&mut fds, Timespec::try_from(nap).ok().as_ref()) == Err(Errno::INTR) {
            continue;
        }
        let has_events: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let under_way = pipelines.iter_mut().filter(|pipeline| !pipeline.under_way.is_empty());
        for (pipeline, has_events) in under_way.zip(has_events) {
            if has_events {
                pipeline.advance();
            }
            // Also after an event: a server that sends single bytes must not prolong the batch.
            if !pipeline.under_way.is_empty() && pipeline.deadline <= Instant::now() {
                pipeline.break_off(timed_out());
            }
        }
    }
}

impl<'a, T> Pipeline<'a, T> {
    fn new(server: Arc<Server>, requests: Vec<(usize, Request<'a, T>)>) -> Self {
        Self {
            server,
            needs_it_up: requests.iter().all(|(_, request)| request.fitness.is_up),
            requests: requests.into(),
            under_way: VecDeque::new(),
            outcomes: vec![],
            connection: None,
            bytes: vec![],
            written: 0,
            begun: Instant::default(),
            deadline: Instant::default(),
            asked: None,
            is_replica: false,
            run_id: None,
            started: None,
            confirmation: None,
            unconfirmed: vec![],
        }
    }

    /// Begins over an idle connection. Returns `false` if none is idle.
    fn begin_if_idle(&mut self) -> bool {
        if self.is_skipped() {
            return true;
        }
        match self.server.take_idle() {
            Ok(Some(connection)) => self.begin(connection),
            Ok(None) => return false,
            Err(fault) => self.fail(&fault),
        }
        true
    }

    /// Opens a connection, or waits for one, and sends all requests. Does nothing for a pipeline that has run.
    fn run_alone(&mut self) {
        if self.requests.is_empty() || self.is_skipped() {
            return;
        }
        let end = self.requests.iter().map(|(_, request)| request.limits.end).max().unwrap_or_else(Instant::now);
        let begun = Instant::now();
        match self.server.take_or_reserve(end) {
            Ok(Some(connection)) => self.begin(connection),
            Ok(None) => match self.server.open_reserved(end) {
                Ok(connection) => self.begin(connection),
                Err(fault) => {
                    if matches!(&fault, Fault::NotSent(error) if error.kind() == ErrorKind::Connection) {
                        self.did_not_answer(begun);
                    }
                    self.fail(&fault);
                }
            },
            Err(fault) => self.fail(&fault),
        }
        run(std::slice::from_mut(self));
        self.confirm();
        self.run_alone();
    }

    /// Ends the requests to a server that is down, where they are not sent to such a server. Asks new connections
    /// when the server started, where a request must know that.
    fn is_skipped(&mut self) -> bool {
        if self.requests.iter().any(|(_, request)| request.fitness.age.is_some()) {
            self.server.dialer.ask_start();
        }
        if !self.needs_it_up {
            return false;
        }
        let Some(error) = self.server.why_down(Instant::now()) else { return false };
        self.fail(&Fault::NotSent(error));
        true
    }

    /// Records that the server did not answer since `begun`.
    fn did_not_answer(&self, begun: Instant) {
        if self.needs_it_up {
            self.server.did_not_answer(begun);
        }
    }

    fn begin(&mut self, connection: Box<Connection>) {
        if let Some(server_start) = &connection.server_start {
            self.run_id = Some(Arc::clone(&server_start.run_id));
            self.started = Some(self.server.runs.lock().learn(server_start));
        }
        self.connection = Some(connection);
        self.begin_batch();
    }

    /// Sends the next batch; puts the connection away when all requests have outcomes that need no confirmation.
    fn begin_batch(&mut self) {
        let now = Instant::now();
        (self.begun, self.deadline, self.written) = (now, now, 0);
        self.bytes.clear();
        let pub_sub = self.connection.as_ref().map(|connection| connection.pub_sub).unwrap_or_default();
        while self.under_way.len() < MOST_IN_A_BATCH
            && let Some((place, request)) = self.requests.pop_front()
        {
            if let Some(error) = self.obstacle(&request, now) {
                self.end_one(place, Err(Fault::NotSent(error)), now);
                continue;
            }
            if request.asking {
                self.bytes.extend(asking());
            }
            request.call.pack(request.whole, pub_sub, &mut self.bytes);
            self.deadline = self.deadline.max(request.limits.end);
            self.under_way.push_back((place, request, self.bytes.len()));
        }
        if !self.under_way.is_empty() {
            return self.write();
        }
        let answered = |outcome: &&Response<T>| matches!(outcome.answer, Ok(_) | Err(Fault::Refused(_)));
        if let Some(last) = self.outcomes.iter().map(|(_, outcome)| outcome).rfind(answered) {
            self.server.answered(self.run_id.as_deref(), last.sent);
        }
        if self.confirmation.is_none()
            && let Some(connection) = self.connection.take()
        {
            self.put_away(connection);
        }
    }

    fn put_away(&self, connection: Box<Connection>) {
        self.server.put_away(connection, !self.is_replica);
        if self.is_replica {
            self.server.leave_replica();
        }
    }

    /// The reason not to send a request over the connection.
    fn obstacle(&self, request: &Request<'_, T>, now: Instant) -> Option<Error> {
        if request.limits.end <= now {
            return Some(trouble::no_time(&self.server.label()));
        }
        let started = self.started?;
        let Fitness { age, advice, .. } = request.fitness;
        let fit = started.after(age?);
        let (label, age) = (self.server.label(), started.until(now));
        (now < fit).then(|| trouble::started_lately(&label, age, now.until(fit), advice))
    }

    fn end_one(&mut self, place: usize, answer: Result<T, Fault>, sent: Instant) {
        let outcome = Response::of(&self.server, answer.map(|answer| (answer, None)), sent);
        self.outcomes.push((place, Response { run_id: self.run_id.clone(), ..outcome }));
    }

    fn is_written(&self) -> bool {
        let has_sealed = self.connection.as_ref().is_some_and(|connection| connection.socket.has_sealed());
        self.written == self.bytes.len() && !has_sealed
    }

    /// The events to wait for.
    fn events(&self) -> PollFlags {
        // A server may answer the first requests while its buffer is too full for the last ones.
        if self.is_written() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    fn write(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        match connection.socket.write_now(&self.bytes[self.written..]) {
            Ok(written) => self.written += written,
            Err(error) => return self.break_off(error),
        }
        if self.is_written() {
            let deadline = self.under_way.iter().map(|(_, request, _)| request.limits.answer_by()).max();
            self.deadline = deadline.unwrap_or(self.deadline);
        }
    }

    /// Writes and reads what is possible at once.
    fn advance(&mut self) {
        if !self.is_written() {
            self.write();
        }
        if let Err(error) = self.read() {
            return self.break_off(error);
        }
        if !self.under_way.is_empty() {
            return;
        }
        let is_over = |connection: &mut Box<Connection>| connection.is_logged_out && !self.requests.is_empty();
        if let Some(connection) = self.connection.take_if(is_over) {
            // Nothing can be confirmed over it.
            let identity = connection.identity.clone().map(Box::new);
            self.unconfirmed_are_lost(&Fault::Unanswered(identity, connection.login_ended()));
            (self.confirmation, self.unconfirmed) = (None, vec![]);
            return self.server.put_away(connection, false);
        }
        let Some(connection) = &mut self.connection else { return };
        if !self.requests.is_empty() && connection.is_stale() {
            // A reply to no request would be read as the reply to the next one.
            return self.break_off(trouble::odd_reply());
        }
        self.begin_batch();
    }

    fn read(&mut self) -> io::Result<()> {
        if let Some(connection) = &mut self.connection {
            connection.fill(None)?;
        }
        while let Some((_, request, end)) = self.under_way.front()
            && let Some(connection) = &mut self.connection
            && let Some(reply) = connection.buffer.take()?
        {
            if *end > self.written {
                return Err(trouble::odd_reply());
            }
            if request.asking && self.asked.is_none() {
                self.asked = Some(reply);
                continue;
            }
            let reply = with_asked(self.asked.take(), reply);
            let answer = connection.interpret(&reply, |reply| request.call.read(reply))?;
            let Some((place, request, _)) = self.under_way.pop_front() else { break };
            self.is_replica |= is_of_replica(&answer);
            match &answer {
                Err(Fault::Refused(refusal)) if refusal.word() == "NOSCRIPT" && !request.whole => {
                    // At once, because the other servers may take all the time there is.
                    self.requests.push_back((place, Request { whole: true, ..request }));
                    continue;
                }
                // The login of this connection has ended.
                Err(Fault::NotSent(_)) => {
                    self.requests.push_back((place, request));
                    continue;
                }
                Ok(answer) => self.wait_to_confirm(&request, answer),
                Err(_) => {}
            }
            self.end_one(place, answer, self.begun);
        }
        Ok(())
    }

    /// Ends all requests without an outcome, and closes the connection.
    fn break_off(&mut self, error: io::Error) {
        let Some(mut connection) = self.connection.take() else { return };
        let unanswered = connection.broke(error, self.begun.until(self.deadline));
        let not_sent = Fault::NotSent(unanswered.clone().into_error());
        for (place, _, end) in std::mem::take(&mut self.under_way) {
            // The server received at most the bytes that the system took.
            let fault = if end <= self.written { &unanswered } else { &not_sent };
            self.end_one(place, Err(fault.clone()), self.begun);
        }
        self.unconfirmed_are_lost(&unanswered);
        self.did_not_answer(self.begun);
        self.server.put_away(connection, false);
        self.fail(&not_sent);
    }

    /// Ends all requests that were not sent.
    fn fail(&mut self, fault: &Fault) {
        let now = Instant::now();
        for (place, _) in std::mem::take(&mut self.requests) {
            self.end_one(place, Err(fault.clone()), now);
        }
    }
}

/// So many replies are small enough for the buffers of a server, and other clients of the server are served between
/// two batches.
const MOST_IN_A_BATCH: usize = 100;

#[cfg(test)]
mod tests;
