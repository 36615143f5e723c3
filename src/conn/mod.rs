//! The connections to Redis: addresses, sockets, framing of replies, pools, routing by key, the listening connection.

mod address;
mod birth;
mod buffer;
mod command;
mod confirming;
mod connection;
#[cfg(feature = "credentials")]
mod credentials;
mod down;
mod frame;
mod gather;
mod introduction;
mod listener;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod pool;
mod pub_sub;
mod resolver;
#[cfg(test)]
pub(crate) mod scripted;
mod server;
mod single_flight;
mod socket;
mod standalone;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod trouble;
mod url;
mod waker;

pub(crate) use address::Address;
pub(crate) use command::command;
pub(crate) use connection::Dialer;
#[cfg(feature = "credentials")]
pub(crate) use credentials::Provider;
pub(crate) use gather::{Outcome, Request, ask, gather};
pub(crate) use listener::{Audience, ListenerEvent, listen};
#[cfg(test)]
pub(crate) use pub_sub::PubSubChoice;
pub(crate) use server::{DedicatedConnection, Server};
pub(crate) use standalone::Standalone;
pub(crate) use tls::{Connector, Tls};
pub(crate) use waker::{Sleeper, Waker, sleeper};

#[cfg(not(feature = "tls"))]
use no_tls as tls;
use std::fmt;
use std::sync::Arc;

use crate::transport::{ServerNumber, Slot};

/// The servers, and the routing of keys to them.
pub(crate) trait Topology: fmt::Debug + Send + Sync {
    /// Returns the server that stores `key` at present. Each attempt of a request asks anew.
    fn server_for(&self, key: &[u8]) -> Arc<Server>;

    /// Returns what the servers of one request must have in common: keys of one slot are on one server at all times.
    fn slot(&self, _key: &[u8]) -> Slot {
        Slot::default()
    }

    /// Returns the server of this number, so that a request is fenced where the request was sent.
    fn server(&self, number: ServerNumber) -> Option<Arc<Server>>;

    /// Returns all servers.
    fn servers(&self) -> Vec<Arc<Server>>;
}
