//! The idle connections of one server, and a limit for the open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connection::Connection;
use super::trouble;
use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::time::Instant;
use crate::transport::Fault;

/// A pool that grows to its limit under load and shrinks to one connection when idle.
pub(super) struct Pool {
    /// The server as error texts show it.
    server: Arc<str>,
    most: usize,
    state: Mutex<State>,
    freed: Condvar,
    /// Whether several connections were idle when the last one was returned, for [`Pool::trim`] to close later; read
    /// without the mutex after each request.
    pub(super) has_spare: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Sorted by last use: the front is closed first.
    idle: Vec<(Box<Connection>, Instant)>,
    open: usize,
    waiting: usize,
    closed: bool,
}

impl Pool {
    pub(super) fn new(server: Arc<str>, most: usize) -> Self {
        let has_spare = AtomicBool::new(false);
        Self { server, most, state: Mutex::default(), freed: Condvar::new(), has_spare }
    }

    /// Waits for an idle connection, or for a free slot. `None` reserves a slot: the caller opens the connection.
    pub(super) fn take(&self, deadline: Instant) -> Result<Option<Box<Connection>>, Fault> {
        let mut state = self.state.lock();
        loop {
            state = match self.pop_idle(state) {
                Ok(connection) => return Ok(Some(connection)),
                Err(state) => state,
            };
            // The pool may have closed while a stale connection was dropped.
            if state.closed {
                return Err(Fault::NotSent(trouble::closed()));
            }
            if state.open < self.most {
                state.open += 1;
                return Ok(None);
            }
            let left = Instant::now().until(deadline);
            if left.is_zero() {
                let text = format!("all {} connections to redis at {} stayed in use", self.most, self.server);
                let error = Error::new(ErrorKind::Connection, text);
                return Err(Fault::NotSent(error.advising("raise max_connections or use fewer threads")));
            }
            state.waiting += 1;
            state = self.freed.wait_for(state, left);
            state.waiting -= 1;
        }
    }

    /// Returns an idle connection if there is one. `None` reserves nothing.
    pub(super) fn take_idle(&self) -> Result<Option<Box<Connection>>, Fault> {
        let state = self.state.lock();
        if state.closed { Err(Fault::NotSent(trouble::closed())) } else { Ok(self.pop_idle(state).ok()) }
    }

    /// Takes the idle connection that was used last, and drops stale ones. Returns the state where none is idle.
    fn pop_idle<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<Box<Connection>, MutexGuard<'a, State>> {
        while let Some((mut connection, _)) = state.idle.pop() {
            drop(state);
            // This check costs one system call, on every request: an unexpected byte would be read as the reply to
            // the next request.
            if !connection.is_stale() {
                return Ok(connection);
            }
            drop(connection);
            state = self.state.lock();
            state.open -= 1;
            self.tell_one(&state);
        }
        Err(state)
    }

    pub(super) fn give_back(&self, mut connection: Box<Connection>) {
        let mut state = self.state.lock();
        if state.closed {
            state.open -= 1;
            return;
        }
        connection.is_proven = true;
        state.idle.push((connection, Instant::now()));
        self.has_spare.store(state.idle.len() > 1, Ordering::Release);
        self.tell_one(&state);
    }

    /// Keeps a connection that was opened without a slot; closes it if no slot is free.
    pub(super) fn adopt(&self, connection: Box<Connection>) {
        let mut state = self.state.lock();
        // The state is free again before the connection is dropped.
        if state.open < self.most {
            state.open += 1;
            drop(state);
            self.give_back(connection);
        }
    }

    /// Frees the slot of a connection that broke or was never opened.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        state.open -= 1;
        self.tell_one(&state);
    }

    /// Closes the idle connections.
    pub(super) fn close_idle(&self) {
        self.drop_idle(self.state.lock());
    }

    fn drop_idle(&self, mut state: MutexGuard<'_, State>) {
        let idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        if state.waiting > 0 {
            self.freed.notify_all();
        }
        // Before the connections are.
        drop(state);
    }

    /// Closes connections that were idle for `limit`, except the last used one. Returns the time of the next check.
    pub(super) fn trim(&self, now: Instant, limit: Duration) -> Option<Instant> {
        // Declared first, and so dropped when the state is free again.
        let mut closing = vec![];
        let mut state = self.state.lock();
        while state.idle.len() > 1 && state.idle[0].1.after(limit) <= now {
            closing.push(state.idle.remove(0));
            state.open -= 1;
        }
        (state.idle.len() > 1).then(|| state.idle[0].1.after(limit))
    }

    /// Closes the idle connections, and keeps no other one any more.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.drop_idle(state);
    }

    fn tell_one(&self, state: &State) {
        if state.waiting > 0 {
            self.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::conn::socket::Socket;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn a_full_pool_says_which_server_and_what_to_do() {
        let pool = Pool::new("h:1/0".into(), 1);
        assert!(matches!(pool.take(Instant::now()), Ok(None)));
        let Err(Fault::NotSent(error)) = pool.take(Instant::now()) else { panic!("the only slot is in use") };
        assert_eq!(error.kind(), ErrorKind::Connection);
        let text = "all 1 connections to redis at h:1/0 stayed in use; raise max_connections or use fewer threads";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn the_end_of_a_connection_makes_room_for_a_waiter_at_once() {
        let pool = Pool::new("h:1/0".into(), 1);
        assert!(matches!(pool.take(Instant::now()), Ok(None)));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take(Instant::now().after(SOON)).is_ok());
            let begun = Instant::now();
            while pool.state.lock().waiting == 0 {
                assert!(begun.until(Instant::now()) < SOON, "nobody waits");
                thread::yield_now();
            }
            pool.give_up();
            assert!(waiter.join().unwrap());
            assert!(begun.until(Instant::now()) < SOON / 2, "it was woken, not by its own deadline");
        });
    }

    #[test]
    fn a_pool_that_closes_beside_stale_connections_ends_the_call() {
        let begun = Instant::now();
        while begun.until(Instant::now()) < SOON {
            let pool = pool_of_stale_connections();
            let (is_between, taken) = thread::scope(|scope| {
                let taker = scope.spawn(|| pool.take(Instant::now()));
                let is_between = loop {
                    let mut state = pool.state.lock();
                    if state.idle.len() < pool.most {
                        state.closed = true;
                        break !std::mem::take(&mut state.idle).is_empty();
                    }
                };
                (is_between, taker.join().unwrap())
            });
            if is_between {
                let Err(Fault::NotSent(error)) = taken else { panic!("a closed pool opens connections") };
                assert_eq!(error.kind(), ErrorKind::Closed);
                return;
            }
        }
        panic!("the pool was never closed between two stale connections");
    }

    /// All are idle, and the server has closed them.
    fn pool_of_stale_connections() -> Pool {
        let pool = Pool::new("h:1/0".into(), 50);
        for _ in 0..pool.most {
            let (stream, _) = UnixStream::pair().unwrap();
            let socket = Socket::over(stream.into());
            pool.adopt(Box::new(Connection::new(socket, Arc::clone(&pool.server))));
        }
        pool
    }
}
