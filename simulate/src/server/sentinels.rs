//! Three sentinels that watch a master: what each says of it.

use lockson_world::{Nanos, World};

use super::cluster::{Form, id, place_of, port};
use super::{Member, Server, State};
use crate::reply::Reply;

/// What the sentinels say, each after a while of its own.
pub struct Sentinels {
    before: Word,
    now: Word,
    /// Until when each of them says what was so before.
    unheard: [Nanos; Self::PLACES.len()],
}

#[derive(Clone, Copy)]
struct Word {
    master: u64,
    epoch: u64,
    flags: &'static str,
}

impl Sentinels {
    /// The places of the sentinels.
    pub const PLACES: [u64; 3] = [11, 12, 13];

    /// Sentinels of this master, which is well.
    pub fn of(master: u64) -> Self {
        let word = Word { master, epoch: 1, flags: CALM };
        Self { before: word, now: word, unheard: [0; Self::PLACES.len()] }
    }

    /// From now on this is the master, which may be gone. The sentinels hear of it one by one.
    pub(super) fn hear(&mut self, world: &World, master: u64, epoch: u64, is_gone: bool) {
        self.before = self.now;
        self.now = Word { master, epoch, flags: if is_gone { GONE } else { CALM } };
        self.unheard = Self::PLACES.map(|_| world.now() + world.below(2_000_000_000));
    }

    pub(super) fn is_one(place: u64) -> bool {
        Self::PLACES.contains(&place)
    }

    /// The answer of one of them.
    pub fn answer(&self, place: u64, word: &str, now: Nanos) -> Reply {
        let knows = Self::PLACES.iter().zip(self.unheard).any(|(other, until)| *other == place && until <= now);
        let Word { master, epoch, flags } = if knows { self.now } else { self.before };
        let texts = |words: &[&str]| Reply::List(words.iter().map(|word| Reply::text(*word)).collect());
        let port_of = |place| port(place).to_string();
        match word {
            "MYID" => Reply::text(id(place)),
            "GET-MASTER-ADDR-BY-NAME" => texts(&["127.0.0.1", &port_of(master)]),
            "MASTER" => texts(&["flags", flags, "num-other-sentinels", "2", "config-epoch", &epoch.to_string()]),
            "SENTINELS" => {
                let others = Self::PLACES.iter().filter(|other| **other != place);
                let each = |other: &u64| texts(&["ip", "127.0.0.1", "port", &port_of(*other), "runid", &id(*other)]);
                Reply::List(others.map(each).collect())
            }
            _ => Reply::error("ERR unknown subcommand"),
        }
    }
}

impl Server {
    /// From now on this is a master with a replica, which sentinels watch, or nobody.
    pub fn become_pair(&self, has_sentinels: bool) {
        let mut state = self.0.lock();
        let sentinels = Sentinels::PLACES.iter().filter(|_| has_sentinels);
        state.members = REPLICATED.iter().chain(sentinels).map(|place| (*place, Member::new(*place))).collect();
        state.cluster = Some(super::Cluster::pair(REPLICATED, has_sentinels));
    }
}

impl State {
    /// The reply to a word about the master.
    pub(super) fn about_master(&self, world: &World, number: u64, word: &str) -> Reply {
        match (self.cluster.as_ref().map(|cluster| &cluster.form), place_of(number)) {
            (Some(Form::Sentinels(sentinels)), place) if Sentinels::is_one(place) => {
                sentinels.answer(place, word, world.now())
            }
            _ => Reply::error("ERR unknown command"),
        }
    }
}

/// The URL of the service that the sentinels watch.
pub fn sentinel_url() -> String {
    let hosts = Sentinels::PLACES.map(|place| format!("127.0.0.1:{}", port(place)));
    format!("redis+sentinel://{}/main", hosts.join(","))
}

/// The URL of a master and its replica without sentinels.
pub fn replicated_url() -> String {
    format!("redis+replicated://{}", REPLICATED.map(|place| format!("127.0.0.1:{}", port(place))).join(","))
}

/// The places of the master and the replica, as far as those of a cluster go.
const REPLICATED: [u64; 2] = [0, 8];
const CALM: &str = "master";
const GONE: &str = "master,s_down,o_down,failover_in_progress";
