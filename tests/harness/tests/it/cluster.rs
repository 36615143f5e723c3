//! The promises of the harness about clusters.

use std::sync::Barrier;
use std::time::Duration;
use std::{iter, thread};

use lockson_harness::{RedisCluster, eventually, slot_of};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_cluster_serves_all_slots() {
    let cluster = RedisCluster::shared();
    assert_eq!(cluster.masters(), [0, 1, 2]);
    for key in ["a", "b", "{a}b", "a{}b", "a{b", "123456789"] {
        let node = cluster.node(cluster.node_of(key));
        node.run(&["SET", key, "value"]);
        let slot: u16 = node.query(&["CLUSTER", "KEYSLOT", key]);
        assert_eq!(slot, slot_of(key));
    }
    let places = cluster.url();
    assert_eq!(places.matches("127.0.0.1:").count(), 3, "{places}");
}

#[test]
fn a_slot_moves_in_steps_and_in_one() {
    let cluster = RedisCluster::start(2, 0);
    let (slot, from) = (slot_of("t"), cluster.node_of("t"));
    let to = 1 - from;
    let [source, target] = [from, to].map(|index| cluster.node(index));
    for key in ["{t}1", "{t}2", "{t}3"] {
        source.run(&["SET", key, "value"]);
    }
    cluster.begin_move(slot, to);
    assert_eq!(cluster.move_keys(slot, to, |key| key == b"{t}2"), 1);
    assert_eq!(cluster.owner_of(slot), from);
    let kept: String = source.query(&["GET", "{t}1"]);
    assert_eq!(kept, "value");
    let refused = source.try_query::<String>(&["GET", "{t}2"]).unwrap_err();
    assert!(refused.to_string().to_uppercase().contains("ASK"), "{refused}");
    cluster.finish_move(slot, to);
    assert_eq!(cluster.owner_of(slot), to);
    assert_eq!(target.keys(), ["{t}1", "{t}2", "{t}3"]);
    cluster.move_slot(slot, from);
    assert_eq!(source.keys(), ["{t}1", "{t}2", "{t}3"]);
}

#[test]
fn a_replica_takes_over_and_the_old_master_follows() {
    let cluster = RedisCluster::start(3, 1);
    let master = cluster.node_of("key");
    cluster.node(master).run(&["SET", "key", "value"]);
    cluster.wait_until_synced(master);
    let next = cluster.fail_over(master);
    assert_eq!(cluster.node_of("key"), next);
    let value: String = cluster.node(next).query(&["GET", "key"]);
    assert_eq!(value, "value");
    cluster.start_again(master);
    eventually(SOON, "the old master follows", || cluster.replicas_of(next) == [master]);
    cluster.wait_until_synced(next);
    cluster.take_over(master);
    assert_eq!(cluster.node_of("key"), master);
}

#[test]
fn a_paused_master_loses_its_slots_to_its_replica() {
    let cluster = RedisCluster::start(3, 1);
    let master = cluster.node_of("key");
    let [replica] = cluster.replicas_of(master)[..] else { panic!("one replica") };
    cluster.node(master).pause();
    eventually(SOON, "the replica takes over", || cluster.is_well() && cluster.node_of("key") == replica);
    cluster.node(master).resume();
    eventually(SOON, "the old master follows", || cluster.is_well() && cluster.replicas_of(replica) == [master]);
}

/// Two nodes that send keys to each other would wait for each other.
#[test]
fn keys_move_both_ways_at_once() {
    const KEYS: usize = 5_000;
    let (cluster, together) = (RedisCluster::start(2, 0), Barrier::new(2));
    thread::scope(|scope| {
        for from in [0, 1] {
            let (cluster, together) = (&cluster, &together);
            scope.spawn(move || {
                let is_there = |tag: &String| cluster.owner_of(slot_of(tag)) == from;
                let tag = (0..).map(|number| number.to_string()).find(is_there).expect("it has slots");
                let pairs = (0..KEYS).flat_map(|key| [format!("{{{tag}}}{key}"), "value".to_owned()]);
                let words: Vec<String> = iter::once("MSET".to_owned()).chain(pairs).collect();
                cluster.node(from).run(&words.iter().map(String::as_str).collect::<Vec<_>>());
                cluster.begin_move(slot_of(&tag), 1 - from);
                together.wait();
                assert_eq!(cluster.move_keys(slot_of(&tag), 1 - from, |_| true), KEYS);
            });
        }
    });
}
