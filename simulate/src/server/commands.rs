//! The commands that a server answers beside those on its data.

use lockson_world::World;

use super::cluster::place_of;
use super::sentinels::Sentinels;
use super::{Connection, Member, State, clock};
use crate::reply::Reply;

impl State {
    pub(super) fn run(&mut self, world: &World, request: &[Vec<u8>]) -> Reply {
        let mut data = self.scripts.data().lock();
        data.set_clock(clock(world, self.faults));
        data.begin();
        data.run(request)
    }

    pub(super) fn answer(&mut self, world: &World, number: u64, request: &[Vec<u8>]) -> Vec<Reply> {
        let upper = |word: &Vec<u8>| String::from_utf8_lossy(&word[..word.len().min(24)]).to_ascii_uppercase();
        let words: Vec<String> = request.iter().take(2).map(upper).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let one = match words[..] {
            ["EVAL", ..] | ["EVALSHA", ..] => {
                let mut data = self.scripts.data().lock();
                data.set_clock(clock(world, self.faults));
                data.begin();
                drop(data);
                self.scripts.run(place_of(number), words[0] == "EVAL", &request[1..])
            }
            ["HELLO", ..] => self.hello(number),
            ["ASKING"] => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.is_asking = true;
                }
                Reply::Status("OK")
            }
            ["CLUSTER", word] => self.about_cluster(world, number, word),
            ["SENTINEL", word] => self.about_master(world, number, word),
            ["CLIENT", "SETNAME"] => Reply::Status("OK"),
            ["CLIENT", "ID"] => Reply::Int(i64::try_from(number).unwrap_or(0)),
            ["CLIENT", "INFO"] => Reply::text(format!("id={number} addr=10.0.0.1:{number} laddr=10.0.0.9:6379 name=")),
            ["CLIENT", "KILL"] if self.faults.no_kill => Reply::error(NO_RIGHT),
            ["CLIENT", "KILL"] => {
                let killed = String::from_utf8_lossy(&request[3]).parse().ok();
                let is_here = |killed: &u64| place_of(*killed) == place_of(number);
                let is_there = killed.filter(is_here).is_some_and(|killed| self.remove(world, killed));
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
                let Member { run_id, started, .. } = &self.members[&place_of(number)];
                let uptime = (clock(world, self.faults) - started) / 1_000_000;
                Reply::text(format!("run_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n"))
            }
            ["SUBSCRIBE" | "UNSUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE", ..] => {
                return self.subscribe(number, words[0], &request[1..]);
            }
            ["PUBSUB", "SHARDNUMSUB"] if self.has_sharded => Reply::List(vec![]),
            ["PUBSUB", ..] => Reply::error("ERR Unknown PUBSUB subcommand"),
            ["PING"] if self.connections.get(&number).is_some_and(Connection::listens) => {
                Reply::List(vec![Reply::text("pong"), Reply::text("")])
            }
            _ => self.run(world, request),
        };
        vec![one]
    }

    fn hello(&self, number: u64) -> Reply {
        let text = |text: &str| Reply::text(text);
        let id = Reply::Int(i64::try_from(number).unwrap_or(0));
        let proto = Reply::Int(2);
        let place = place_of(number);
        let mode = match &self.cluster {
            Some(cluster) if cluster.has_slots() => "cluster",
            _ if Sentinels::is_one(place) => "sentinel",
            _ => "standalone",
        };
        let is_master = self.cluster.as_ref().is_none_or(|cluster| cluster.is_master(place));
        let role = if is_master { "master" } else { "replica" };
        let role = (mode != "sentinel").then(|| ("role", text(role)));
        let pairs = [("server", text("redis")), ("version", text("7.0.15")), ("proto", proto), ("id", id)];
        let pairs = pairs.into_iter().chain([("mode", text(mode))]).chain(role);
        Reply::List(pairs.flat_map(|(name, value)| [text(name), value]).collect())
    }

    fn subscribe(&mut self, number: u64, word: &str, channels: &[Vec<u8>]) -> Vec<Reply> {
        let Some(connection) = self.connections.get_mut(&number) else { return vec![] };
        let begins = !word.contains("UNSUB");
        let listened = if word.starts_with("SS") || word.starts_with("SUN") {
            &mut connection.sharded
        } else {
            &mut connection.channels
        };
        let each = |channel: &Vec<u8>| {
            if begins {
                listened.insert(channel.clone())
            } else {
                listened.remove(channel)
            };
            let left = Reply::Int(i64::try_from(listened.len()).unwrap_or(0));
            Reply::List(vec![Reply::text(word.to_ascii_lowercase()), Reply::Bulk(channel.clone()), left])
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

const NO_RIGHT: &str = "NOPERM this user has no permissions to run the command";
