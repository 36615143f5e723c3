//! A server of the world: connections, messages, and what goes wrong on the way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use lockson_world::system::BEGAN;
use lockson_world::{Nanos, Network, World};
use parking_lot::Mutex;

use crate::data::Data;
use crate::reply::{Reply, take_request};
use crate::scripts::Scripts;

/// What may go wrong, each once in so many requests; zero is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The connection ends before the request runs.
    pub cut_before: u64,
    /// The connection ends after the request ran and before its answer.
    pub cut_after: u64,
    /// The request runs seconds later, also when its client has given up by then.
    pub late: u64,
    /// The server forgets its scripts.
    pub forgets: u64,
    /// The server restarts with its data: all connections end, scripts are forgotten.
    pub restarts: u64,
    /// A process is stopped for up to a minute.
    pub stops: u64,
    /// The user may not kill connections.
    pub no_kill: bool,
}

pub struct Server(Mutex<State>);

struct State {
    scripts: Scripts,
    connections: BTreeMap<u64, Connection>,
    numbered: u64,
    faults: Faults,
}

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
    pub fn new() -> Arc<Self> {
        let scripts = Scripts::new(Arc::default());
        let state = State { scripts, connections: BTreeMap::new(), numbered: 0, faults: Faults::default() };
        Arc::new(Self(Mutex::new(state)))
    }

    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    /// Replaces a part of each script that has it: a planted mistake.
    pub fn plant(&self, right: &str, wrong: &str) {
        self.0.lock().scripts.plant(right, wrong);
    }

    /// All names in Redis.
    pub fn names(&self, world: &World) -> Vec<String> {
        self.with_data(world, Data::names)
    }

    pub fn with_data<T>(&self, world: &World, work: impl FnOnce(&mut Data) -> T) -> T {
        let state = self.0.lock();
        let mut data = state.scripts.data().lock();
        data.now = clock(world);
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
                world.tell(format_args!("server: connection {number} is late by {delay:?}"));
                self.arrive_in(world, delay, number);
                break;
            }
            connection.held_until = 0;
            let Some(request) = connection.requests.pop_front() else { break };
            if happens(faults.cut_before) {
                world.tell(format_args!("server: connection {number} is cut before {}", shown(&request)));
                state.connections.remove(&number);
                return;
            }
            if happens(faults.forgets) {
                state.scripts.forget();
            }
            if happens(faults.restarts) {
                world.tell("server: restarts");
                state.scripts.forget();
                state.connections.clear();
                return;
            }
            if happens(faults.stops) {
                let (process, time) = (1 + world.below(3), Duration::from_millis(100 + world.below(60_000)));
                world.tell(format_args!("process {process} is stopped for {time:?}"));
                world.stop(usize::try_from(process).unwrap_or(0), time);
            }
            let reply = state.answer(world, number, &request);
            world.tell(format_args!("server: {number}: {} -> {reply:?}", shown(&request)));
            state.spread(self, world);
            if happens(faults.cut_after) {
                world.tell(format_args!("server: connection {number} is cut before the answer"));
                state.connections.remove(&number);
                return;
            }
            for reply in reply {
                state.send_to(self, world, number, &reply);
            }
        }
        if is_over && state.connections.get(&number).is_some_and(|connection| connection.requests.is_empty()) {
            state.connections.remove(&number);
        }
    }

    fn arrive_in(self: &Arc<Self>, world: &Arc<World>, delay: Duration, number: u64) {
        let server = Arc::clone(self);
        world.at(delay, move |world| server.arrive(world, number));
    }
}

/// The network of a world with one server.
pub struct OneServer(pub Arc<Server>);

impl Network for OneServer {
    fn connect(&self, _: &Arc<World>, _: u16) -> io::Result<(UnixStream, u64)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut state = self.0.0.lock();
        state.numbered += 1;
        let number = state.numbered;
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
        self.0.arrive_in(world, delay(world), connection);
    }
}

impl State {
    fn answer(&mut self, world: &World, number: u64, request: &[Vec<u8>]) -> Vec<Reply> {
        let words: Vec<String> =
            request.iter().take(2).map(|word| String::from_utf8_lossy(word).to_uppercase()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let one = match words[..] {
            ["EVAL", ..] | ["EVALSHA", ..] => {
                self.scripts.data().lock().now = clock(world);
                self.scripts.run(words[0] == "EVAL", &request[1..])
            }
            ["HELLO", ..] => hello(number),
            ["CLIENT", "SETNAME"] => Reply::Status("OK"),
            ["CLIENT", "ID"] => Reply::Int(i64::try_from(number).unwrap_or(0)),
            ["CLIENT", "INFO"] => Reply::text(format!("id={number} addr=10.0.0.1:{number} laddr=10.0.0.9:6379 name=")),
            ["CLIENT", "KILL"] if self.faults.no_kill => Reply::error(NO_RIGHT),
            ["CLIENT", "KILL"] => {
                let killed = String::from_utf8_lossy(&request[3]).parse().ok();
                let is_there = killed.and_then(|killed: u64| self.connections.remove(&killed)).is_some();
                Reply::Int(is_there.into())
            }
            ["CLIENT", _] => Reply::error(NO_RIGHT),
            ["INFO", ..] => Reply::text("run_id:1\r\nuptime_in_seconds:1000\r\n"),
            ["SUBSCRIBE", ..] | ["UNSUBSCRIBE", ..] => {
                return self.subscribe(number, words[0] == "SUBSCRIBE", &request[1..]);
            }
            ["PUBSUB", ..] => Reply::error("ERR Unknown PUBSUB subcommand"),
            ["PING"] if self.connections.get(&number).is_some_and(|connection| !connection.channels.is_empty()) => {
                Reply::List(vec![Reply::text("pong"), Reply::text("")])
            }
            _ => {
                let mut data = self.scripts.data().lock();
                data.now = clock(world);
                data.run(request)
            }
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

    /// Sends what was published to all who listen.
    fn spread(&mut self, server: &Arc<Server>, world: &Arc<World>) {
        let published = std::mem::take(&mut self.scripts.data().lock().published);
        for (channel, message) in published {
            let listeners = self.connections.iter().filter(|(_, connection)| connection.channels.contains(&channel));
            let listeners: Vec<u64> = listeners.map(|(number, _)| *number).collect();
            let heard = Reply::List(vec![Reply::text("message"), Reply::Bulk(channel), Reply::Bulk(message)]);
            for number in listeners {
                self.send_to(server, world, number, &heard);
            }
        }
    }

    /// What is sent over one connection arrives in order.
    fn send_to(&mut self, server: &Arc<Server>, world: &Arc<World>, number: u64, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut bytes = vec![];
        reply.write(&mut bytes);
        let now = world.now();
        connection.last = connection.last.max(now + u64::try_from(delay(world).as_nanos()).unwrap_or(0));
        let server = Arc::clone(server);
        world.at(Duration::from_nanos(connection.last - now), move |_| {
            if let Some(connection) = server.0.lock().connections.get_mut(&number) {
                // A client that has closed its end hears nothing.
                let _ = connection.stream.write_all(&bytes);
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

/// The clock of the server, in milliseconds.
fn clock(world: &World) -> i64 {
    BEGAN * 1_000 + i64::try_from(world.now() / 1_000_000).unwrap_or(0)
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

fn shown(request: &[Vec<u8>]) -> String {
    let words: Vec<_> = request.iter().map(|word| String::from_utf8_lossy(&word[..word.len().min(48)])).collect();
    words.join(" ")
}

const NO_RIGHT: &str = "NOPERM this user has no permissions to run the command";
