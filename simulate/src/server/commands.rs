//! The commands that a server answers beside those on its data.

use lockson_world::World;

use super::{State, clock};
use crate::reply::Reply;

impl State {
    pub(super) fn run(&mut self, world: &World, request: &[Vec<u8>]) -> Reply {
        let mut data = self.scripts.data().lock();
        data.set_clock(clock(world, self.faults));
        data.begin();
        data.run(request)
    }

    pub(super) fn answer(&mut self, world: &World, number: u64, request: &[Vec<u8>]) -> Vec<Reply> {
        let upper = |word: &Vec<u8>| String::from_utf8_lossy(&word[..word.len().min(16)]).to_ascii_uppercase();
        let words: Vec<String> = request.iter().take(2).map(upper).collect();
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
}

/// The keys of a request.
pub(super) fn keys_of(request: &[Vec<u8>]) -> &[Vec<u8>] {
    let is_script = request[0].to_ascii_uppercase().starts_with(b"EVAL");
    let count = || std::str::from_utf8(&request[2]).ok()?.parse::<usize>().ok();
    if is_script { count().map_or(&[], |count| &request[3..3 + count]) } else { request.get(1..2).unwrap_or_default() }
}

fn hello(number: u64) -> Reply {
    let text = |text: &str| Reply::text(text);
    let id = Reply::Int(i64::try_from(number).unwrap_or(0));
    let proto = Reply::Int(2);
    let pairs = [("server", text("redis")), ("version", text("7.0.15")), ("proto", proto), ("id", id)];
    let pairs = pairs.into_iter().chain([("mode", text("standalone")), ("role", text("master"))]);
    Reply::List(pairs.flat_map(|(name, value)| [text(name), value]).collect())
}

const NO_RIGHT: &str = "NOPERM this user has no permissions to run the command";
