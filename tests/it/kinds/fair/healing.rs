//! The lock goes on after any damage to the queue's keys.

use super::{PATIENCE, Queue, hasty_client, leave, now_ms};
use crate::support::prelude::*;

/// Damages the queue of these owners.
type Spoil = fn(Queue<'_>, &[String]);

fn run(queue: Queue<'_>, words: &[&str]) {
    queue.server.run(words);
}

const SPOILED: [(&str, Spoil); 16] = [
    ("the first deadline is lost", |queue, owners| run(queue, &["ZREM", &queue.deadlines(), &owners[0]])),
    ("the second deadline is lost", |queue, owners| run(queue, &["ZREM", &queue.deadlines(), &owners[1]])),
    ("the last deadline is lost", |queue, owners| run(queue, &["ZREM", &queue.deadlines(), &owners[2]])),
    ("the first place is lost", |queue, owners| run(queue, &["LREM", &queue.list(), "0", &owners[0]])),
    ("the second place is lost", |queue, owners| run(queue, &["LREM", &queue.list(), "0", &owners[1]])),
    ("the last place is lost", |queue, owners| run(queue, &["LREM", &queue.list(), "0", &owners[2]])),
    ("all deadlines are lost", |queue, _| run(queue, &["DEL", &queue.deadlines()])),
    ("all places are lost", |queue, _| run(queue, &["DEL", &queue.list()])),
    ("who is alive is lost", |queue, _| run(queue, &["DEL", &queue.alive()])),
    ("all but the places is lost", |queue, _| run(queue, &["DEL", &queue.deadlines(), &queue.alive()])),
    ("both are lost", |queue, _| run(queue, &["DEL", &queue.list(), &queue.deadlines()])),
    ("everybody stands there twice", |queue, owners| {
        owners.iter().for_each(|owner| run(queue, &["RPUSH", &queue.list(), owner]));
    }),
    ("a head without a deadline", |queue, _| run(queue, &["LPUSH", &queue.list(), "nobody:1"])),
    ("somebody without a deadline in the middle", |queue, owners| {
        run(queue, &["LINSERT", &queue.list(), "AFTER", &owners[0], "nobody:1"]);
    }),
    ("a deadline without a place", |queue, _| {
        run(queue, &["ZADD", &queue.deadlines(), &(now_ms(queue.server) + 1_000).to_string(), "nobody:1"]);
    }),
    ("somebody alive without a place", |queue, _| {
        run(queue, &["ZADD", &queue.alive(), &(now_ms(queue.server) + 1_000).to_string(), "nobody:1.1"]);
    }),
];

#[test]
fn a_queue_and_deadlines_out_of_step_heal() {
    at_once(SPOILED, |(what, spoil)| {
        let (server, name) = (RedisServer::shared(), fresh("fair"));
        let queue = Queue { server, name: &name };
        let guard = hasty_client(server).get_fair_lock(&name).lock().unwrap();
        thread::scope(|scope| {
            let waiters = [(); 3].map(|()| queue.waiter(scope, hasty_client(server).get_fair_lock(&name), leave));
            spoil(queue, &queue.owners());
            guard.unlock().unwrap();
            let released = Instant::now();
            for waiter in waiters {
                let waited = joined(waiter).0.saturating_duration_since(released);
                assert!(waited <= PATIENCE + ms(1_000) + SCHEDULING, "{what}: {waited:?}");
            }
        });
        let lock = hasty_client(server).get_fair_lock(&name);
        assert!(lock.try_lock_for(PATIENCE + SCHEDULING).unwrap().is_some(), "{what}");
        // Keys without waiters may stay, but must expire.
        assert!(queue.owners().is_empty(), "{what}");
        assert!(queue.keys().iter().all(|key| ttl_ms(server, key) != -1), "{what}");
    });
}

#[test]
fn queue_keys_expire_while_in_use_and_are_gone_afterwards() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let guard = client().get_fair_lock(&name).lock().unwrap();
    thread::scope(|scope| {
        let waiters = [(); 3].map(|()| queue.waiter(scope, client().get_fair_lock(&name), leave));
        for key in queue.keys() {
            let left = ttl_ms(server, &key);
            let farthest = queue.left_ms().into_values().max().unwrap();
            assert!(left > farthest && left <= farthest + 86_400_000 + 5_000, "{key}: {left}, {farthest}");
        }
        guard.unlock().unwrap();
        waiters.into_iter().for_each(|waiter| _ = joined(waiter));
    });
    queue.assert_gone();
}
