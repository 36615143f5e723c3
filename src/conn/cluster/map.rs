//! The map of the cluster: the member of each slot, as far as the client knows; and the slot of a key.

use std::collections::HashMap;

use super::member_view::MemberView;
use crate::conn::address::Endpoint;
use crate::name::hashed_part;
use crate::transport::{ServerNumber, Slot};

/// The slots of the members.
#[derive(Default)]
pub(super) struct Map {
    /// By slot; empty before anything is known.
    masters: Vec<Option<ServerNumber>>,
    /// The highest epoch of an accepted map.
    epoch: u64,
    /// The ids of the nodes of the accepted map.
    ids: HashMap<Endpoint, String>,
}

impl Map {
    /// Returns the member that stores a slot; `None` while this client does not know.
    pub(super) fn master(&self, slot: Slot) -> Option<ServerNumber> {
        self.masters.get(usize::from(slot.0)).copied().flatten()
    }

    /// Returns the members that store slots, each once.
    pub(super) fn masters(&self) -> Vec<ServerNumber> {
        let runs = self.masters.chunk_by(PartialEq::eq);
        let mut masters: Vec<_> = runs.filter_map(|run| *run.first()?).collect();
        masters.sort_unstable();
        masters.dedup();
        masters
    }

    /// Records the word of a member about one slot.
    pub(super) fn moved(&mut self, slot: Slot, to: ServerNumber) {
        self.masters.resize(usize::from(SLOTS), None);
        if let Some(master) = self.masters.get_mut(usize::from(slot.0)) {
            *master = Some(to);
        }
    }

    /// Whether a map is at least as new as the accepted one, and of a member that serves requests.
    pub(super) fn trusts(&self, told: &MemberView) -> bool {
        told.is_well && told.epoch.is_none_or(|epoch| epoch >= self.epoch) && !self.is_foreign(told)
    }

    /// Whether a map shares no node with the accepted one: the address of a member may be that of another cluster's
    /// node by now.
    pub(super) fn is_foreign(&self, told: &MemberView) -> bool {
        let is_known = |id| self.ids.values().any(|known| known == id);
        !self.ids.is_empty() && !told.ids.is_empty() && !told.ids.values().any(is_known)
    }

    /// Accepts a map, whose members have these numbers.
    pub(super) fn accept(&mut self, told: &MemberView, number: impl Fn(&Endpoint) -> ServerNumber) {
        let mut masters = vec![None; usize::from(SLOTS)];
        for range in &told.ranges {
            let (first, last) = (usize::from(range.first), usize::from(range.last));
            let number = Some(number(&range.master));
            masters.iter_mut().take(last + 1).skip(first).for_each(|master| *master = number);
        }
        self.masters = masters;
        self.epoch = told.epoch.unwrap_or(self.epoch);
        self.ids.clone_from(&told.ids);
    }
}

/// The number of slots of every cluster.
const SLOTS: u16 = 16_384;

/// Returns the slot of a key.
pub(super) fn slot_of(key: &[u8]) -> Slot {
    Slot(crc16(hashed_part(key)) % SLOTS)
}

/// The CRC-16 of XMODEM: polynomial 0x1021, no reflection, starting with zero. A product of the polynomial and half a
/// byte has no carries, so it is what the half byte leaves.
fn crc16(bytes: &[u8]) -> u16 {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    halves.fold(0, |crc: u16, half| (crc << 4) ^ (0x1021 * ((crc >> 12) ^ u16::from(half))))
}

#[cfg(test)]
mod tests {
    use lockson_harness::RedisServer;

    use super::super::member_view::Range;
    use super::*;

    fn place(port: u16) -> Endpoint {
        Endpoint::Tcp("h".to_owned(), port)
    }

    fn range(first: u16, last: u16, master: u16) -> Range {
        Range { first, last, master: place(master), replicas: vec![] }
    }

    fn told(epoch: u64, ranges: Vec<Range>) -> MemberView {
        MemberView { epoch: Some(epoch), is_well: true, ranges, ids: HashMap::default() }
    }

    /// Accepts a map; the number of a member is its port.
    fn accept(map: &mut Map, told: &MemberView) {
        map.accept(told, |place| match place {
            Endpoint::Tcp(_, port) => ServerNumber(usize::from(*port)),
            Endpoint::Unix(_) => unreachable!("a member has a port"),
        });
    }

    #[test]
    fn a_map_replaces_what_was_known_before() {
        let mut map = Map::default();
        assert_eq!(map.master(Slot(0)), None);
        accept(&mut map, &told(1, vec![range(0, 99, 1), range(100, 16_383, 2)]));
        let masters = |map: &Map| [0, 99, 100, 16_383].map(|slot| map.master(Slot(slot)).map(|number| number.0));
        assert_eq!(masters(&map), [Some(1), Some(1), Some(2), Some(2)]);
        map.moved(Slot(99), ServerNumber(3));
        assert_eq!(masters(&map), [Some(1), Some(3), Some(2), Some(2)]);
        accept(&mut map, &told(2, vec![range(50, 20_000, 2)]));
        assert_eq!(masters(&map), [None, Some(2), Some(2), Some(2)]);
        assert_eq!(map.masters(), [ServerNumber(2)]);
    }

    #[test]
    fn an_older_map_and_the_map_of_an_ailing_member_are_not_trusted() {
        let mut map = Map::default();
        accept(&mut map, &told(5, vec![range(0, 16_383, 1)]));
        assert!(map.trusts(&told(5, vec![])) && map.trusts(&told(6, vec![])));
        assert!(!map.trusts(&told(4, vec![])));
        assert!(!map.trusts(&MemberView { is_well: false, ..told(6, vec![]) }));
        assert!(map.trusts(&MemberView { epoch: None, ..told(0, vec![]) }));
    }

    #[test]
    fn slots_are_those_of_redis() {
        let check = |key: &str, slot: u16| assert_eq!(slot_of(key.as_bytes()), Slot(slot), "{key}");
        check("", 0);
        check("123456789", 12_739);
        check("foo", 12_182);
        check("{foo}bar", 12_182);
        check("a{foo}{bar}", 12_182);
        check("foo{}{bar}", 8_363);
        check("foo{{bar}}zap", 4_015);
    }

    #[test]
    fn a_real_server_finds_the_same_slots() {
        let server = RedisServer::builder().config("cluster-enabled yes").start();
        let mut connection = server.connection();
        let mut random = 1_u64;
        for number in 0..2_000 {
            let mut key = vec![];
            for _ in 0..number % 12 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                key.push(b"{}ab\xff\x00:{}z"[(random >> 33) as usize % 10]);
            }
            let slot: u16 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(&key).query(&mut connection).unwrap();
            assert_eq!(slot_of(&key), Slot(slot), "{key:?}");
        }
    }
}
