//! One server as the engine sees it: requests, a hub for waiting, a lane for renewing.

use std::sync::Arc;

use super::wake::Hub;
use super::watchdog::Lane;
use crate::conn::Server;

/// A server with what belongs to it alone.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: Arc<Server>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) lane: Lane,
}
