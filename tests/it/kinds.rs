//! What is special about each kind of lock, and about kinds beside each other.

pub(crate) mod fair;
mod fenced;
mod non_reentrant;
mod plain;
mod read_write;
mod shares;
mod spin;
mod token;
mod token_peers;
