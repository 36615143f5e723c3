//! Connections that stay idle are closed, and servers that were down are tried again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::conn::Server;
use crate::engine::sender::Sender;
use crate::engine::sender::node::Node;
use crate::name::LockName;
use crate::time::Instant;

impl Sender {
    /// Schedules the closing of connections that stay idle after a burst.
    pub(crate) fn after_request(&self, node: &Arc<Node>) {
        if node.server.has_spare_connections() && !self.trimming.swap(true, Ordering::AcqRel) {
            self.trim_later(Instant::now().after(self.config.idle_timeout));
        }
    }

    fn trim_later(&self, at: Instant) {
        self.later(&self.cleaner, at, |sender| {
            let limit = sender.config.idle_timeout.max(Duration::from_millis(10));
            let trim = |server: &Server| server.trim(Instant::now(), limit);
            sender.trimming.store(false, Ordering::Release);
            if sender.life.is_closed() {
                return;
            }
            // A server without keys may still have connections.
            if let Some(next) = sender.nodes.all().filter_map(|node| trim(&node.server)).min()
                && !sender.trimming.swap(true, Ordering::AcqRel)
            {
                sender.trim_later(next);
            }
        });
    }

    /// Finds out in the background whether a server that is down answers again.
    pub(crate) fn try_again_later(&self, name: &LockName) {
        let now = Instant::now();
        let node = self.node(name);
        let server = Arc::clone(&node.server);
        let limit = self.config.command_timeout;
        // The trial may follow a cleanup, which takes as long. A request between the end of the time and the end
        // of the trial would wait for the server.
        if server.claim_trial(now, now.after(limit * 3)) {
            node.cleaner.run_at(now, move || server.try_again(Instant::now().after(limit)));
        }
    }
}
