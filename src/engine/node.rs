//! One server as the engine sees it: requests, a hub for waiting, a lane for renewing.

use std::sync::Arc;

use super::hub::Hub;
use super::watchdog::Lane;
use crate::conn::Server;
use crate::sync::Mutex;
use crate::time::Instant;

/// A server with what belongs to it alone.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: Arc<Server>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) lane: Lane,
    answered: Mutex<Instant>,
}

impl Node {
    pub(crate) fn new(server: Arc<Server>, hub: Arc<Hub>) -> Self {
        Self { server, hub, lane: Lane::default(), answered: Mutex::new(Instant::now()) }
    }

    /// The server answered somebody.
    pub(crate) fn has_answered(&self) {
        *self.answered.lock() = Instant::now();
    }

    /// When the server last answered anybody.
    pub(crate) fn last_answer(&self) -> Instant {
        *self.answered.lock()
    }
}
