//! The simplest topology: one server stores every key.

use std::sync::Arc;

use super::Topology;
use super::server::Server;
use crate::transport::ServerNumber;

/// One server for all keys.
#[derive(Debug)]
pub(crate) struct Standalone {
    server: Arc<Server>,
}

impl Standalone {
    pub(crate) fn new(server: Server) -> Self {
        Self { server: Arc::new(server) }
    }
}

impl Topology for Standalone {
    fn server_for(&self, _key: &[u8]) -> Arc<Server> {
        Arc::clone(&self.server)
    }

    fn server(&self, _number: ServerNumber) -> Option<Arc<Server>> {
        Some(Arc::clone(&self.server))
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        vec![Arc::clone(&self.server)]
    }
}
