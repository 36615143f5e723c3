//! A proxy between clients and a server that reads the requests and can disturb each.

mod connection;
mod expected;
mod frame;
mod lane;
mod opaque;
mod records;
mod request;
mod rule;
mod run;
mod world;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::ports::Port;

pub use opaque::AtByte;
pub use request::{Fate, Request, When};
pub use rule::{Direction, HUGE_BULK_HEADER, Then};
pub use world::{ConnectionInfo, NewConnections, Scope};

use opaque::Limit;
use run::Shared;
use world::World;

/// A TCP proxy in front of one server, on a free port of 127.0.0.1.
///
/// Bytes pass unchanged unless a test changes something. The proxy reads requests as arrays or lines, and replies in
/// both protocol versions; other bytes, TLS for example, pass unrecorded. `CLIENT REPLY` and `MONITOR` are unsupported,
/// because replies no longer pair with requests afterwards. When a method returns, the change has taken effect.
///
/// Dropping the proxy closes all sockets and ends the thread.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    port: u16,
}

impl Proxy {
    /// Starts a proxy in front of this address.
    pub fn start(target: SocketAddr) -> Proxy {
        let world = World::new(target, Port::listen());
        let port = world.port.number;
        let shared = Arc::new(Shared::new(world));
        let running = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("harness-proxy".to_owned())
            .spawn(move || running.run())
            .expect("cannot start a thread");
        Proxy { shared, thread: Some(thread), port }
    }

    /// The address to connect to.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of database 0.
    pub fn url(&self) -> String {
        self.url_db(0)
    }

    /// The address of a database.
    pub fn url_db(&self, database: u32) -> String {
        format!("redis://127.0.0.1:{}/{database}", self.port)
    }

    /// Connects later clients to another server.
    pub fn retarget(&self, target: SocketAddr) {
        self.change(|world| world.target = target);
    }

    /// Makes a rule: a fault for the fitting requests.
    ///
    /// Where several rules fit one request, the oldest rule about requests acts, and the oldest rule about replies; the
    /// other rules only count the request.
    ///
    /// # Panics
    ///
    /// Panics when an action on requests is to act on messages of the server.
    #[track_caller]
    pub fn rule(&self, when: When, then: Then) -> RuleHandle {
        let sensible = then.is_for_replies() || !when.is_for_messages();
        assert!(sensible, "a message is no request: {then:?}");
        let id = self.change(|world| world.rules.add(when, then));
        RuleHandle { shared: Arc::clone(&self.shared), id }
    }

    /// Stops forwarding but keeps the sockets open, as when a cable is pulled.
    ///
    /// Bytes that arrive meanwhile, ends of connections included, are kept and forwarded after [`heal`](Proxy::heal) or
    /// [`unmute`](Proxy::unmute), as TCP would do.
    pub fn mute(&self, scope: Scope, direction: Direction) {
        self.change(|world| world.mutes.push((scope, direction)));
    }

    /// Ends every `mute`, and all muting by rules.
    pub fn unmute(&self) {
        self.change(|world| {
            world.mutes.clear();
            for connection in world.connections.values_mut() {
                connection.muted = None;
            }
        });
    }

    /// Lets so many further bytes pass, and then cuts or holds, on connections whose bytes the proxy cannot read.
    ///
    /// With no byte left to pass, the next byte brings the end. [`Scope::All`] includes later connections, each with a
    /// count of its own. [`heal`](Proxy::heal) ends the limit.
    pub fn limit_bytes(&self, scope: Scope, direction: Direction, bytes: usize, then: AtByte) {
        self.change(|world| world.limit(scope, Limit { direction, left: bytes, then }));
    }

    /// Closes connections now, both sides.
    pub fn cut(&self, scope: Scope) {
        self.change(|world| world.cut(scope));
    }

    /// Makes cuts reach the client as a reset instead of an orderly end.
    pub fn cut_by_reset(&self, reset: bool) {
        self.change(|world| world.reset = reset);
    }

    /// Sets the treatment of clients that connect later.
    pub fn new_connections(&self, what: NewConnections) {
        self.change(|world| world.set_new_connections(what));
    }

    /// Sends a copy of an earlier request on a new connection to the server, past all rules.
    ///
    /// The new connection sends neither a password nor the choice of a database.
    pub fn send_copy_anew(&self, request: &Request) -> Request {
        self.change(|world| world.send_copy(request))
    }

    /// Ends every fault: removes all rules, releases all held, delayed or muted bytes, and accepts connections again.
    pub fn heal(&self) {
        self.change(World::heal);
    }

    /// All requests of clients so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.fitting(&When::any())
    }

    /// All fitting requests so far, oldest first. `nth` and `times` do not matter here.
    pub fn fitting(&self, when: &When) -> Vec<Request> {
        self.fitting_since(0, when)
    }

    /// All fitting requests from a [`mark`](Proxy::mark) on, oldest first.
    pub fn fitting_since(&self, mark: u64, when: &When) -> Vec<Request> {
        let world = self.shared.world.lock();
        world.records.fitting(mark, when).cloned().collect()
    }

    /// Counts the fitting requests so far. `nth` and `times` do not matter here.
    pub fn count(&self, when: &When) -> usize {
        self.shared.world.lock().records.fitting(0, when).count()
    }

    /// The number of the next request, for the questions that end in `since`.
    pub fn mark(&self) -> u64 {
        self.shared.world.lock().records.next()
    }

    /// Waits for a fitting request; an earlier request counts.
    ///
    /// # Panics
    ///
    /// Panics when none has come in time.
    #[track_caller]
    pub fn wait_for(&self, when: &When, limit: Duration) -> Request {
        self.wait_for_since(0, when, limit)
    }

    /// Waits for a fitting request from a [`mark`](Proxy::mark) on.
    ///
    /// # Panics
    ///
    /// Panics when none has come in time.
    #[track_caller]
    pub fn wait_for_since(&self, mark: u64, when: &When, limit: Duration) -> Request {
        self.shared.wait(limit, when, |world| world.records.fitting(mark, when).nth(when.skipped).cloned())
    }

    /// The outcome of a request or of a copy so far.
    ///
    /// # Panics
    ///
    /// Panics when the request was forgotten.
    #[track_caller]
    pub fn fate(&self, request: &Request) -> Fate {
        let world = self.shared.world.lock();
        let fate = world.records.fate(request.number);
        fate.expect("the request was forgotten").clone()
    }

    /// Waits until the fate of a request is final.
    ///
    /// # Panics
    ///
    /// Panics when the request is still under way, or was forgotten.
    #[track_caller]
    pub fn wait_fate(&self, request: &Request, limit: Duration) -> Fate {
        self.shared.wait(limit, request, |world| {
            let fate = world.records.fate(request.number);
            let fate = fate.expect("the request was forgotten");
            fate.is_final().then(|| fate.clone())
        })
    }

    /// All connections with an open side.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.shared.world.lock().infos()
    }

    /// Counts all connections, refused connections included.
    pub fn connections_made(&self) -> usize {
        self.shared.world.lock().made
    }

    /// Waits until the client of a connection has closed the connection.
    ///
    /// # Panics
    ///
    /// Panics when the client has not closed in time.
    #[track_caller]
    pub fn wait_client_closed(&self, connection: usize, limit: Duration) {
        self.shared.wait(limit, &"the client to close", |world| {
            let open = world.connections.get(&connection);
            let closed = open.is_none_or(|connection| connection.client.is_none());
            (connection < world.made && closed).then_some(())
        });
    }

    #[track_caller]
    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        self.shared.change(change)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has already printed its reason
        }
        // A handle of a rule may keep the world alive, but not the sockets.
        self.shared.world.lock().close();
    }
}

/// A rule of the proxy; dropping the handle leaves the rule in place.
#[derive(Debug, Clone)]
pub struct RuleHandle {
    shared: Arc<Shared>,
    id: u64,
}

impl RuleHandle {
    /// Counts the requests that the rule has acted on.
    pub fn hits(&self) -> usize {
        self.shared.world.lock().rules.hits(self.id).len()
    }

    /// Waits until the rule has acted on a request, and returns the first such request.
    ///
    /// # Panics
    ///
    /// Panics when no request came in time.
    #[track_caller]
    pub fn wait_hit(&self, limit: Duration) -> Request {
        self.wait_hits(1, limit).remove(0)
    }

    /// Waits until the rule has acted on `count` requests, and returns all of the requests.
    ///
    /// # Panics
    ///
    /// Panics when fewer requests came in time.
    #[track_caller]
    pub fn wait_hits(&self, count: usize, limit: Duration) -> Vec<Request> {
        self.shared.wait(limit, &"the rule to act", |world| {
            let hits = world.rules.hits(self.id);
            let requests = hits.iter().filter_map(|number| world.records.request(*number));
            (hits.len() >= count).then(|| requests.cloned().collect())
        })
    }

    /// Releases the requests picked so far, and the replies that are still to come.
    pub fn release(&self) {
        self.shared.change(|world| {
            for connection in world.connections.values_mut() {
                connection.release(self.id);
            }
        });
    }

    /// Ends the rule; picked requests stay held until the release.
    pub fn remove(&self) {
        self.shared.change(|world| world.rules.remove(self.id));
    }
}
