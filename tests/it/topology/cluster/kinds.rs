//! Every kind of lock on one slot, and a client that renews its holds quickly.

use crate::support::prelude::*;

/// A kind, as the tests of a cluster see it.
pub(super) struct Kind {
    pub(super) label: &'static str,
    pub(super) lock: fn(&Client, &str) -> Lock,
    /// Whether the requests of a holder and of a taker name one key only, so that they go on while the slot migrates.
    pub(super) goes_on: bool,
}

/// The read side is with the kinds of a single holder: its takers exclude the write side only.
pub(super) const KINDS: &[Kind] = &[
    Kind { label: "plain", lock: |client, name| client.get_lock(name), goes_on: true },
    Kind { label: "spin", lock: |client, name| client.get_spin_lock(name), goes_on: true },
    Kind { label: "token", lock: |client, name| client.get_token_lock(name), goes_on: true },
    Kind { label: "group", lock: |client, name| client.get_group_lock(name, ["value"]), goes_on: true },
    Kind { label: "write", lock: |client, name| client.get_read_write_lock(name).write(), goes_on: true },
    Kind { label: "fair", lock: |client, name| client.get_fair_lock(name), goes_on: false },
    Kind { label: "fenced", lock: |client, name| client.get_fenced_lock(name).into(), goes_on: false },
];

/// The lease of a hold without one.
pub(super) const LEASE: Duration = Duration::from_secs(2);

pub(super) fn brisk(cluster: &RedisCluster) -> ClientBuilder {
    Client::builder(&cluster.url()).watchdog(LEASE, LEASE / 4)
}

/// A name for each kind, all in the slot of the tag.
pub(super) fn names(tag: &str) -> Vec<(&'static Kind, String)> {
    KINDS.iter().map(|kind| (kind, format!("{{{tag}}}:{}", kind.label))).collect()
}

/// Sleeps for longer than a hold lives without a renewal.
pub(super) fn outlive_a_lease() {
    std::thread::sleep(LEASE + ms(300));
}
