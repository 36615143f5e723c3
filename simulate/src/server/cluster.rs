//! The members of a cluster: which one has a slot, slots that move, members that are replaced.
//!
//! All members share the data, as if each were told of every write at once. A copy that lags keeps those of before.
//! A master with a replica is a cluster of one shard that redirects nobody, and so is a server alone.

use std::collections::{BTreeMap, BTreeSet};

use lockson_world::{Nanos, World};

use super::commands::keys_of;
use super::queue::Queue;
use super::sentinels::Sentinels;
use super::{COUNTERS, FIRST_PORT, State};
use crate::data::Data;
use crate::reply::Reply;

/// The shards of a cluster, each with the same number of slots at first.
pub struct Cluster {
    /// The place of each shard's master.
    pub(super) masters: Vec<u64>,
    /// The member that takes over from the next master that ends.
    pub(super) replica: u64,
    pub(super) epoch: u64,
    /// Slots that are no more where they were at first, and their shards.
    pub(super) moved: BTreeMap<u16, usize>,
    pub(super) moving: Option<Moving>,
    /// The slot that has moved last, its former shard, and until when the other members do not know.
    pub(super) unheard: Option<(u16, usize, Nanos)>,
    pub(super) lagging: Option<Lagging>,
    /// A master that goes on beside its replica, which has taken over.
    pub(super) former: Option<Former>,
    /// Whether a master is gone, and its replica has not taken over.
    pub(super) lacks_master: bool,
    /// Whether members refuse all requests meanwhile.
    pub(super) is_down: bool,
    pub(super) form: Form,
}

/// How clients find the member of a key.
pub(super) enum Form {
    /// Members redirect them.
    Slots,
    Sentinels(Sentinels),
    /// They ask all members which one is the master.
    Nodes,
    /// There is one server, without a replica.
    Alone,
}

/// A copy that lacks the last writes to a shard, and what it has.
pub(super) struct Lagging {
    pub(super) shard: usize,
    pub(super) backup: Backup,
    pub(super) data: Data,
    pub(super) queue: Queue,
    /// The slots that came to the shard meanwhile, of which it has nothing.
    pub(super) came: BTreeSet<u16>,
}

/// Where a write is beside the memory of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backup {
    Disk,
    Replica,
    DiskOfReplica,
}

/// A slot on its way from one shard to another.
pub(super) struct Moving {
    pub(super) slot: u16,
    pub(super) from: usize,
    pub(super) to: usize,
    /// The keys that have moved, or were made at the new member.
    pub(super) arrived: BTreeSet<Vec<u8>>,
}

/// A master that does not know that another one has its shard. Its data is its own.
pub(super) struct Former {
    pub(super) place: u64,
    pub(super) shard: usize,
    pub(super) data: Data,
}

impl Default for Cluster {
    fn default() -> Self {
        let (replica, masters) = MEMBERS.split_last().expect("members");
        Self {
            masters: masters.to_vec(),
            replica: *replica,
            epoch: 1,
            moved: BTreeMap::new(),
            moving: None,
            unheard: None,
            lagging: None,
            former: None,
            lacks_master: false,
            is_down: false,
            form: Form::Slots,
        }
    }
}

impl Cluster {
    /// A master and its replica, which sentinels watch, or nobody.
    pub fn pair([master, replica]: [u64; 2], has_sentinels: bool) -> Self {
        let form = if has_sentinels { Form::Sentinels(Sentinels::of(master)) } else { Form::Nodes };
        Self { masters: vec![master], replica, form, ..Self::default() }
    }

    /// A server without a replica.
    pub(super) fn alone(master: u64) -> Self {
        Self { masters: vec![master], form: Form::Alone, ..Self::default() }
    }

    pub(super) fn has_slots(&self) -> bool {
        matches!(self.form, Form::Slots)
    }

    pub fn is_master(&self, place: u64) -> bool {
        self.masters.contains(&place) || self.is_former(place)
    }

    fn is_former(&self, place: u64) -> bool {
        self.former.as_ref().is_some_and(|former| former.place == place)
    }

    /// The master of a shard, as far as this member knows.
    fn master_for(&self, place: u64, shard: usize) -> u64 {
        let is_former = self.former.as_ref().is_some_and(|former| (former.place, former.shard) == (place, shard));
        if is_former { place } else { self.masters[shard] }
    }

    /// Whether this member has the key's slot.
    pub(super) fn is_at(&self, place: u64, key: &[u8]) -> bool {
        self.masters[self.shard(slot_of(key))] == place
    }

    pub(super) fn shard(&self, slot: u16) -> usize {
        let at_first = usize::from(slot) * self.masters.len() / SLOTS;
        self.moved.get(&slot).copied().unwrap_or(at_first)
    }

    /// The shard whose master has a key.
    fn shard_with(&self, key: &[u8]) -> usize {
        let slot = slot_of(key);
        let moving = self.moving.as_ref().filter(|moving| moving.slot == slot && moving.arrived.contains(key));
        moving.map_or_else(|| self.shard(slot), |moving| moving.to)
    }

    /// The shard of a slot, as far as this member knows.
    fn shard_for(&self, place: u64, slot: u16, now: Nanos) -> usize {
        let shard = self.shard(slot);
        match self.unheard {
            Some((of, former, until)) if of == slot && now < until => {
                let has_heard = [self.masters[shard], self.masters[former]].contains(&place);
                if has_heard { shard } else { former }
            }
            _ => shard,
        }
    }

    /// Whether no slot moves, no copy lags, and no master is gone.
    pub(super) fn is_calm(&self) -> bool {
        !self.moves() && self.lagging.is_none() && self.has_masters()
    }

    /// Whether no master is gone, or goes on beside its replica.
    pub(super) fn has_masters(&self) -> bool {
        self.former.is_none() && !self.lacks_master
    }

    pub(super) fn moves(&self) -> bool {
        self.moving.is_some()
    }

    pub(super) fn moves_counter(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| has_counter(moving.slot))
    }

    pub(super) fn tell_sentinels(&mut self, world: &World, master: u64, is_gone: bool) {
        if let Form::Sentinels(sentinels) = &mut self.form {
            sentinels.hear(world, master, self.epoch, is_gone);
        }
    }

    /// A copy of what a shard's master knows gets no writes from now on.
    pub fn begin_to_lag(&mut self, shard: usize, backup: Backup, data: &Data, queue: Queue) {
        let mut data = data.clone();
        data.clear(|key| self.shard_with(key) != shard);
        self.lagging = Some(Lagging { shard, backup, data, queue, came: BTreeSet::new() });
    }

    /// The reply of a member to `WAIT` or `WAITAOF`, and whether the request waits for no more.
    pub fn copies(&self, place: u64, request: &[Vec<u8>]) -> (Reply, bool) {
        let lags = |backup| {
            let of_master = self.lagging.as_ref().filter(|lagging| self.masters[lagging.shard] == place);
            of_master.is_some_and(|lagging| lagging.backup == backup)
        };
        let has_replica = !matches!(self.form, Form::Alone) && !self.is_former(place) && !lags(Backup::Replica);
        let wanted = |at: usize| request.get(at).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        let reached = if request[0].eq_ignore_ascii_case(b"WAITAOF") {
            vec![!lags(Backup::Disk), has_replica && !lags(Backup::DiskOfReplica)]
        } else {
            vec![has_replica]
        };
        let counts: Vec<i64> = reached.into_iter().map(i64::from).collect();
        let suffices = counts.iter().zip(1..).all(|(count, at)| Some(*count) >= wanted(at));
        let reply = if let [one] = counts[..] {
            Reply::Int(one)
        } else {
            Reply::List(counts.into_iter().map(Reply::Int).collect())
        };
        (reply, suffices)
    }

    /// A slot begins to move. Returns the places of the members that lose it and get it.
    pub fn begin_to_move(&mut self, slot: u16, by: usize) -> [u64; 2] {
        let from = self.shard(slot);
        let to = (from + by) % self.masters.len();
        self.moving = Some(Moving { slot, from, to, arrived: BTreeSet::new() });
        [from, to].map(|shard| self.masters[shard])
    }

    /// These keys of the moving slot have moved.
    pub fn arrive(&mut self, keys: impl IntoIterator<Item = Vec<u8>>) {
        if let Some(moving) = &mut self.moving {
            moving.arrived.extend(keys);
        }
    }

    /// Why a member does not run a request; none if it does.
    pub fn refusal(&self, place: u64, request: &[Vec<u8>], is_asking: bool, now: Nanos, data: &Data) -> Option<String> {
        let keys = routed(request);
        let slot = slot_of(keys.first()?);
        if self.is_former(place) && self.master_for(place, self.shard(slot)) == place {
            return None;
        }
        if !self.has_slots() {
            return (!self.is_master(place)).then(|| READ_ONLY.to_owned());
        }
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Some("CROSSSLOT Keys in request don't hash to the same slot".to_owned());
        }
        if self.is_down {
            return Some("CLUSTERDOWN The cluster is down".to_owned());
        }
        let to = |word: &str, shard: usize| format!("{word} {slot} 127.0.0.1:{}", port(self.masters[shard]));
        let (shard, try_again) = (self.shard_for(place, slot, now), || TRY_AGAIN.to_owned());
        let Some(moving) = self.moving.as_ref().filter(|moving| moving.slot == slot) else {
            return (self.masters[shard] != place).then(|| to("MOVED", shard));
        };
        let is_there =
            |key: &&Vec<u8>| data.has(key) && moving.arrived.contains(*key) == (place != self.masters[shard]);
        // Channels are where the slot is.
        let there = if is_sharded(request) { keys.len() } else { keys.iter().filter(is_there).count() };
        if place == self.masters[moving.from] {
            return match there {
                _ if there == keys.len() => None,
                0 => Some(to("ASK", moving.to)),
                _ => Some(try_again()),
            };
        }
        if place == self.masters[moving.to] && is_asking {
            return (keys.len() > 1 && there < keys.len()).then(try_again);
        }
        Some(to("MOVED", shard))
    }

    /// The reply to `CLUSTER SLOTS`.
    fn slots(&self, place: u64, now: Nanos) -> Reply {
        let number = |number: usize| Reply::Int(i64::try_from(number).unwrap_or(0));
        let node = |place: u64| {
            let port = usize::from(port(place));
            Reply::List(vec![Reply::text("127.0.0.1"), number(port), Reply::text(id(place)), Reply::List(vec![])])
        };
        let shards: Vec<usize> =
            (0..SLOTS).map(|slot| self.shard_for(place, u16::try_from(slot).unwrap_or(0), now)).collect();
        let mut first = 0;
        let ranges = shards.chunk_by(|one, other| one == other).map(|range| {
            let last = first + range.len() - 1;
            let replica = (range[0] == 0).then(|| node(self.replica));
            let words =
                [number(first), number(last), node(self.master_for(place, range[0]))].into_iter().chain(replica);
            first = last + 1;
            Reply::List(words.collect())
        });
        Reply::List(ranges.collect())
    }
}

impl State {
    /// Answers for a member that does not have the keys of a request.
    pub(super) fn refuses(&mut self, world: &World, number: u64, request: &[Vec<u8>]) -> Option<Reply> {
        let (cluster, connection) = (self.cluster.as_ref()?, self.connections.get_mut(&number)?);
        let is_asking = std::mem::take(&mut connection.is_asking);
        let data = self.scripts.data().lock();
        let refusal = cluster.refusal(place_of(number), request, is_asking, world.now(), &data);
        refusal.map(Reply::Error)
    }

    /// Answers for a master that goes on beside its replica. Nobody else hears of it.
    pub(super) fn answer_as_former(&mut self, world: &World, number: u64, request: &[Vec<u8>]) -> Option<Vec<Reply>> {
        self.cluster.as_ref().filter(|cluster| cluster.is_former(place_of(number)))?;
        self.exchange_data();
        let reply = self.answer(world, number, request);
        self.scripts.data().lock().forget_changes();
        self.exchange_data();
        Some(reply)
    }

    fn exchange_data(&mut self) {
        if let Some(former) = self.cluster.as_mut().and_then(|cluster| cluster.former.as_mut()) {
            std::mem::swap(&mut *self.scripts.data().lock(), &mut former.data);
        }
    }

    /// Notes which keys a request has made at the member that gets their slot.
    pub(super) fn has_run(&mut self, number: u64, request: &[Vec<u8>]) {
        let Some(Cluster { masters, moving: Some(moving), .. }) = &mut self.cluster else { return };
        if masters[moving.to] == place_of(number) {
            let data = self.scripts.data().lock();
            let keys = routed(request).iter().filter(|key| slot_of(key) == moving.slot && data.has(key));
            moving.arrived.extend(keys.cloned());
        }
    }

    /// The reply to a word about the cluster.
    pub(super) fn about_cluster(&self, world: &World, number: u64, word: &str) -> Reply {
        let Some(cluster) = self.cluster.as_ref().filter(|cluster| cluster.has_slots()) else {
            return Reply::error("ERR This instance has cluster support disabled");
        };
        match word {
            "MYID" => Reply::text(id(place_of(number))),
            "INFO" => {
                let state = if cluster.is_down { "fail" } else { "ok" };
                let epoch = cluster.epoch - u64::from(cluster.is_former(place_of(number)));
                Reply::text(format!("cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n"))
            }
            "SLOTS" => cluster.slots(place_of(number), world.now()),
            _ => Reply::error("ERR unknown subcommand"),
        }
    }
}

/// The keys and sharded channels of a request.
fn routed(request: &[Vec<u8>]) -> &[Vec<u8>] {
    match request {
        _ if is_one_of(request, WITHOUT_KEYS) => &[],
        [_, keys @ ..] if is_one_of(request, &["DEL", "EXISTS", "SSUBSCRIBE", "SUNSUBSCRIBE"]) => keys,
        _ => keys_of(request),
    }
}

fn is_sharded(request: &[Vec<u8>]) -> bool {
    is_one_of(request, &["SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"])
}

fn is_one_of(request: &[Vec<u8>], words: &[&str]) -> bool {
    words.iter().any(|word| request[0].eq_ignore_ascii_case(word.as_bytes()))
}

/// The slot of a key: CRC-16 of XMODEM, of what is between the first braces.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|length| *length > 0).map(|length| &rest[..length])
    });
    let step = |crc: u16, byte: &u8| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    };
    tag.unwrap_or(key).iter().fold(0, step) % 16_384
}

pub(super) fn has_counter(slot: u16) -> bool {
    COUNTERS.iter().any(|counter| slot_of(counter) == slot)
}

/// The place of the server of a connection.
pub(super) fn place_of(number: u64) -> u64 {
    number % super::MOST_SERVERS
}

pub(super) fn port(place: u64) -> u16 {
    FIRST_PORT + u16::try_from(place).unwrap_or(0)
}

pub(super) fn id(place: u64) -> String {
    format!("{place:040x}")
}

/// The URL of the cluster.
pub fn cluster_url() -> String {
    let hosts: Vec<String> = MEMBERS.iter().map(|place| format!("127.0.0.1:{}", port(*place))).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

/// The places of the members: that of a server alone, and those behind the servers of red locks.
pub(super) const MEMBERS: &[u64] = &[0, 8, 9, 10];
const SLOTS: usize = 16_384;
const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
const WITHOUT_KEYS: &[&str] = &[
    "WAIT",
    "WAITAOF",
    "ASKING",
    "CLIENT",
    "CLUSTER",
    "HELLO",
    "INFO",
    "PING",
    "PUBLISH",
    "PUBSUB",
    "SENTINEL",
    "SUBSCRIBE",
    "TIME",
    "UNSUBSCRIBE",
];
