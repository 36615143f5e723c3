//! Dead waiters: the delay for the waiters behind, and no needless requests meanwhile.

use super::{PATIENCE, Queue, hasty_client, leave, now_ms, throughout};
use crate::support::prelude::*;

#[test]
fn waiters_behind_a_dead_head_ask_rarely() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let client = hasty_client(&server);
    drop(client.get_fair_lock("job").lock().unwrap()); // from here on the script is known
    // The state that a Java client leaves when the client waits with 300 s and dies while the lock is free.
    let far = (now_ms(&server) + 330_000).to_string();
    server.run(&["RPUSH", &queue.list(), "dead:1"]);
    server.run(&["ZADD", &queue.deadlines(), &far, "dead:1"]);
    server.reset_counters();
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                leave(client.get_fair_lock("job").try_lock_for(3 * SOON).unwrap().expect("the waiter's turn comes"))
            });
        }
        // Each waiter asks on arrival, after subscribing, and four times within its patience.
        throughout(ms(1_200), || assert!(server.calls_of("evalsha") <= 15, "{} times", server.calls_of("evalsha")));
        assert_eq!(queue.owners().len(), 4, "the waiters still wait");
    });
    let took = began.elapsed();
    assert!(took <= PATIENCE + SCHEDULING, "{took:?}");
    queue.assert_gone();
}
