//! The kinds of locks, a file for each:
//!
//! 1. `plain`: the plain lock; its holder may take the lock again, or may not.
//! 2. `fair`: the plain lock with a queue; first come, first served, across machines.
//! 3. `spin`: the plain lock without messages; waiters ask after pauses.
//! 4. `fenced`: the plain lock with numbered grants.
//! 5. `read_write`: many readers or one writer; a handle for each side.
//! 6. `leader`: the fenced lock of an election, with the text of its holder.
//! 7. `token`: one value under the key, as most lock recipes for Redis do.
//! 8. `group`: many values under one key, each a lock of its own.
//! 9. `permits`: permits of a semaphore, with a time to live for each.

mod fair;
mod fenced;
mod group;
mod leader;
mod permits;
mod plain;
mod read_write;
mod spin;
mod token;

pub(crate) use fair::Fair;
pub use fenced::ACCEPT_IF_NOT_OLDER;
pub(crate) use fenced::Fenced;
pub(crate) use group::Group;
pub(crate) use leader::LeaderLock;
pub(crate) use permits::PermitLock;
pub(crate) use plain::Plain;
pub use read_write::ReadWriteLock;
pub use spin::Backoff;
pub(crate) use spin::Spin;
pub(crate) use token::TokenLock;
pub use token::{ReleaseBy, TokenOptions};

use crate::script::{Counts, Publication};

/// The message "unlocked", as every client of these locks understands it.
fn unlocked(channel: &str) -> Publication<'_> {
    Publication { channel, message: "0" }
}

/// The check of kinds without re-entry: a thread that holds the lock cannot take it again.
fn only_once(_: Counts) -> Result<(), &'static str> {
    Err("this thread holds the lock already, and this kind of lock cannot be taken twice")
}
