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
    /// When the first question was asked that has had no answer, nor any other since.
    unanswered: Mutex<Option<Instant>>,
}

impl Node {
    pub(crate) fn new(server: Arc<Server>, hub: Arc<Hub>) -> Self {
        Self { server, hub, lane: Lane::default(), unanswered: Mutex::default() }
    }

    /// Somebody asks the server.
    pub(crate) fn is_asked(&self, now: Instant) {
        self.unanswered.lock().get_or_insert(now);
    }

    /// The server answered somebody.
    pub(crate) fn has_answered(&self) {
        *self.unanswered.lock() = None;
    }

    /// Since when it has been asked without answering anybody; `None` while it answers.
    pub(crate) fn mute_since(&self) -> Option<Instant> {
        *self.unanswered.lock()
    }
}
