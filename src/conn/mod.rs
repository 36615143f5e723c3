//! How Redis is reached: addresses, sockets, framed replies, pools, routing by key, listening.

mod address;
mod connection;
mod frame;
mod introduction;
mod limits;
mod listener;
mod pool;
mod resolver;
#[cfg(test)]
pub(crate) mod scripted;
mod server;
mod socket;
mod standalone;
mod trouble;
mod url;
mod waker;

pub(crate) use address::Address;
pub(crate) use connection::{Dialer, Fault, Identity, command};
pub(crate) use limits::Limits;
pub(crate) use listener::{Audience, Demand, INVALIDATIONS, ListenerEvent, listen};
pub(crate) use server::{DedicatedConnection, Server};
pub(crate) use standalone::Standalone;
pub(crate) use waker::{Sleeper, Waker, sleeper};

use std::fmt;
use std::sync::Arc;

/// Where the servers are, and which of them a key belongs to.
pub(crate) trait Topology: fmt::Debug + Send + Sync {
    /// The server that owns `key` now.
    fn server_for(&self, key: &[u8]) -> &Arc<Server>;

    /// Every server, for what concerns them all.
    fn servers(&self) -> Vec<Arc<Server>>;
}
