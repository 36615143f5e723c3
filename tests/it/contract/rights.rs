//! A user without a right that a lock needs.

use lockson::{Client, ErrorKind};
use lockson_harness::RedisServer;

use super::persisted::READ;
use super::{kinds_and_group, run};
use crate::support::{fields, ttl_ms};

#[test]
fn a_refused_part_of_a_take_leaves_no_lock_without_end() {
    let denied = [
        "set", "pexpire", "hset", "pttl", "hdel", "del", "publish", "rpush", "zadd", "zrem", "lrem", "lpop", "incr",
        "eval",
    ];
    run(kinds_and_group().chain([&READ]), |kind| {
        let server = RedisServer::start();
        for denied in denied {
            let right = format!("-{denied}");
            server.run(&["ACL", "SETUSER", denied, "on", "nopass", "~*", "&*", "+@all", &right]);
            let url = server.url().replace("redis://", &format!("redis://{denied}:any@"));
            let lock = kind.get_lock(&Client::connect(&url).unwrap(), "job");
            match lock.try_lock() {
                Ok(guard) => drop(guard), // the acquire does not need that right
                Err(error) => {
                    let told = (error.kind(), error.redis_word());
                    assert_eq!(told, (ErrorKind::Refused, Some("NOPERM")), "{denied}: {error}");
                }
            }
            // The last fencing token is kept on purpose.
            for key in server.keys().iter().filter(|key| !key.starts_with("redisson_lock_token")) {
                let left = ttl_ms(&server, key);
                assert_ne!(left, -1, "without {denied} {key} stays for ever: {:?}", fields(&server, key));
            }
            server.run(&["FLUSHALL"]);
        }
    });
}
