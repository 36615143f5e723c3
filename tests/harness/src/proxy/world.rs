//! The state of the proxy behind one mutex: the tests change the state and the proxy's thread acts on the changes.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use super::connection::{Connection, Context};
use super::opaque::Limit;
use super::records::Records;
use super::request::{Fate, Kind, Request};
use super::rule::{Direction, Rules};
use crate::ports::Port;

/// A set of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All connections, later connections included.
    All,
    /// One connection, by index.
    Connection(usize),
}

/// The treatment of a client that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewConnections {
    /// The client gets a connection to the server.
    Accept,
    /// The proxy closes the connection at once.
    CloseAtOnce,
    /// The system accepts the connection, but the proxy ignores the connection until this setting changes.
    Ignore,
    /// No socket listens on the port: the system refuses the connection.
    Refuse,
}

/// A copy of the proxy's knowledge of an open connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Counts the connections of the proxy, from 0.
    pub index: usize,
    /// False once the proxy has seen the client close.
    pub client_open: bool,
    /// False once the proxy has seen the server close.
    pub server_open: bool,
    /// Whether the client has sent a SUBSCRIBE of any kind.
    pub subscriber: bool,
    /// The address of the client; `None` for a connection that the proxy opened for a copy.
    pub client_address: Option<SocketAddr>,
    /// The address in the server's `CLIENT LIST`.
    pub server_side_address: Option<SocketAddr>,
    /// The number of bytes of the client that the proxy could not read, all bytes of TLS for example.
    pub opaque_requests: usize,
    /// The same for bytes of the server.
    pub opaque_replies: usize,
}

/// The state of a proxy.
#[derive(Debug)]
pub(super) struct World {
    pub(super) target: SocketAddr,
    pub(super) port: Port,
    pub(super) listener: Option<Arc<TcpListener>>,
    pub(super) new_connections: NewConnections,
    pub(super) connections: BTreeMap<usize, Connection>,
    pub(super) made: usize,
    pub(super) rules: Rules,
    pub(super) records: Records,
    pub(super) mutes: Vec<(Scope, Direction)>,
    /// Limits the bytes of later connections.
    pub(super) limit: Option<Limit>,
    pub(super) reset: bool,
    pub(super) stopping: bool,
    /// The number of rounds of the thread.
    pub(super) rounds: u64,
}

impl World {
    pub(super) fn new(target: SocketAddr, (port, listener): (Port, TcpListener)) -> World {
        World {
            target,
            port,
            listener: Some(prepared(listener)),
            new_connections: NewConnections::Accept,
            connections: BTreeMap::new(),
            made: 0,
            rules: Rules::default(),
            records: Records::default(),
            mutes: Vec::new(),
            limit: None,
            reset: false,
            stopping: false,
            rounds: 0,
        }
    }

    /// The listener, unless new connections are ignored.
    pub(super) fn watched_listener(&self) -> Option<&Arc<TcpListener>> {
        let ignored = self.new_connections == NewConnections::Ignore;
        self.listener.as_ref().filter(|_| !ignored)
    }

    pub(super) fn accept_all(&mut self) {
        let Some(listener) = self.watched_listener().cloned() else {
            return;
        };
        while let Ok((client, _)) = listener.accept() {
            let index = self.next_index();
            if self.new_connections == NewConnections::CloseAtOnce {
                continue;
            }
            // A server that is down closes the client's connection too.
            if let Ok(server) = self.dial() {
                let mut connection = Connection::new(index, Some(client), server);
                if let Some(limit) = self.limit {
                    connection.limit(limit);
                }
                self.connections.insert(index, connection);
            }
        }
    }

    pub(super) fn set_new_connections(&mut self, what: NewConnections) {
        self.new_connections = what;
        if what == NewConnections::Refuse {
            self.close_listener();
        } else if self.listener.is_none() {
            let started = Instant::now();
            while self.listener.is_none() {
                match self.port.listen_again() {
                    Ok(listener) => self.listener = Some(prepared(listener)),
                    Err(error) if started.elapsed() > BOUND => {
                        panic!("cannot listen on port {} again: {error}", self.port.number)
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        }
    }

    /// Ends the listening itself: another thread may be starting a process right now, and a starting process shares all
    /// sockets until the new program runs.
    fn close_listener(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = shutdown(&listener, Shutdown::Both); // an error where the system has no such thing
        }
    }

    /// Closes all sockets at once.
    pub(super) fn close(&mut self) {
        self.cut(Scope::All);
        self.close_listener();
    }

    /// Moves all bytes as far as possible, and returns the time of the next step that needs no event.
    pub(super) fn advance(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut next = None;
        let (mutes, mut context, connections) = self.parts();
        for connection in connections.values_mut() {
            let muted = muted(mutes, connection);
            let again = connection.advance(now, muted, &mut context);
            next = next.into_iter().chain(again).min();
        }
        connections.retain(|_, connection| !connection.is_over());
        next
    }

    pub(super) fn read_client(&mut self, index: usize) {
        let (_, mut context, connections) = self.parts();
        if let Some(connection) = connections.get_mut(&index) {
            connection.read_client(&mut context);
        }
    }

    pub(super) fn read_server(&mut self, index: usize) {
        let (_, mut context, connections) = self.parts();
        if let Some(connection) = connections.get_mut(&index) {
            connection.read_server(&mut context);
        }
    }

    pub(super) fn cut(&mut self, scope: Scope) {
        let (_, mut context, connections) = self.parts();
        for connection in connections.values_mut() {
            if is_in(scope, connection) {
                connection.cut(&mut context, "cut by the test");
            }
        }
        connections.retain(|_, connection| !connection.is_over());
    }

    pub(super) fn limit(&mut self, scope: Scope, limit: Limit) {
        if scope == Scope::All {
            self.limit = Some(limit);
        }
        for connection in self.connections.values_mut() {
            if is_in(scope, connection) {
                connection.limit(limit);
            }
        }
    }

    /// Ends every fault; held and delayed bytes go on.
    pub(super) fn heal(&mut self) {
        self.rules.remove_all();
        self.mutes.clear();
        self.limit = None;
        self.reset = false;
        self.connections.values_mut().for_each(Connection::heal);
        self.set_new_connections(NewConnections::Accept);
    }

    /// Sends a copy of a request on a new connection.
    pub(super) fn send_copy(&mut self, request: &Request) -> Request {
        let index = self.next_index();
        let copy = self.records.add(index, Kind::Copy, &request.bytes);
        match self.dial() {
            Ok(server) => {
                let mut connection = Connection::new(index, None, server);
                connection.send_copy(&copy);
                connection.finish();
                self.connections.insert(index, connection);
            }
            Err(error) => {
                let why = format!("cannot connect to the server: {error}");
                self.records.set_fate(copy.number, Fate::Failed(why));
            }
        }
        copy
    }

    pub(super) fn infos(&self) -> Vec<ConnectionInfo> {
        let info = |connection: &Connection| ConnectionInfo {
            index: connection.index,
            client_open: connection.client.is_some(),
            server_open: connection.server.is_some(),
            subscriber: connection.subscriber,
            client_address: connection.client_address,
            server_side_address: connection.server_side_address,
            opaque_requests: connection.opaque_requests.passed,
            opaque_replies: connection.opaque_replies.passed,
        };
        self.connections.values().map(info).collect()
    }

    fn parts(&mut self) -> (&[(Scope, Direction)], Context<'_>, &mut BTreeMap<usize, Connection>) {
        let context = Context { rules: &mut self.rules, records: &mut self.records, reset: self.reset };
        (&self.mutes, context, &mut self.connections)
    }

    fn next_index(&mut self) -> usize {
        self.made += 1;
        self.made - 1
    }

    fn dial(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect_timeout(&self.target, DIAL_BOUND)
    }
}

/// Whether requests and replies of this connection are muted.
fn muted(mutes: &[(Scope, Direction)], connection: &Connection) -> [bool; 2] {
    let of_scopes = mutes.iter().filter(|(scope, _)| is_in(*scope, connection));
    let all: Vec<Direction> = of_scopes.map(|(_, direction)| *direction).chain(connection.muted).collect();
    [Direction::Requests, Direction::Replies].map(|one| all.iter().any(|muted| [one, Direction::Both].contains(muted)))
}

fn is_in(scope: Scope, connection: &Connection) -> bool {
    match scope {
        Scope::All => true,
        Scope::Connection(index) => connection.index == index,
    }
}

fn prepared(listener: TcpListener) -> Arc<TcpListener> {
    listener.set_nonblocking(true).expect("a bound listener can be told not to block");
    Arc::new(listener)
}

const BOUND: Duration = Duration::from_secs(10);
/// The loop blocks meanwhile, but the server is on this machine.
const DIAL_BOUND: Duration = Duration::from_secs(1);
