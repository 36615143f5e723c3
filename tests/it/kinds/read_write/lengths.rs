//! Holds of different lengths side by side: a release or a re-entry never cuts the lease of another hold.

use lockson_harness::RedisServer;

use super::sides;
use crate::support::{client, fresh, ms, ttl_ms};

#[test]
fn the_longest_reader_that_stays_decides_though_it_came_first() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let read = sides(&client(), &name).0;
    let take = |lease| read.with_lease(ms(lease)).owned().lock().unwrap();
    let (long, short, middle) = (take(60_000), take(10_000), take(20_000));
    middle.unlock().unwrap();
    let left = ttl_ms(server, &name);
    assert!((50_000..=60_000).contains(&left), "the first reader was promised a minute: {left} ms");
    short.unlock().unwrap();
    long.unlock().unwrap();
}

#[test]
fn a_shorter_inner_read_cuts_nothing_when_another_reader_leaves() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let read = sides(&client(), &name).0;
    let outer = read.with_lease(ms(60_000)).lock().unwrap();
    let other = read.with_lease(ms(5_000)).owned().lock().unwrap();
    let inner = read.with_lease(ms(2_000)).lock().unwrap();
    // A release leaves the lock a time to live that covers the keys of the other holds.
    other.unlock().unwrap();
    let left = ttl_ms(server, &name);
    assert!((50_000..=60_000).contains(&left), "the outer hold was promised a minute: {left} ms");
    assert!(outer.is_held());
    inner.unlock().unwrap();
    outer.unlock().unwrap();
}
