//! One server: sends requests over its pool, and fences requests without an answer.

mod dedicated;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::connection::Connection;
use super::dialer::Dialer;
use super::down::Down;
use super::introduction::{Hello, Purpose};
use super::pool::Pool;
use super::server_start::Runs;
use super::single_flight::SingleFlight;
use super::trouble::{self, Moment};
use crate::error::{Error, Stop};
use crate::reply::{Pipeline, ask};
use crate::sync::Mutex;
use crate::time::Instant;
use crate::transport::{Confirmation, Copies, Fault, Identity, Limits, PubSub, Question, ServerNumber};
pub(crate) use dedicated::DedicatedConnection;

/// An answer, and the replicas that have the request, where its answer needs them.
pub(crate) type Confirmed<T> = Result<(T, Option<Copies>), Fault>;

/// A server of the topology.
pub(crate) struct Server {
    pub(super) dialer: Dialer,
    pub(super) pool: Pool,
    down: Mutex<Down>,
    pub(super) runs: Mutex<Runs>,
    connects: SingleFlight<Result<(), Error>>,
}

impl Server {
    pub(crate) fn new(dialer: Dialer, most_connections: usize) -> Self {
        let pool = Pool::new(Arc::clone(&dialer.label), most_connections);
        let connects = SingleFlight::new("lockson-dial");
        Self { dialer, pool, down: Mutex::default(), runs: Mutex::default(), connects }
    }

    pub(crate) fn number(&self) -> ServerNumber {
        self.dialer.number
    }

    /// Returns the address of the server without credentials.
    pub(crate) fn label(&self) -> String {
        self.dialer.label.to_string()
    }

    /// Sends the request of a call over a pooled connection and waits for the reply, with `ASKING` before it where the
    /// server gets the key at present, and with the wait for replicas that its answer may need. A reply that the call
    /// does not understand closes the connection, because requests and replies no longer match. A request that was
    /// refused because the login of the connection had ended is sent once more, over another connection.
    pub(super) fn ask<T>(&self, call: &dyn Question<Value, T>, asking: bool, limits: Limits) -> Confirmed<T> {
        let send = |connection: &mut Connection| connection.ask(call, asking, limits);
        self.confirmed(limits, send, |answer| call.confirmation(answer), asking, is_usable)
    }

    /// Several round trips over one pooled connection, with the wait for replicas that the answer may need; see
    /// [`Connection::round_trips`].
    pub(crate) fn round_trips<'a, T>(
        &self,
        limits: Limits,
        asking: bool,
        run: impl Fn(&mut Pipeline<'_>, PubSub) -> Result<T, Stop>,
        needs: impl FnOnce(&T) -> Option<&'a Confirmation>,
    ) -> Confirmed<T> {
        let send = |connection: &mut Connection| {
            let pub_sub = connection.pub_sub;
            connection.round_trips(limits, asking, |send| run(send, pub_sub))
        };
        self.confirmed(limits, send, needs, asking, Result::is_ok)
    }

    /// Several queries over one pooled connection, which stays in step also where one is refused.
    pub(super) fn questions<T>(
        &self,
        limits: Limits,
        run: impl Fn(&mut Pipeline<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let ask = |connection: &mut Connection| connection.round_trips(limits, false, &run);
        self.confirmed(limits, ask, |_| None, false, is_usable).map(|(answer, _)| answer)
    }

    /// Sends a request over a pooled connection, and what must confirm its answer over the same one.
    fn confirmed<'a, T>(
        &self,
        limits: Limits,
        send: impl Fn(&mut Connection) -> Result<T, Fault>,
        needs: impl FnOnce(&T) -> Option<&'a Confirmation>,
        asking: bool,
        is_usable: fn(&Confirmed<T>) -> bool,
    ) -> Confirmed<T> {
        let mut connection = self.take(limits.end)?;
        let mut answer = send(&mut connection);
        if connection.is_logged_out && matches!(answer, Err(Fault::NotSent(_))) {
            self.put_away(connection, false);
            connection = self.take(limits.end)?;
            answer = send(&mut connection);
        }
        let answer = answer.and_then(|answer| {
            // A confirmation without an answer leaves the request in doubt.
            let copies = needs(&answer).map(|needs| connection.confirm(needs, asking)).transpose()?;
            Ok((answer, copies))
        });
        self.put_away(connection, is_usable(&answer));
        if is_of_replica(&answer) {
            self.leave_replica();
        }
        answer
    }

    /// The kind of pub/sub of the client, which the first server that answers decides.
    pub(crate) fn pub_sub(&self) -> Option<PubSub> {
        self.dialer.pub_sub.get().copied()
    }

    /// Closes the idle connections to a server that became a replica: new connections may reach the master, if the
    /// host name points there by then.
    pub(crate) fn leave_replica(&self) {
        self.suspect();
        self.pool.close_idle();
    }

    /// Leaves a server that became a replica. It also answers questions, and requests for a lock that is busy, which
    /// write nothing. Members of a cluster, and servers that may move, are known otherwise.
    pub(crate) fn check_role(&self, deadline: Instant) {
        if self.dialer.in_cluster || self.dialer.locator.is_some() {
            return;
        }
        let told = self.questions(Limits::by(deadline), |send| Ok(Hello::read(&ask(send, redis::cmd("HELLO"))?)));
        if told.is_ok_and(|told| told.check(&self.dialer.label, Purpose::Locks, false).is_err()) {
            self.leave_replica();
        }
    }

    /// Whether the server has moved since the connection of this identity was opened.
    fn has_moved_since(&self, identity: &Identity) -> bool {
        self.dialer.locator.as_ref().is_some_and(|locator| locator.has_moved_since(identity))
    }

    /// Records a sign that the server may have moved.
    fn suspect(&self) {
        if let Some(locator) = &self.dialer.locator {
            locator.suspect();
        }
    }

    /// Returns an idle connection if there is one.
    pub(super) fn take_idle(&self) -> Result<Option<Box<Connection>>, Fault> {
        self.up_to_date(|| self.pool.take_idle())
    }

    fn take(&self, deadline: Instant) -> Result<Box<Connection>, Fault> {
        self.take_or_reserve(deadline)?.map_or_else(|| self.open_reserved(deadline), Ok)
    }

    /// Waits for an idle connection, or for a free slot. After `None` the caller opens the connection.
    pub(super) fn take_or_reserve(&self, deadline: Instant) -> Result<Option<Box<Connection>>, Fault> {
        self.up_to_date(|| self.pool.take(deadline))
    }

    fn up_to_date(
        &self,
        take: impl Fn() -> Result<Option<Box<Connection>>, Fault>,
    ) -> Result<Option<Box<Connection>>, Fault> {
        loop {
            match take()? {
                Some(connection) if self.dialer.is_outdated(&connection) => self.close_one(connection),
                taken => return Ok(taken),
            }
        }
    }

    /// Opens the connection of a reserved slot.
    pub(super) fn open_reserved(&self, deadline: Instant) -> Result<Box<Connection>, Fault> {
        let dialled = self.dialer.dial(deadline);
        if dialled.is_err() {
            self.pool.give_up();
        }
        if is_of_replica(&dialled) {
            self.leave_replica();
        }
        dialled
    }

    /// Returns the error of a server that is down; `None` if the server is not down.
    pub(crate) fn why_down(&self, now: Instant) -> Option<Error> {
        let since = self.down.lock().since(now)?;
        Some(trouble::is_down(&self.label(), since.until(now)))
    }

    /// Records an answer to a request that was sent at `sent`.
    pub(super) fn answered(&self, run_id: Option<&str>, sent: Instant) {
        self.down.lock().answered();
        if let Some(run_id) = run_id {
            self.runs.lock().answered(run_id, sent);
        }
    }

    /// Records that a request, or an attempt to connect, that began at `begun` had no answer.
    pub(super) fn did_not_answer(&self, begun: Instant) {
        self.down.lock().failed(begun, Instant::now());
    }

    /// Whether the caller is to call [`Server::try_again`], which must end before `deadline`.
    pub(crate) fn claim_trial(&self, now: Instant, deadline: Instant) -> bool {
        self.down.lock().claim_trial(now, deadline)
    }

    /// Finds out whether a server that is down answers again. The connection is kept for the next request.
    pub(crate) fn try_again(&self, deadline: Instant) {
        match self.dialer.dial(deadline) {
            Ok(connection) => {
                self.pool.adopt(connection);
                self.down.lock().answered();
            }
            // The server answers, so the next request tells its caller the cause.
            Err(Fault::Refused(_)) => self.down.lock().answered(),
            Err(_) => self.down.lock().trial_failed(Instant::now()),
        }
    }

    /// Closes a connection of the pool. The socket must be closed before the request is fenced or repeated.
    fn close_one(&self, connection: Box<Connection>) {
        drop(connection);
        self.pool.give_up();
    }

    /// Returns a connection to the pool, or closes it.
    pub(super) fn put_away(&self, connection: Box<Connection>, usable: bool) {
        if usable && !connection.is_logged_out {
            self.pool.give_back(connection);
        } else {
            // The cause may affect idle connections as well, for instance a gateway that lost its table.
            let closes_idle = connection.is_mute || connection.is_logged_out;
            self.suspect();
            self.close_one(connection);
            if closes_idle {
                self.pool.close_idle();
            }
        }
    }

    /// Ensures that the server runs no request of a broken connection from now on. Returns `Ok(false)` when the user
    /// has no right to kill connections, or when the connection led to another server.
    ///
    /// After a fail-over nothing is sent to the machine that was left: the master may hang, and late writes of the
    /// master are over when the master becomes a replica.
    pub(crate) fn fence(&self, identity: &Identity, limits: Limits) -> Result<bool, Fault> {
        if self.has_moved_since(identity) {
            return Ok(false);
        }
        let mut connection = self.take(limits.end)?;
        if !connection.leads_where(identity) {
            // By now the host name leads to another server, which never saw the request.
            self.put_away(connection, true);
            return Ok(false);
        }
        let outcome = kill(&mut connection, identity, limits);
        // Servers on two machines may have the same inner address.
        let is_there = matches!(outcome, Ok(true)) || connection.peer() == identity.peer;
        self.put_away(connection, is_usable(&outcome));
        Ok(fenced(outcome)? && is_there)
    }

    /// Makes a connection for a thread that must not wait for the pool.
    pub(crate) fn connection(self: &Arc<Self>) -> DedicatedConnection {
        DedicatedConnection::to(Arc::clone(self))
    }

    /// Whether a connection is idle.
    pub(super) fn is_connected(&self) -> bool {
        let idle = self.take_idle().ok().flatten();
        idle.map(|connection| self.put_away(connection, true)).is_some()
    }

    /// Opens a connection for later requests. The dial lasts up to `limit`, also where the caller waits no longer: it
    /// serves a later caller then.
    pub(super) fn connect(self: &Arc<Self>, deadline: Instant, limit: Duration) -> Result<(), Error> {
        let (begun, server) = (Instant::now(), Arc::clone(self));
        let connected = self.connects.ask(0, deadline, move |_| {
            let connection = server.dialer.dial(Instant::now().after(limit)).map_err(Fault::into_error)?;
            server.pool.adopt(connection);
            Ok(())
        });
        let late = |error| trouble::failed(&self.label(), Moment::Request, error, begun.until(deadline));
        connected.map_err(late)?.1
    }

    /// Fences a copy at a member of a cluster, which may not store keys any more. `Ok` when the copy is over, or cannot
    /// be fenced.
    pub(super) fn fence_afterwards(&self, copy: &Identity, deadline: Instant) -> Result<(), Fault> {
        let mut connection = self.dialer.dial_for(Purpose::AnyRole, deadline)?;
        if !connection.leads_where(copy) {
            return Ok(());
        }
        fenced(kill(&mut connection, copy, Limits::by(deadline))).map(drop)
    }

    /// Closes connections that were idle for `limit`. Returns the time of the next check.
    pub(crate) fn trim(&self, now: Instant, limit: Duration) -> Option<Instant> {
        self.pool.trim(now, limit)
    }

    pub(crate) fn has_spare_connections(&self) -> bool {
        self.pool.has_spare.load(Ordering::Acquire)
    }

    /// Ends every request and closes every connection, the listening connection included.
    pub(crate) fn close(&self) {
        self.pool.close();
        self.dialer.close();
    }
}

/// Ends a connection on the server. Returns whether it was still there.
fn kill(connection: &mut Connection, identity: &Identity, limits: Limits) -> Result<bool, Fault> {
    connection.round_trips(limits, false, |send| match ask(send, identity.kill())? {
        Value::Int(ended) => Ok(ended > 0),
        Value::Okay => Ok(true),
        _ => Err(Stop::NoReply),
    })
}

fn fenced(outcome: Result<bool, Fault>) -> Result<bool, Fault> {
    match outcome {
        Ok(_) => Ok(true),
        Err(Fault::Refused(refusal)) if refusal.is_transient() => Err(Fault::Refused(refusal)),
        Err(Fault::Refused(_)) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Whether requests and replies still match, and the server runs writes.
fn is_usable<T>(answer: &Result<T, Fault>) -> bool {
    match answer {
        Ok(_) => true,
        Err(Fault::Refused(refusal)) => !refusal.is_of_replica(),
        Err(_) => false,
    }
}

pub(super) fn is_of_replica<T>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::Refused(refusal)) if refusal.is_of_replica())
}

#[cfg(test)]
mod tests;
