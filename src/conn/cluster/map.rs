//! The map of the cluster: which member stores which slot, as far as this client knows.

use std::collections::{BTreeSet, HashMap};

use super::member_view::MemberView;
use super::slot::SLOTS;
use crate::conn::address::Endpoint;
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
        let masters: BTreeSet<_> = self.masters.iter().copied().flatten().collect();
        masters.into_iter().collect()
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

#[cfg(test)]
mod tests {
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
}
