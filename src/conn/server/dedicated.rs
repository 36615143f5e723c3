//! A connection outside the pool, for one thread.

use std::sync::Arc;

use redis::Value;

use super::{Server, is_usable};
use crate::conn::connection::Connection;
use crate::conn::dialer::Dialer;
use crate::conn::frame::Largest;
use crate::conn::introduction::{Hello, Purpose};
use crate::conn::trouble;
use crate::conn::waker::Sleeper;
use crate::error::Stop;
use crate::reply::{Pipeline, ask, command};
use crate::time::Instant;
use crate::transport::{Confirmation, Copies, Fault, Identity, Limits};

/// A connection outside the pool, for one thread. A broken connection is replaced at the next request.
pub(crate) struct DedicatedConnection {
    server: Arc<Server>,
    connection: Option<Box<Connection>>,
    /// The number of connections opened here so far.
    generation: u64,
    largest: Largest,
}

impl DedicatedConnection {
    pub(super) fn to(server: Arc<Server>) -> Self {
        Self { server, connection: None, generation: 0, largest: Largest::default() }
    }

    /// Accepts replies as long as a list of all connections of a server.
    pub(crate) fn for_long_replies(self) -> Self {
        Self { largest: Largest::LONG, ..self }
    }

    /// Waits for replicas over the connection of the last request; without that connection nothing can be confirmed.
    pub(crate) fn confirm(&mut self, confirmation: &Confirmation) -> Option<Copies> {
        let mut connection = self.connection.take()?;
        let copies = connection.confirm(confirmation, false).ok()?;
        self.connection = Some(connection);
        Some(copies)
    }

    /// Several round trips without a transaction; see [`Connection::round_trips`].
    pub(crate) fn round_trips<T>(
        &mut self,
        deadline: Instant,
        run: impl FnOnce(&mut Pipeline<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let mut connection = self.take(deadline)?;
        let answer = connection.round_trips(Limits::by(deadline), false, run);
        if is_usable(&answer) && !connection.is_logged_out {
            self.connection = Some(connection);
        }
        answer
    }

    /// Opens a connection unless one is open.
    pub(crate) fn open(&mut self, deadline: Instant) -> Result<(), Fault> {
        self.connection = Some(self.take(deadline)?);
        Ok(())
    }

    /// Whether the open connection reaches the server of the connection of `identity`, as far as addresses tell.
    pub(crate) fn leads_where(&self, identity: &Identity) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.leads_where(identity))
    }

    /// Redirects the invalidation messages about keys that this connection reads to the connection with the id
    /// `number`.
    pub(crate) fn track(&mut self, number: u64, deadline: Instant) -> Result<(), Fault> {
        let request = command("CLIENT", ("TRACKING", "ON", "REDIRECT", number, "NOLOOP"));
        self.round_trips(deadline, |send| if ask(send, request)? == Value::Okay { Ok(()) } else { Err(Stop::NoReply) })
    }

    /// Identifies the connection that is open now: a reconnect changes the number. `None` while none is open.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.connection.is_some().then_some(self.generation)
    }

    /// Sleeps until woken or until `until`. A connection that breaks is closed and ends the sleep.
    pub(crate) fn sleep(&mut self, sleeper: &Sleeper, until: Instant) {
        // No request is in flight here, so any byte of a reply makes the connection unusable.
        let has_bytes = sleeper.sleep(self.connection.as_deref(), until);
        if has_bytes && self.connection.as_mut().is_some_and(|connection| connection.is_stale()) {
            self.hang_up();
        }
    }

    /// Checks that the server that answered last is a master, as far as the server reports a role. Closes the
    /// connection to any other server.
    pub(crate) fn check_role(&mut self, deadline: Instant) -> Result<(), Fault> {
        let asked = self.generation();
        let answer = self.round_trips(deadline, |send| Ok(Hello::read(&ask(send, redis::cmd("HELLO"))?)));
        if asked != Some(self.generation) {
            // The new connection may lead to another server than the one that answered before.
            let error = trouble::at(&self.server.label(), "told no role: its connection was lost");
            return Err(Fault::NotSent(error));
        }
        let told = match answer {
            // `HELLO` is optional, as in the introduction.
            Err(Fault::Refused(_)) => return Ok(()),
            told => told?,
        };
        let Dialer { label, in_cluster, .. } = &self.server.dialer;
        told.check(label, Purpose::Locks, *in_cluster).inspect_err(|_| self.leave_replica())
    }

    /// Closes this connection and the idle ones of the pool: others may reach the master.
    pub(crate) fn leave_replica(&mut self) {
        self.server.leave_replica();
        self.hang_up();
    }

    /// Closes the connection; the next request opens another one.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
    }

    fn take(&mut self, deadline: Instant) -> Result<Box<Connection>, Fault> {
        if let Some(mut connection) = self.connection.take()
            && !connection.is_stale()
        {
            return Ok(connection);
        }
        let mut connection = self.server.dialer.dial(deadline)?;
        connection.buffer.largest = self.largest;
        self.generation += 1;
        Ok(connection)
    }
}
