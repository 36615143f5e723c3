//! One server: requests over its pool, fencing of those that were never answered.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::connection::{Dialer, Fault, Identity, Link};
use super::pool::{Place, Pool, closed};
use crate::time::Instant;

/// A server of the topology.
#[derive(Debug)]
pub(crate) struct Server {
    dialer: Dialer,
    pool: Pool,
}

/// A connection outside the pool, for one thread's own use; it is made anew when it broke.
#[derive(Debug)]
pub(crate) struct Connection {
    server: Arc<Server>,
    link: Option<Link>,
}

impl Server {
    pub(crate) fn new(dialer: Dialer, most_connections: usize) -> Self {
        Self { dialer, pool: Pool::new(most_connections) }
    }

    /// Where the server is, without secrets.
    pub(crate) fn label(&self) -> String {
        self.dialer.address().to_string()
    }

    /// Sends one request over a pooled connection and waits for its reply. A reply that `read` does
    /// not know is none: the connection is out of step and is closed.
    pub(crate) fn request<T>(
        &self,
        request: &[u8],
        deadline: Instant,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Fault> {
        let mut link = self.take(deadline)?;
        let answer = link.request(request, deadline, read);
        self.put_away(link, is_usable(&answer));
        if is_of_replica(&answer) {
            self.leave_replica();
        }
        answer
    }

    /// Several round trips over one pooled connection; see [`Link::converse`].
    pub(crate) fn converse<T>(
        &self,
        deadline: Instant,
        talk: impl FnOnce(&mut dyn FnMut(&[Cmd]) -> Option<Vec<Value>>) -> Option<Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let mut link = self.take(deadline)?;
        let answer = link.converse(deadline, talk);
        self.put_away(link, answer.is_ok());
        if is_of_replica(&answer) {
            self.leave_replica();
        }
        answer
    }

    /// The connections lead to a replica: the next ones may lead to the master, where the name does by now.
    pub(crate) fn leave_replica(&self) {
        self.pool.close_idle();
    }

    fn take(&self, deadline: Instant) -> Result<Link, Fault> {
        match self.pool.take(deadline)? {
            Place::Ready(link) => Ok(link),
            Place::Free => {
                let dialled = self.dialer.dial(deadline, |stream| self.pool.opened(stream));
                dialled.inspect_err(|_| self.pool.give_up())
            }
        }
    }

    fn put_away(&self, link: Link, usable: bool) {
        if usable {
            self.pool.give_back(link);
        } else {
            // Its socket is closed before anybody fences or repeats.
            drop(link);
            self.pool.give_up();
        }
    }

    /// Makes sure that no request of a broken connection is carried out from now on: it has run,
    /// or it never will. `Ok(false)` when this server does not let us.
    pub(crate) fn fence(&self, identity: &Identity, deadline: Instant) -> Result<bool, Fault> {
        match self.request(&identity.kill().get_packed_command(), deadline, |reply| {
            matches!(reply, Value::Int(_) | Value::Okay).then_some(())
        }) {
            Ok(_) => Ok(true),
            Err(Fault::Refused(refusal)) if refusal.is_transient() => Err(Fault::Refused(refusal)),
            Err(Fault::Refused(_)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// A connection of its own for a thread that must not wait for the pool.
    pub(crate) fn connection(self: &Arc<Self>) -> Connection {
        Connection { server: Arc::clone(self), link: None }
    }

    pub(super) fn dial(&self, deadline: Instant) -> Result<Link, Fault> {
        if self.pool.is_closed() {
            return Err(closed());
        }
        self.dialer.dial(deadline, |stream| self.pool.opened(stream))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Closes connections idle for `limit`; says when to come again.
    pub(crate) fn trim(&self, now: Instant, limit: Duration) -> Option<Instant> {
        self.pool.trim(now, limit)
    }

    pub(crate) fn has_spare_connections(&self) -> bool {
        self.pool.has_spare()
    }

    /// Ends every request and closes every connection, the listening one included.
    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

impl Connection {
    /// Sends one request and waits for its reply; see [`Server::request`].
    pub(crate) fn request<T>(
        &mut self,
        request: &[u8],
        deadline: Instant,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Fault> {
        let mut link = self.take(deadline)?;
        let answer = link.request(request, deadline, read);
        if is_usable(&answer) {
            self.link = Some(link);
        }
        answer
    }

    /// Several round trips; see [`Link::converse`].
    pub(crate) fn converse<T>(
        &mut self,
        deadline: Instant,
        talk: impl FnOnce(&mut dyn FnMut(&[Cmd]) -> Option<Vec<Value>>) -> Option<Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let mut link = self.take(deadline)?;
        let answer = link.converse(deadline, talk);
        if answer.is_ok() {
            self.link = Some(link);
        }
        answer
    }

    /// Closes it; the next request makes it anew.
    pub(crate) fn hang_up(&mut self) {
        self.link = None;
    }

    fn take(&mut self, deadline: Instant) -> Result<Link, Fault> {
        match self.link.take() {
            Some(link) if !link.is_stale() => Ok(link),
            _ => self.server.dial(deadline),
        }
    }
}

/// Whether the connection is in step after this, and leads to where requests are carried out.
fn is_usable<T>(answer: &Result<T, Fault>) -> bool {
    match answer {
        Ok(_) => true,
        Err(Fault::Refused(refusal)) => !refusal.is_of_replica(),
        Err(_) => false,
    }
}

fn is_of_replica<T>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::Refused(refusal)) if refusal.is_of_replica())
}
