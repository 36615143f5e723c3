//! A user of one kind of lock, as in the lines of rights in `docs/operations.md`.

use super::deeds::{Deed, ONCE_PER, QUEUEING, SHARED, STEPPING_DOWN, USUAL};
use super::own_command;
use super::{Version, document};
use crate::support::kinds::{self, OfName};
use crate::support::prelude::*;
use crate::support::read_write_channel;

/// The locks that a user takes, and the promises about these locks.
pub(crate) struct User {
    /// The name of the user in the document.
    pub(crate) name: &'static str,
    /// One for each side of the lock.
    pub(crate) sides: &'static [OfName],
    pub(crate) reenters: bool,
    /// Whether holds can be renewed and extended; others end with their lease.
    pub(crate) prolongs: bool,
    /// The prefix of the waiters' channels; `None` for kinds whose waiters do not listen.
    pub(crate) channel: Option<fn(&str) -> String>,
    /// A lock of another kind, which this kind must refuse under its name.
    pub(crate) other_kind: OfName,
    /// Whether Redis keeps the queue of waiters.
    pub(crate) is_fair: bool,
    /// Whether the server's own command is needed.
    pub(crate) needs_own_command: bool,
    pub(crate) deeds: &'static [&'static [Deed]],
}

const PLAIN: User = User {
    name: "plain",
    sides: &[kinds::plain],
    reenters: true,
    prolongs: true,
    channel: Some(channel),
    other_kind: kinds::write,
    is_fair: false,
    needs_own_command: false,
    deeds: &[USUAL],
};

pub(crate) const USERS: [User; 11] = [
    PLAIN,
    User { name: "non-reentrant", sides: &[kinds::non_reentrant], reenters: false, ..PLAIN },
    User { name: "fair", sides: &[kinds::fair], is_fair: true, deeds: &[USUAL, QUEUEING], ..PLAIN },
    User {
        name: "non-reentrant-fair",
        sides: &[kinds::non_reentrant_fair],
        reenters: false,
        is_fair: true,
        deeds: &[USUAL, QUEUEING],
        ..PLAIN
    },
    User { name: "spin", sides: &[kinds::spin], channel: None, ..PLAIN },
    User { name: "fenced", sides: &[kinds::fenced], ..PLAIN },
    User {
        name: "read-write",
        sides: &[kinds::write, kinds::read],
        channel: Some(read_write_channel),
        other_kind: kinds::plain,
        deeds: &[USUAL, SHARED, STEPPING_DOWN],
        ..PLAIN
    },
    User { name: "token", sides: &[kinds::token], channel: None, other_kind: kinds::plain, ..PLAIN },
    User {
        name: "token-transaction",
        sides: &[kinds::token_transaction],
        reenters: false,
        prolongs: false,
        channel: None,
        other_kind: kinds::plain,
        ..PLAIN
    },
    User {
        name: "token-server",
        sides: &[kinds::token_server],
        reenters: false,
        prolongs: false,
        channel: None,
        other_kind: kinds::plain,
        needs_own_command: true,
        ..PLAIN
    },
    User { name: "once-per", channel: None, deeds: &[ONCE_PER], ..PLAIN },
];

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
