//! A key with the owner in it, and the plain commands about it.

use redis::{Cmd, ToRedisArgs};

use crate::name::LockName;
use crate::owner::OwnerId;

/// The key of a lock and the value of one hold.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
}

impl Entry {
    pub(crate) fn of(name: &LockName, owner: &OwnerId) -> Self {
        Self { name: name.clone(), owner: owner.clone() }
    }

    /// Builds a command with the key.
    pub(crate) fn command(&self, word: &str) -> Cmd {
        command(word, self.name.key())
    }
}

/// A command without arguments.
pub(crate) fn word(word: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(word);
    command
}

/// A command with its first argument.
pub(crate) fn command(word: &str, argument: impl ToRedisArgs) -> Cmd {
    let mut command = Cmd::new();
    command.arg(word).arg(argument);
    command
}
