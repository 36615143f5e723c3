//! A server of the world: connections, messages, and what goes wrong on the way.

mod cluster;
mod commands;
mod failover;
mod messages;
mod mishaps;
mod moves;
mod promises;
mod queue;
mod sentinels;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Display};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use lockson_world::system::BEGAN;
use lockson_world::{Nanos, Network, World};
use parking_lot::Mutex;

pub use self::cluster::{Backup, Cluster, cluster_url, slot_of};
use self::cluster::{Form, MEMBERS, place_of};
pub use self::queue::Queue;
pub use self::sentinels::{Sentinels, replicated_url, sentinel_url};
use self::waits::Wait;
use crate::data::Data;
use crate::reply::{Reply, take_request};
use crate::scripts::Scripts;
use crate::tracking::Tracking;
use crate::trouble::Faults;

pub struct Server(Mutex<State>);

struct State {
    name: String,
    /// The members of a cluster, a master with its replica and sentinels, or one server.
    members: BTreeMap<u64, Member>,
    cluster: Option<Cluster>,
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
    /// The owners of all locks at a version of the data.
    owners: (u64, Arc<Vec<String>>),
    /// The version of the data at which locks were looked at last.
    looked_at: u64,
    /// Whether the queue of the fair lock has no end by time, as that of Redisson.
    has_lasting_queues: bool,
    /// Whether it knows sharded pub/sub.
    has_sharded: bool,
    /// Whether a restart takes time.
    stays_away: bool,
}

/// A server as a process.
struct Member {
    away_until: Nanos,
    /// The process, and its start by the server's clock.
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
    sharded: BTreeSet<Vec<u8>>,
    /// Whether the last request was `ASKING`.
    is_asking: bool,
    waits: Option<Wait>,
}

impl Server {
    /// The server at this place. A restart of the first one takes no time.
    pub fn new(place: u64) -> Arc<Self> {
        let scripts = Scripts::new(Arc::default());
        let state = State {
            name: if place == 0 { "server".to_owned() } else { format!("server {place}") },
            members: BTreeMap::from([(place, Member::new(place))]),
            cluster: None,
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
            owners: (0, Arc::default()),
            looked_at: 0,
            has_lasting_queues: false,
            has_sharded: false,
            stays_away: place > 0,
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

    /// From now on this is a cluster.
    pub fn become_cluster(&self, has_sharded: bool) {
        let mut state = self.0.lock();
        state.has_sharded = has_sharded;
        state.members = MEMBERS.iter().map(|place| (*place, Member::new(*place))).collect();
        state.cluster = Some(Cluster::default());
    }

    /// From now on the disk of this server may lag.
    pub fn become_durable(&self) {
        self.0.lock().cluster = Some(Cluster::alone(0));
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
        let faults = state.faults_at(world, number);
        while let Some(connection) = state.connections.get_mut(&number) {
            if connection.held_until > world.now() || connection.waits.is_some() || connection.requests.is_empty() {
                break;
            }
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
                state.scripts.forget(place_of(number));
            }
            if happens(faults.restarts) {
                state.restart(self, world, place_of(number), happens(faults.empties));
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
            if happens(faults.moves) {
                state.move_slot(self, world);
            }
            if happens(faults.lags) {
                state.lag(self, world);
            }
            if happens(faults.replaces) {
                state.replace(self, world);
                // The connection may have ended with its member.
                if !state.connections.contains_key(&number) {
                    return;
                }
            }
            if happens(faults.stops) {
                let (process, time) = (1 + world.below(3), Duration::from_millis(100 + world.below(60_000)));
                world.tell(format_args!("process {process} is stopped for {time:?}"));
                world.stop(usize::try_from(process).unwrap_or(0), time);
            }
            if state.waits(self, world, number, &request) {
                continue;
            }
            if let Some(refusal) = state.refuses(world, number, &request) {
                world.tell(format_args!("{}: {number}: {} -> {refusal:?}", state.name, Shown(&request)));
                state.send_to(self, world, number, &refusal);
                continue;
            }
            if let Some(reply) = state.answer_as_former(world, number, &request) {
                world.tell(format_args!("{}: {number}: {} -> {reply:?}, of the former", state.name, Shown(&request)));
                state.send_answer(self, world, number, &reply);
                continue;
            }
            let forced = state.scripts.is_forced(&request).then(|| request[3].clone());
            let before = forced.as_ref().map_or(vec![], |key| state.scripts.data().lock().owners(key));
            let owners = state.owners(world);
            let line = state.line(&request);
            let reply = state.answer(world, number, &request);
            world.tell(format_args!("{}: {number}: {} -> {reply:?}", state.name, Shown(&request)));
            state.has_run(number, &request);
            // A script that was refused asked nothing.
            if let Some(line) = line.filter(|_| !matches!(reply[..], [Reply::Error(_)])) {
                state.is_served_in_order(world, &line, &request);
            }
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
            if happens(faults.slow)
                && let Some(connection) = state.connections.get_mut(&number)
            {
                let delay = 50_000_000 + world.below(4_000_000_000);
                connection.last = connection.last.max(world.now() + delay);
                world.tell(format_args!("{}: the answer over connection {number} is slow", state.name));
            }
            state.send_answer(self, world, number, &reply);
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
        // The first server, where it is a cluster, has places behind the others.
        self.0.get(usize::try_from(place_of(number)).unwrap_or(0)).unwrap_or(&self.0[0])
    }
}

impl Network for Servers {
    fn connect(&self, world: &Arc<World>, port: u16) -> io::Result<(UnixStream, u64)> {
        let place = u64::from(port - FIRST_PORT);
        let mut state = self.of(place).0.lock();
        if state.members.get(&place).is_none_or(|member| member.away_until > world.now()) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        state.numbered += 1;
        let number = state.numbered * MOST_SERVERS + place;
        let connection = Connection {
            stream: ours,
            input: vec![],
            requests: VecDeque::new(),
            held_until: 0,
            last: 0,
            channels: BTreeSet::new(),
            sharded: BTreeSet::new(),
            is_asking: false,
            waits: None,
        };
        state.connections.insert(number, connection);
        Ok((theirs, number))
    }

    fn send(&self, world: &Arc<World>, number: u64, bytes: &[u8]) -> bool {
        let server = self.of(number);
        let mut state = server.0.lock();
        let Some(connection) = state.connections.get_mut(&number) else { return false };
        connection.input.extend(bytes);
        server.arrive_in(world, delay(world), number);
        true
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

    /// What goes wrong with the next requests of a connection.
    fn faults_at(&self, world: &World, number: u64) -> Faults {
        let is_hello = |connection: &Connection| connection.requests.front().is_some_and(|words| words[0] == b"HELLO");
        // Clients ask all the time which one is the master.
        let is_look_up = match self.cluster.as_ref().map(|cluster| (&cluster.form, cluster)) {
            Some((Form::Sentinels(_), cluster)) => !cluster.is_master(place_of(number)),
            Some((Form::Nodes, _)) => self.connections.get(&number).is_some_and(is_hello),
            _ => false,
        };
        match is_look_up {
            false => self.faults,
            true if world.below(10) > 0 => Faults::default(),
            true => self.faults.on_the_way(),
        }
    }

    fn take_away(&mut self, world: &World, owners: impl Iterator<Item = String>) {
        self.taken_away.extend(owners.map(|owner| (owner, world.now())));
    }
}

impl Member {
    fn new(place: u64) -> Self {
        Self { away_until: 0, run_id: place << 32, started: (BEGAN - 1_000) * 1_000_000 }
    }
}

impl Connection {
    /// Whether it listens to channels.
    fn listens(&self) -> bool {
        !self.channels.is_empty() || !self.sharded.is_empty()
    }

    /// Reads all requests that are there; returns whether the client has closed its end.
    fn read(&mut self) -> bool {
        while let Some(request) = take_request(&mut self.input) {
            self.requests.push_back(request);
        }
        !matches!(self.stream.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The clock of the server, in microseconds.
fn clock(world: &World, faults: Faults) -> i64 {
    let passed = i64::try_from(world.now() / 1_000).unwrap_or(0);
    BEGAN * 1_000_000 + passed + passed * faults.drift / 1_000_000
}

/// The time of a few bytes on their way: most of them fast.
fn delay(world: &World) -> Duration {
    Duration::from_micros(if world.below(20) == 0 { 1_000 + world.below(30_000) } else { 20 + world.below(300) })
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
const MOST_SERVERS: u64 = 16;
const INVALIDATIONS: &str = "__redis__:invalidate";
