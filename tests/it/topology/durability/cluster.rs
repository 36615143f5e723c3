//! A cluster: each lock waits for the replicas of its member, also while its slot moves.

use super::scene::{none, one};
use crate::support::prelude::*;

#[test]
fn locks_of_a_cluster_wait_for_the_replicas_of_their_members() {
    let cluster = RedisCluster::start(2, 1);
    let client = Client::builder(&cluster.url()).watchdog(ms(3_000), ms(200)).durability(one()).connect().unwrap();
    let several: Vec<Lock> = (0..8).map(|_| client.get_lock(fresh("slots"))).collect();
    Lock::multi(several).lock().unwrap().unlock().unwrap();

    let name = fresh("moving");
    let (slot, from) = (slot_of(&name), cluster.node_of(&name));
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("there are two");
    cluster.begin_move(slot, to);
    // The key is at neither member, so the one that gets the slot is asked.
    let guard = client.get_lock(&name).try_lock().unwrap().expect("it is free");
    let has_it = |node: usize| cluster.node(node).query::<i64>(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]) == 1;
    assert!(has_it(to));
    std::thread::sleep(ms(3_500));
    assert!(guard.is_held(), "renewed with the slot half moved");
    guard.extend(SOON).unwrap();
    cluster.finish_move(slot, to);
    // Redis 8.6 hides the key at a replica until the slot is that of its master.
    eventually(SOON, "its replicas show the key", || cluster.replicas_of(to).into_iter().all(has_it));
    guard.unlock().unwrap();

    cluster.replicas_of(to).into_iter().for_each(|replica| cluster.node(replica).pause());
    assert_eq!(kind_of(client.get_lock(&name).with_durability(none()).try_lock()), lockson::ErrorKind::NotDurable);
    eventually(SOON, "it is given back", || !client.get_lock(&name).is_locked().unwrap());
    cluster.replicas_of(to).into_iter().for_each(|replica| cluster.node(replica).resume());
}

#[test]
fn a_renewal_over_a_redirection_needs_its_replicas() {
    let cluster = RedisCluster::start(2, 1);
    let client = Client::builder(&cluster.url()).watchdog(ms(3_000), ms(500)).durability(one()).connect().unwrap();
    let name = fresh("half-moved");
    let (slot, from) = (slot_of(&name), cluster.node_of(&name));
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("there are two");
    let guard = client.get_lock(&name).lock().unwrap();
    cluster.begin_move(slot, to);
    assert_eq!(cluster.move_keys(slot, to, |_| true), 1);
    let replicas = cluster.replicas_of(to);
    replicas.iter().for_each(|replica| cluster.node(*replica).pause());
    assert!(guard.wait_lost(SOON).is_some(), "no replica has the renewals");
    replicas.iter().for_each(|replica| cluster.node(*replica).resume());
}
