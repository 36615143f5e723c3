//! The knowledge of this process about its locks: holders, waiters, turns, listeners.

pub(crate) mod hub;
pub(crate) mod queues;
pub(crate) mod registry;
pub(crate) mod stand_backs;
pub(crate) mod successor;
pub(crate) mod taken;
pub(crate) mod waiters;

use std::sync::Arc;
use std::time::Duration;

use crate::conn::Server;
use crate::engine::per_server::PerServer;
use crate::name::LockName;
use hub::{Hub, Reports};
use queues::Queues;
use registry::Registry;
use stand_backs::StandBacks;
use taken::AllTaken;
use waiters::Waiters;

/// The knowledge about its locks that the threads of one client share.
pub(crate) struct Cells {
    pub(crate) registry: Registry,
    pub(crate) waiters: Waiters,
    /// Of the threads that want a lock, the first asks Redis.
    pub(crate) local_queues: Queues<LockName>,
    pub(crate) counted_queues: Queues<String>,
    pub(crate) stand_backs: StandBacks,
    pub(crate) taken: AllTaken,
    hubs: PerServer<Hub>,
    reports: Arc<dyn Reports>,
    command_timeout: Duration,
}

impl Cells {
    pub(crate) fn new(command_timeout: Duration, reports: Arc<dyn Reports>) -> Self {
        Self {
            registry: Registry::default(),
            waiters: Waiters::default(),
            local_queues: Queues::default(),
            counted_queues: Queues::default(),
            stand_backs: StandBacks::default(),
            taken: AllTaken::default(),
            hubs: PerServer::default(),
            reports,
            command_timeout,
        }
    }

    /// The waiters at a server, and its listening connection.
    pub(crate) fn hub(&self, server: &Arc<Server>) -> &Arc<Hub> {
        let hub = || Hub::new(Arc::clone(server), self.command_timeout, Arc::clone(&self.reports));
        self.hubs.get(server.number(), hub)
    }

    /// Ends the listening connections, and wakes every waiter.
    pub(crate) fn close(&self) {
        self.hubs.all().for_each(|hub| hub.close());
    }
}
