//! The special properties of each kind of lock, and different kinds side by side.

pub(crate) mod fair;
mod fenced;
mod group;
mod inspection;
mod latch;
mod leader;
mod multi;
mod non_reentrant;
mod permits;
mod plain;
mod read_write;
pub(crate) mod red;
pub(crate) mod semaphore;
mod shares;
mod spin;
mod token;
mod token_peers;
mod token_without_scripts;
