//! The end of a client whose threads wait in the queue.

use std::thread;
use std::time::Instant;

use lockson::{Client, ErrorKind};
use lockson_harness::RedisServer;

use super::{Queue, leave};
use crate::support::{SCHEDULING, SOON, client, fresh, joined, kind_of};

#[test]
fn waiters_of_a_closed_client_delay_no_other() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let doomed = Client::builder(&server.url()).drop_timeout(SOON).connect().unwrap();
    let guard = client().get_fair_lock(&name).lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| scope.spawn(|| kind_of(doomed.get_fair_lock(&name).lock()))).collect();
        queue.await_length(5);
        let live = queue.waiter(scope, client().get_fair_lock(&name), leave);
        let owner = queue.owners().pop();
        doomed.close();
        assert_eq!(queue.owners(), Vec::from_iter(owner), "the waiters of the closed client have left the queue");
        assert_eq!(queue.left_ms().len(), 1);
        let released = Instant::now();
        guard.unlock().unwrap();
        let waited = joined(live).0 - released;
        assert!(waited <= SCHEDULING, "{waited:?}");
        assert!(waiters.into_iter().all(|waiter| joined(waiter) == ErrorKind::Closed));
    });
    queue.assert_gone();
}
