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
use crate::sync::{AtomicBool, Ordering};
use hub::{Hub, Reports};
use queues::Queues;
use registry::Registry;
use stand_backs::StandBacks;
use taken::AllTaken;
use waiters::Waiters;

/// The knowledge about locks that the threads of one client share.
pub(crate) struct Cells {
    pub(crate) registry: Registry,
    pub(crate) waiters: Waiters,
    /// Of the threads that want a lock, the first asks Redis.
    pub(crate) local_queues: Queues,
    pub(crate) counted_queues: Queues,
    pub(crate) stand_backs: StandBacks,
    pub(crate) taken: AllTaken,
    hubs: PerServer<Hub>,
    /// Whether a thread asks ahead of the queues.
    asks_ahead: AtomicBool,
    reports: Arc<dyn Reports>,
    command_timeout: Duration,
}

/// A thread that asks ahead of the queues; there is one at most.
pub(crate) struct Ahead<'a>(&'a AtomicBool);

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
            asks_ahead: AtomicBool::new(false),
            reports,
            command_timeout,
        }
    }

    /// The waiters at a server, and its listening connection.
    pub(crate) fn hub(&self, server: &Arc<Server>) -> &Arc<Hub> {
        let hub = || Hub::new(Arc::clone(server), self.command_timeout, Arc::clone(&self.reports));
        self.hubs.get(server.number(), hub)
    }

    /// Lets a thread ask without a place in a queue where no thread waits, and none listens at this server.
    pub(crate) fn ahead(&self, server: &Arc<Server>) -> Option<Ahead<'_>> {
        let ahead = (!self.asks_ahead.swap(true, Ordering::Acquire)).then(|| Ahead(&self.asks_ahead));
        ahead.filter(|_| self.local_queues.is_empty() && self.counted_queues.is_empty() && self.hub(server).is_quiet())
    }

    /// Ends the listening connections, and wakes every waiter.
    pub(crate) fn close(&self) {
        self.hubs.all().for_each(|hub| hub.close());
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Bell;
    use crate::name::LockName;

    #[test]
    fn one_thread_asks_ahead_while_nobody_waits() {
        let (server, bell) = (Arc::new(Server::for_test("redis://127.0.0.1:1")), Bell::new());
        let cells = Cells::new(Duration::from_secs(1), Arc::new(()));
        let first = cells.ahead(&server);
        let others = [(); 3].map(|()| cells.ahead(&server).is_some());
        assert_eq!((first.is_some(), others), (true, [false; 3]));
        drop(first);
        let waits = cells.local_queues.join(LockName::new("n").unwrap(), 1, &bell, false);
        assert!(cells.ahead(&server).is_none());
        drop(waits);
        assert!(cells.ahead(&server).is_some());
    }
}
