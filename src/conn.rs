//! The connections to Redis: addresses, sockets, framing of replies, pools, routing by key, the listening connection.

mod address;
mod asking;
mod buffer;
mod cluster;
mod confirming;
mod connection;
#[cfg(feature = "credentials")]
mod credentials;
mod dialer;
mod down;
mod frame;
mod gather;
mod identity;
mod introduction;
mod listener;
mod master_finder;
mod pool;
mod pub_sub;
mod resolver;
#[cfg(test)]
pub(crate) mod scripted;
mod server;
mod server_start;
mod side_by_side;
mod single_flight;
mod socket;
mod standalone;
mod stream;
mod target;
mod tls;
mod trouble;
mod url;
mod waker;

pub(crate) use cluster::Cluster;
#[cfg(feature = "credentials")]
pub(crate) use credentials::Provider;
pub(crate) use dialer::Dialer;
pub(crate) use gather::{Request, Response, ask, gather};
pub(crate) use listener::{Audience, ListenerEvent, listen};
pub(crate) use master_finder::{MakesDialers, master_among, master_of_service};
#[cfg(test)]
pub(crate) use pub_sub::PubSubChoice;
pub(crate) use server::{DedicatedConnection, Server};
pub(crate) use side_by_side::{by_server, side_by_side};
pub(crate) use standalone::Standalone;
pub(crate) use target::Target;
#[cfg(feature = "tls")]
pub(crate) use tls::connector;
pub(crate) use trouble::at_the_start;
pub(crate) use waker::{Sleeper, Waker, sleeper};

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Refusal, Result};
use crate::transport::{Identity, ServerNumber, Slot};

/// The servers, and the routing of keys to them.
pub(crate) trait Topology: Send + Sync {
    /// Returns the way to the server that stores `key` at present. Each attempt of a request asks anew.
    fn route(&self, key: &[u8]) -> Route;

    /// Learns from a refusal by the server `from`, and tells where the request is to go now.
    fn redirect(&self, _from: ServerNumber, _refusal: &Refusal) -> Redirect {
        Redirect::AsItSays
    }

    /// Records that the server did not answer, so that another server may have taken its place.
    fn doubt(&self, _server: ServerNumber) {}

    /// Takes over an unanswered copy at a server that does not store the key any more: fences the copy there in the
    /// background. No caller waits for that server.
    fn leave_behind(&self, _copy: Identity) {}

    /// Whether keys of different slots are on different servers, so that the keys of one lock need a common slot.
    fn has_slots(&self) -> bool {
        false
    }

    /// Returns what the servers of one request must have in common: keys of one slot are on one server at all times.
    fn slot(&self, _key: &[u8]) -> Slot {
        Slot::default()
    }

    /// Returns the server of this number, so that a request is fenced where the request was sent.
    fn server(&self, number: ServerNumber) -> Option<Arc<Server>>;

    /// Returns the servers that store keys at present.
    fn servers(&self) -> Vec<Arc<Server>>;

    /// Checks within `limit` that a server answers and accepts the login.
    fn greet(&self, limit: Duration) -> Result<()>;

    /// Ends every request and closes every connection.
    fn close(&self);
}

/// The way of a request.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) server: Arc<Server>,
    /// Whether the server gets the key at present, and runs only requests that say `ASKING`.
    pub(crate) asking: bool,
}

/// What the topology makes of a refusal.
pub(crate) enum Redirect {
    /// The refusal means the same as on a single server.
    AsItSays,
    /// Another server runs the request, which had no effect here.
    Elsewhere(Route),
    /// No server runs the request now, but one will.
    Later,
}

impl Route {
    pub(crate) fn to(server: &Arc<Server>) -> Self {
        Self { server: Arc::clone(server), asking: false }
    }
}
