//! A user of one kind of lock, as in the lines of rights in `docs/operations.md`.

use super::deeds::{Deed, ONCE_PER, QUEUEING, SHARED, STEPPING_DOWN, USUAL};
use super::own_command;
use super::{Version, document};
use crate::support::prelude::*;
use crate::support::read_write_channel;

/// The locks that a user takes, and the promises about these locks.
pub(crate) struct User {
    /// The name of the user in the document.
    pub(crate) name: &'static str,
    /// One for each side of the lock.
    pub(crate) sides: &'static [fn(&Client, &str) -> Lock],
    pub(crate) reenters: bool,
    /// Whether holds can be renewed and extended; others end with their lease.
    pub(crate) prolongs: bool,
    /// The prefix of the waiters' channels; `None` for kinds whose waiters do not listen.
    pub(crate) channel: Option<fn(&str) -> String>,
    /// A lock of another kind, which this kind must refuse under its name.
    pub(crate) other_kind: fn(&Client, &str) -> Lock,
    /// Whether Redis keeps the queue of waiters.
    pub(crate) is_fair: bool,
    /// Whether the server's own command is needed.
    pub(crate) needs_own_command: bool,
    pub(crate) deeds: &'static [&'static [Deed]],
}

const PLAIN: User = User {
    name: "plain",
    sides: &[|client, name| client.get_lock(name)],
    reenters: true,
    prolongs: true,
    channel: Some(channel),
    other_kind: |client, name| client.get_read_write_lock(name).write(),
    is_fair: false,
    needs_own_command: false,
    deeds: &[USUAL],
};

pub(crate) const USERS: [User; 11] = [
    PLAIN,
    User {
        name: "non-reentrant",
        sides: &[|client, name| client.get_non_reentrant_lock(name)],
        reenters: false,
        ..PLAIN
    },
    User {
        name: "fair",
        sides: &[|client, name| client.get_fair_lock(name)],
        is_fair: true,
        deeds: &[USUAL, QUEUEING],
        ..PLAIN
    },
    User {
        name: "non-reentrant-fair",
        sides: &[|client, name| client.get_non_reentrant_fair_lock(name)],
        reenters: false,
        is_fair: true,
        deeds: &[USUAL, QUEUEING],
        ..PLAIN
    },
    User { name: "spin", sides: &[|client, name| client.get_spin_lock(name)], channel: None, ..PLAIN },
    User { name: "fenced", sides: &[|client, name| client.get_fenced_lock(name).into()], ..PLAIN },
    User {
        name: "read-write",
        sides: &[
            |client, name| client.get_read_write_lock(name).write(),
            |client, name| client.get_read_write_lock(name).read(),
        ],
        channel: Some(read_write_channel),
        other_kind: |client, name| client.get_lock(name),
        deeds: &[USUAL, SHARED, STEPPING_DOWN],
        ..PLAIN
    },
    User {
        name: "token",
        sides: &[|client, name| client.get_token_lock(name)],
        channel: None,
        other_kind: |client, name| client.get_lock(name),
        ..PLAIN
    },
    User {
        name: "token-transaction",
        sides: &[|client, name| without_scripts(client, name, ReleaseBy::Transaction)],
        reenters: false,
        prolongs: false,
        channel: None,
        other_kind: |client, name| client.get_lock(name),
        ..PLAIN
    },
    User {
        name: "token-server",
        sides: &[|client, name| without_scripts(client, name, ReleaseBy::Server)],
        reenters: false,
        prolongs: false,
        channel: None,
        other_kind: |client, name| client.get_lock(name),
        needs_own_command: true,
        ..PLAIN
    },
    User { name: "once-per", channel: None, deeds: &[ONCE_PER], ..PLAIN },
];

fn without_scripts(client: &Client, name: &str, release_by: ReleaseBy) -> Lock {
    client.get_token_lock_with(name, TokenOptions::new().with_release_by(release_by)).with_lease(SOON * 3)
}

impl User {
    /// Whether a server of this version supports the kind.
    pub(crate) fn can_use(&self, version: &Version) -> bool {
        !self.needs_own_command || own_command::word_of(version).is_some()
    }

    /// The words of the documented line after the name of the user.
    pub(crate) fn documented_line(&self) -> Vec<String> {
        let (text, start) = (document::text(), format!("ACL SETUSER {} ", self.name));
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        let line = line.unwrap_or_else(|| panic!("no line of rights for {}", self.name));
        line.split(' ').map(|word| word.replace("PASSWORD", super::deeds::PASSWORD)).collect()
    }

    pub(crate) fn deeds(&self) -> impl Iterator<Item = &'static Deed> {
        let reenters = self.reenters;
        let (listens, prolongs) = (self.channel.is_some(), self.prolongs);
        let fits = move |deed: &&Deed| {
            (reenters || !deed.reenters) && (listens || !deed.listens) && (prolongs || !deed.prolongs)
        };
        self.deeds.iter().copied().flatten().filter(fits)
    }
}
