//! A server of the world: connections, messages, and what goes wrong on the way.

mod mishaps;
mod promises;
mod queue;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Display};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use lockson_world::system::BEGAN;
use lockson_world::{Nanos, Network, World};
use parking_lot::Mutex;

use self::queue::Queue;
use crate::data::{Data, Touch};
use crate::reply::{Reply, take_request};
use crate::scripts::Scripts;
use crate::tracking::Tracking;
use crate::trouble::Faults;

pub struct Server(Mutex<State>);

struct State {
    name: String,
    /// The number of each connection leaves this remainder.
    place: u64,
    scripts: Scripts,
    connections: BTreeMap<u64, Connection>,
    numbered: u64,
    faults: Faults,
    tracking: Tracking,
    /// The next time at which keys expire without a request.
    next_expiry: Nanos,
    /// Holds that were taken away, by their owners, and when.
    taken_away: BTreeMap<String, Nanos>,
    /// When somebody deleted something last.
    deleted: Option<Nanos>,
    /// Since when each lock is free, and from when to when it was free before.
    free: BTreeMap<&'static str, Free>,
    /// The count of the latch, and the number of requests that counted down.
    latch: (Option<i64>, u64),
    queue: Queue,
    /// Whether the queue of the fair lock has no end by time, as that of Redisson.
    has_lasting_queues: bool,
    /// Whether a restart takes time.
    stays_away: bool,
    away_until: Nanos,
    /// The process of the server, and its start by the server's clock.
    run_id: u64,
    started: i64,
}

/// The times at which a lock was free.
#[derive(Clone, Copy, Debug, Default)]
pub struct Free {
    pub since: Option<Nanos>,
    pub last: (Nanos, Nanos),
    /// Whether it became free by the end of its time to live.
    pub is_by_time: bool,
}

/// Locks whose key has their name.
const LOCKS: &[&str] = &["plain", "fair", "shared", "fenced", "spun", "one value", "jobs", "red"];
const LATCH: &str = "latch";

struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    requests: VecDeque<Vec<Vec<u8>>>,
    /// Until then, requests wait.
    held_until: Nanos,
    /// The arrival of what the server sent last.
    last: Nanos,
    channels: BTreeSet<Vec<u8>>,
}

impl Server {
    /// The server at this place. A restart of the first one takes no time.
    pub fn new(place: u64) -> Arc<Self> {
        let scripts = Scripts::new(Arc::default());
        let state = State {
            name: if place == 0 { "server".to_owned() } else { format!("server {place}") },
            place,
            scripts,
            connections: BTreeMap::new(),
            numbered: 0,
            faults: Faults::default(),
            tracking: Tracking::default(),
            next_expiry: 0,
            taken_away: BTreeMap::new(),
            deleted: None,
            free: LOCKS
                .iter()
                .chain([&LATCH])
                .map(|name| (*name, Free { since: Some(0), ..Free::default() }))
                .collect(),
            latch: (None, 0),
            queue: Queue::default(),
            has_lasting_queues: false,
            stays_away: place > 0,
            away_until: 0,
            run_id: place << 32,
            started: (BEGAN - 1_000) * 1_000_000,
        };
        Arc::new(Self(Mutex::new(state)))
    }

    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    /// Replaces a part of each script that has it: a planted mistake.
    pub fn plant(&self, right: &str, wrong: &str) {
        self.0.lock().scripts.plant(right, wrong);
    }

    /// When this owner's hold was taken away by somebody else.
    pub fn taken_away(&self, owner: &str) -> Option<Nanos> {
        self.0.lock().taken_away.get(owner).copied()
    }

    /// When somebody deleted something last.
    pub fn deleted(&self) -> Option<Nanos> {
        self.0.lock().deleted
    }

    /// The locks that are held.
    pub fn held(&self) -> Vec<&'static str> {
        self.0.lock().held()
    }

    /// When a lock was free.
    pub fn free(&self, name: &str) -> Option<Free> {
        self.0.lock().free.get(name).copied()
    }

    /// From now on Redisson queues, too.
    pub fn let_queues_last(&self) {
        self.0.lock().has_lasting_queues = true;
    }

    /// The number of requests that counted the latch down.
    pub fn counted_down(&self) -> u64 {
        self.0.lock().latch.1
    }

    /// All names in Redis.
    pub fn names(&self, world: &World) -> Vec<String> {
        self.with_data(world, Data::names)
    }

    pub fn with_data<T>(&self, world: &World, work: impl FnOnce(&mut Data) -> T) -> T {
        let state = self.0.lock();
        let mut data = state.scripts.data().lock();
        data.set_clock(clock(world, state.faults));
        work(&mut data)
    }

    fn arrive(self: &Arc<Self>, world: &Arc<World>, number: u64) {
        let mut state = self.0.lock();
        let state = &mut *state;
        let Some(connection) = state.connections.get_mut(&number) else { return };
        let is_over = connection.read();
        while let Some(connection) = state.connections.get_mut(&number) {
            if connection.held_until > world.now() || connection.requests.is_empty() {
                break;
            }
            let faults = state.faults;
            let happens = |once_in: u64| once_in > 0 && world.below(once_in) == 0;
            if happens(faults.late) && connection.held_until == 0 {
                let delay = Duration::from_millis(50 + world.below(6_000));
                connection.held_until = world.now() + u64::try_from(delay.as_nanos()).unwrap_or(0);
                world.tell(format_args!("{}: connection {number} is late by {delay:?}", state.name));
                self.arrive_in(world, delay, number);
                break;
            }
            connection.held_until = 0;
            let Some(request) = connection.requests.pop_front() else { break };
            if happens(faults.cut_before) {
                world.tell(format_args!("{}: connection {number} is cut before {}", state.name, Shown(&request)));
                state.remove(world, number);
                return;
            }
            if happens(faults.forgets) {
                state.scripts.forget();
            }
            if happens(faults.restarts) {
                state.restart(self, world, happens(faults.empties));
                return;
            }
            if happens(faults.flushes) {
                state.flush(self, world);
            }
            if happens(faults.full) {
                state.fill(self, world);
            }
            if happens(faults.deletes) {
                state.delete_one(self, world);
            }
            if happens(faults.stops) {
                let (process, time) = (1 + world.below(3), Duration::from_millis(100 + world.below(60_000)));
                world.tell(format_args!("process {process} is stopped for {time:?}"));
                world.stop(usize::try_from(process).unwrap_or(0), time);
            }
            let forced = state.scripts.is_forced(&request).then(|| request[3].clone());
            let before = forced.as_ref().map_or(vec![], |key| state.scripts.data().lock().owners(key));
            let owners = state.owners(world);
            let queued = state.queued();
            let reply = state.answer(world, number, &request);
            world.tell(format_args!("{}: {number}: {} -> {reply:?}", state.name, Shown(&request)));
            state.is_served_in_order(world, &queued, &request);
            if forced.is_none() {
                state.nobody_is_robbed(world, &owners, &request);
            }
            let after = forced.map_or(vec![], |key| state.scripts.data().lock().owners(&key));
            state.take_away(world, before.into_iter().filter(|owner| !after.contains(owner)));
            state.all_expire(world);
            state.spread(self, world, Some((number, &request)));
            if happens(faults.cut_after) {
                world.tell(format_args!("{}: connection {number} is cut before the answer", state.name));
                state.remove(world, number);
                return;
            }
            for reply in reply {
                state.send_to(self, world, number, &reply);
            }
        }
        if is_over && state.connections.get(&number).is_some_and(|connection| connection.requests.is_empty()) {
            state.remove(world, number);
        }
    }

    fn arrive_in(self: &Arc<Self>, world: &Arc<World>, delay: Duration, number: u64) {
        let server = Arc::clone(self);
        world.at(delay, move |world| server.arrive(world, number));
    }
}

/// The network of a world with these servers, at ports that follow each other.
pub struct Servers(pub Vec<Arc<Server>>);

impl Servers {
    /// Returns the server of a connection, or of a port.
    fn of(&self, number: u64) -> &Arc<Server> {
        &self.0[usize::try_from(number % MOST_SERVERS).unwrap_or(0)]
    }
}

impl Network for Servers {
    fn connect(&self, world: &Arc<World>, port: u16) -> io::Result<(UnixStream, u64)> {
        let mut state = self.of(u64::from(port - FIRST_PORT)).0.lock();
        if state.away_until > world.now() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        state.numbered += 1;
        let number = state.numbered * MOST_SERVERS + state.place;
        let connection = Connection {
            stream: ours,
            input: vec![],
            requests: VecDeque::new(),
            held_until: 0,
            last: 0,
            channels: BTreeSet::new(),
        };
        state.connections.insert(number, connection);
        Ok((theirs, number))
    }

    fn sent(&self, world: &Arc<World>, connection: u64) {
        self.of(connection).arrive_in(world, delay(world), connection);
    }
}

impl State {
    /// The locks that are held.
    fn held(&self) -> Vec<&'static str> {
        let data = self.scripts.data().lock();
        LOCKS.iter().copied().filter(|name| data.has(name.as_bytes())).collect()
    }

    /// Ends a connection. Returns whether it was there.
    fn remove(&mut self, world: &World, number: u64) -> bool {
        self.tracking.end(number);
        let is_there = self.connections.remove(&number).is_some();
        world.moved(number);
        is_there
    }

    /// Sends a message about keys to the connection that gets them.
    fn tell(&mut self, server: &Arc<Server>, world: &Arc<World>, number: u64, message: &[Reply]) {
        let listens = |connection: &Connection| connection.channels.contains(INVALIDATIONS.as_bytes());
        if self.connections.get(&number).is_some_and(listens) {
            self.send_to(server, world, number, &Reply::List(message.to_vec()));
        }
    }

    fn take_away(&mut self, world: &World, owners: impl Iterator<Item = String>) {
        self.taken_away.extend(owners.map(|owner| (owner, world.now())));
    }

    fn run(&mut self, world: &World, request: &[Vec<u8>]) -> Reply {
        let mut data = self.scripts.data().lock();
        data.set_clock(clock(world, self.faults));
        data.begin();
        data.run(request)
    }

    fn answer(&mut self, world: &World, number: u64, request: &[Vec<u8>]) -> Vec<Reply> {
        let words: Vec<String> =
            request.iter().take(2).map(|word| String::from_utf8_lossy(word).to_uppercase()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let one = match words[..] {
            ["EVAL", ..] | ["EVALSHA", ..] => {
                let mut data = self.scripts.data().lock();
                data.set_clock(clock(world, self.faults));
                data.begin();
                drop(data);
                self.scripts.run(words[0] == "EVAL", &request[1..])
            }
            ["HELLO", ..] => hello(number),
            ["CLIENT", "SETNAME"] => Reply::Status("OK"),
            ["CLIENT", "ID"] => Reply::Int(i64::try_from(number).unwrap_or(0)),
            ["CLIENT", "INFO"] => Reply::text(format!("id={number} addr=10.0.0.1:{number} laddr=10.0.0.9:6379 name=")),
            ["CLIENT", "KILL"] if self.faults.no_kill => Reply::error(NO_RIGHT),
            ["CLIENT", "KILL"] => {
                let killed = String::from_utf8_lossy(&request[3]).parse().ok();
                let is_there = killed.is_some_and(|killed| self.remove(world, killed));
                Reply::Int(is_there.into())
            }
            ["CLIENT", "TRACKING"] if self.faults.no_tracking => Reply::error(NO_RIGHT),
            ["CLIENT", "TRACKING"] => match String::from_utf8_lossy(&request[4]).parse() {
                Ok(redirect) if self.connections.contains_key(&redirect) => {
                    self.tracking.begin(number, redirect);
                    Reply::Status("OK")
                }
                _ => Reply::error("ERR The client ID you want redirect to does not exist"),
            },
            ["CLIENT", _] => Reply::error(NO_RIGHT),
            ["INFO", ..] => {
                let uptime = (clock(world, self.faults) - self.started) / 1_000_000;
                Reply::text(format!("run_id:{}\r\nuptime_in_seconds:{uptime}\r\n", self.run_id))
            }
            ["SUBSCRIBE", ..] | ["UNSUBSCRIBE", ..] => {
                return self.subscribe(number, words[0] == "SUBSCRIBE", &request[1..]);
            }
            ["PUBSUB", ..] => Reply::error("ERR Unknown PUBSUB subcommand"),
            ["PING"] if self.connections.get(&number).is_some_and(|connection| !connection.channels.is_empty()) => {
                Reply::List(vec![Reply::text("pong"), Reply::text("")])
            }
            _ => self.run(world, request),
        };
        vec![one]
    }

    fn subscribe(&mut self, number: u64, begins: bool, channels: &[Vec<u8>]) -> Vec<Reply> {
        let Some(connection) = self.connections.get_mut(&number) else { return vec![] };
        let word = if begins { "subscribe" } else { "unsubscribe" };
        let each = |channel: &Vec<u8>| {
            if begins {
                connection.channels.insert(channel.clone())
            } else {
                connection.channels.remove(channel)
            };
            let left = Reply::Int(i64::try_from(connection.channels.len()).unwrap_or(0));
            Reply::List(vec![Reply::text(word), Reply::Bulk(channel.clone()), left])
        };
        channels.iter().map(each).collect()
    }

    /// Sends what was published to all who listen, and what has changed to all who watch.
    fn spread(&mut self, server: &Arc<Server>, world: &Arc<World>, by: Option<(u64, &[Vec<u8>])>) {
        let mut data = self.scripts.data().lock();
        let (published, touched) = (std::mem::take(&mut data.published), std::mem::take(&mut data.touched));
        let next = data.expire();
        drop(data);
        self.look_at_locks(world);
        self.look_at_latch(world, by.is_some_and(|(_, request)| !self.scripts.is_forced(request)));
        for touch in touched {
            let (told, key) = match touch {
                Touch::Read => {
                    if let Some((number, request)) = by {
                        self.tracking.read(number, keys_of(request));
                    }
                    continue;
                }
                Touch::Changed(key) => (self.tracking.changed(&key, by.map(|(number, _)| number)), key),
                Touch::Expired(key) => (self.tracking.changed(&key, None), key),
            };
            let message = [Reply::text("message"), Reply::text(INVALIDATIONS), Reply::List(vec![Reply::Bulk(key)])];
            for number in told {
                self.tell(server, world, number, &message);
            }
        }
        self.expire_in_time(server, world, next);
        for (channel, message) in published {
            let listeners = self.connections.iter().filter(|(_, connection)| connection.channels.contains(&channel));
            let listeners: Vec<u64> = listeners.map(|(number, _)| *number).collect();
            let heard = Reply::List(vec![Reply::text("message"), Reply::Bulk(channel), Reply::Bulk(message)]);
            for number in listeners {
                self.send_to(server, world, number, &heard);
            }
        }
    }

    /// The server removes expired keys without a request, too, and somewhat later.
    fn expire_in_time(&mut self, server: &Arc<Server>, world: &Arc<World>, next: Option<i64>) {
        let Some(next) = next else { return };
        let wait = u64::try_from(next - clock(world, self.faults) / 1_000).unwrap_or(0) + 1 + world.below(100);
        let at = world.now() + wait * 1_000_000;
        if self.next_expiry > world.now() && self.next_expiry <= at {
            return;
        }
        self.next_expiry = at;
        let server = Arc::clone(server);
        world.at(Duration::from_millis(wait), move |world| {
            let mut state = server.0.lock();
            let now = clock(world, state.faults);
            let mut data = state.scripts.data().lock();
            data.set_clock(now);
            data.expire();
            drop(data);
            state.spread(&server, world, None);
        });
    }

    /// What is sent over one connection arrives in order.
    fn send_to(&mut self, server: &Arc<Server>, world: &Arc<World>, number: u64, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut bytes = vec![];
        reply.write(&mut bytes);
        let now = world.now();
        connection.last = connection.last.max(now + u64::try_from(delay(world).as_nanos()).unwrap_or(0));
        let server = Arc::clone(server);
        world.at(Duration::from_nanos(connection.last - now), move |world| {
            if let Some(connection) = server.0.lock().connections.get_mut(&number) {
                // A client that has closed its end hears nothing.
                let _ = connection.stream.write_all(&bytes);
                world.moved(number);
            }
        });
    }
}

impl Connection {
    /// Reads all requests that are there; returns whether the client has closed its end.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 16_384];
        let is_over = loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => break true,
                Ok(length) => self.input.extend(&bytes[..length]),
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        while let Some(request) = take_request(&mut self.input) {
            self.requests.push_back(request);
        }
        is_over
    }
}

/// The clock of the server, in microseconds.
fn clock(world: &World, faults: Faults) -> i64 {
    let passed = i64::try_from(world.now() / 1_000).unwrap_or(0);
    BEGAN * 1_000_000 + passed + passed * faults.drift / 1_000_000
}

/// The keys of a request.
fn keys_of(request: &[Vec<u8>]) -> &[Vec<u8>] {
    let is_script = request[0].to_ascii_uppercase().starts_with(b"EVAL");
    let count = || String::from_utf8_lossy(&request[2]).parse::<usize>().ok();
    if is_script { count().map_or(&[], |count| &request[3..3 + count]) } else { request.get(1..2).unwrap_or_default() }
}

/// The time of a few bytes on their way: most of them fast.
fn delay(world: &World) -> Duration {
    Duration::from_micros(if world.below(20) == 0 { 1_000 + world.below(30_000) } else { 20 + world.below(300) })
}

fn hello(number: u64) -> Reply {
    let text = |text: &str| Reply::text(text);
    let id = Reply::Int(i64::try_from(number).unwrap_or(0));
    let proto = Reply::Int(2);
    let pairs = [("server", text("redis")), ("version", text("7.0.15")), ("proto", proto), ("id", id)];
    let pairs = pairs.into_iter().chain([("mode", text("standalone")), ("role", text("master"))]);
    Reply::List(pairs.flat_map(|(name, value)| [text(name), value]).collect())
}

/// A request in a story.
struct Shown<'a>(&'a [Vec<u8>]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, "{} ", String::from_utf8_lossy(&word[..word.len().min(48)])))
    }
}

/// The keys of semaphores and latches, which are there for ever.
const COUNTERS: &[&[u8]] = &[b"permits", b"expiring", b"{expiring}:timeout", b"latch"];
/// The port of the first server.
pub const FIRST_PORT: u16 = 6_376;
const MOST_SERVERS: u64 = 8;
const INVALIDATIONS: &str = "__redis__:invalidate";
const NO_RIGHT: &str = "NOPERM this user has no permissions to run the command";
