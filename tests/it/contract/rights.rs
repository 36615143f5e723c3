//! A user without a right that a lock needs, and a server without room.

use super::persisted::READ;
use super::{kinds_and_group, run};
use crate::support::prelude::*;

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

/// A server that has no room for more lets everybody out.
#[test]
fn a_full_memory_refuses_takes_and_no_release() {
    let (server, client) = alone();
    let (semaphore, both) = (client.get_semaphore("semaphore"), client.get_read_write_lock("both"));
    let kinds = kinds_and_group().chain([&READ]).map(|kind| kind.get_lock(&client, kind.label));
    let locks: Vec<Lock> = kinds.chain([client.get_group_lock("group", ["1", "2"])]).collect();
    let outer: Vec<Guard> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let inner: Vec<Guard> = locks.iter().filter_map(|lock| lock.lock().ok()).collect();
    let (writing, reading) = (both.write().lock().unwrap(), both.read().lock().unwrap());
    semaphore.set_permits_once(3).unwrap();
    let permits = semaphore.acquire(2).unwrap();
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    for guard in inner.into_iter().chain(outer).chain([writing, reading]) {
        let what = format!("{guard:?}");
        guard.unlock().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    permits.release().unwrap();
    for lock in &locks {
        assert_eq!(lock.try_lock().unwrap_err().redis_word(), Some("OOM"), "{lock:?}");
    }
    assert_eq!(semaphore.acquire(1).unwrap_err().redis_word(), Some("OOM"));
}
