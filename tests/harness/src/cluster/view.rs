//! What one node says of its cluster, and the slot of a key.

use std::collections::BTreeMap;

use super::SLOTS;
use crate::RedisServer;

/// `CLUSTER NODES`, without what differs from node to node.
#[derive(Debug, Clone)]
pub(super) struct View {
    nodes: BTreeMap<String, Entry>,
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Empty for a master.
    master: String,
    slots: Vec<(u16, u16)>,
    epoch: String,
    /// Not a part of the agreement: a killed node may be down for some and doubtful for others.
    joined: bool,
}

impl View {
    /// Asks a node; `None` if the node does not answer.
    pub(super) fn of(node: &RedisServer) -> Option<View> {
        let text: String = node.try_query(&["CLUSTER", "NODES"]).ok()?;
        Some(View { nodes: text.lines().filter_map(Entry::read).collect() })
    }

    pub(super) fn owner_of(&self, slot: u16) -> Option<String> {
        let serves = |entry: &Entry| entry.slots.iter().any(|&(from, to)| (from..=to).contains(&slot));
        self.nodes.iter().find(|(_, entry)| serves(entry)).map(|(id, _)| id.clone())
    }

    pub(super) fn has_slots(&self, id: &str) -> bool {
        self.nodes.get(id).is_some_and(|entry| !entry.slots.is_empty())
    }

    pub(super) fn follows(&self, id: &str, master: &str) -> bool {
        self.nodes.get(id).is_some_and(|entry| entry.master == master)
    }

    /// Whether the node knows this number of nodes, and has met each of them.
    pub(super) fn counts(&self, nodes: usize) -> bool {
        self.nodes.len() == nodes && self.nodes.values().all(|entry| entry.joined)
    }

    pub(super) fn agrees_with(&self, other: &View) -> bool {
        let pairs = self.nodes.iter().zip(&other.nodes);
        let same = |((id, mine), (other_id, theirs)): ((&String, &Entry), (&String, &Entry))| {
            id == other_id && (&mine.master, &mine.slots, &mine.epoch) == (&theirs.master, &theirs.slots, &theirs.epoch)
        };
        self.nodes.len() == other.nodes.len() && pairs.into_iter().all(same)
    }
}

impl Entry {
    /// Reads a line: id, address, flags, master, ping, pong, epoch, link, and the ranges of slots.
    fn read(line: &str) -> Option<(String, Entry)> {
        let mut words = line.split(' ');
        let id = words.next()?.to_owned();
        let flags = words.nth(1)?;
        let master = words.next()?.replace('-', "");
        let epoch = words.nth(2)?.to_owned();
        let slots = words.skip(1).filter_map(range).collect();
        let joined = !flags.split(',').any(|flag| flag == "handshake" || flag == "noaddr");
        Some((id, Entry { master, slots, epoch, joined }))
    }
}

/// A range of slots; `None` for a slot that moves, as `[93->-id]`.
fn range(word: &str) -> Option<(u16, u16)> {
    let (from, to) = word.split_once('-').unwrap_or((word, word));
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// The slot of a key: CRC-16 (XMODEM) of the hash tag, or of the whole key.
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')?;
        let rest = &key[open + 1..];
        let length = rest.iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    };
    let crc = tag().unwrap_or(key).iter().fold(0u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_moving_slot_has_only_the_settled_ranges() {
        let line = "ab12 127.0.0.1:1@2,host myself,master - 0 5 2 connected 0-9 93 [93->-cd34] [7-<-cd34]";
        let (id, entry) = Entry::read(line).unwrap();
        assert_eq!(id, "ab12");
        assert_eq!(
            entry,
            Entry { master: String::new(), slots: vec![(0, 9), (93, 93)], epoch: "2".into(), joined: true }
        );
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!(slot_of("{user1000}.following"), slot_of("user1000"));
        assert_eq!(slot_of("foo{}{bar}"), 8363);
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
    }
}
