//! The promises of the harness about sentinels.

use std::time::Duration;

use lockson_harness::{SentinelSet, eventually};

#[test]
fn a_replica_becomes_master_and_the_old_master_follows() {
    let set = SentinelSet::builder(1, 3).password("word").sentinel_password("other").start();
    assert_eq!(set.master(), Some(0));
    set.server(0).run(&["SET", "key", "value"]);
    set.wait_for_sync();
    set.server(0).kill();
    assert_eq!(set.wait_for_another_master(0), 1);
    let value: String = set.server(1).query(&["GET", "key"]);
    assert_eq!(value, "value");
    set.rejoin(0);
    set.wait_until_ready();
    let keys = set.server(0).keys();
    assert_eq!(keys, ["key"]);
    assert!(set.url().ends_with("/mymaster?sentinel_pass=other"), "{}", set.url());
}

#[test]
fn a_stopped_master_is_replaced() {
    let set = SentinelSet::start(1, 3);
    set.server(0).pause();
    set.wait_for_another_master(0);
    set.server(0).resume();
    // A sentinel that makes a server a replica also ends the server's connections.
    let follows = || set.server(0).try_query::<Vec<redis::Value>>(&["ROLE"]).is_ok_and(|role| role.len() == 5);
    eventually(Duration::from_secs(30), "the old master follows", follows);
}
