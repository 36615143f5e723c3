//! A user without a right that a lock needs.

use lockson::Client;
use lockson_harness::RedisServer;

use super::for_every_kind;
use crate::support::{fields, ttl_ms};

#[test]
fn a_refused_part_of_a_take_leaves_no_lock_without_end() {
    let denied = [
        "set", "pexpire", "hset", "pttl", "hdel", "del", "publish", "rpush", "zadd", "zrem", "lrem", "lpop", "incr",
        "eval",
    ];
    for_every_kind(|kind| {
        let server = RedisServer::start();
        for denied in denied {
            let right = format!("-{denied}");
            server.run(&["ACL", "SETUSER", denied, "on", "nopass", "~*", "&*", "+@all", &right]);
            let url = server.url().replace("redis://", &format!("redis://{denied}:any@"));
            let lock = kind.get_lock(&Client::connect(&url).unwrap(), "job");
            match lock.try_lock() {
                Ok(guard) => drop(guard), // the acquire does not need that right
                Err(error) => assert_eq!(error.redis_word(), Some("NOPERM"), "{denied}: {error}"),
            }
            let left = ttl_ms(&server, lock.name());
            assert_ne!(left, -1, "without {denied} the lock stays for ever: {:?}", fields(&server, lock.name()));
            server.run(&["FLUSHALL"]);
        }
    });
}
