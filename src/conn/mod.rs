//! How Redis is reached: addresses, sockets, framed replies, pools, routing by key, listening.

mod address;
mod connection;
mod frame;
mod listener;
mod pool;
mod server;
mod socket;
mod standalone;

pub(crate) use address::Address;
pub(crate) use connection::{Dialer, Fault, Identity, command};
pub(crate) use listener::{Audience, Demand, Notice, Waker, listen};
pub(crate) use server::{Connection, Server};
pub(crate) use standalone::Standalone;

use std::fmt;
use std::sync::Arc;

/// Where the servers are, and which of them a key belongs to.
pub(crate) trait Topology: fmt::Debug + Send + Sync {
    /// The server that owns `key` now.
    fn server_for(&self, key: &[u8]) -> &Arc<Server>;

    /// Every server, for what concerns them all.
    fn servers(&self) -> Vec<Arc<Server>>;
}
