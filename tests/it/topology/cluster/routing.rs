//! Each request goes to the member that stores the key.

use lockson::RedLock;

use super::proxies_of;
use crate::support::prelude::*;

fn client() -> Client {
    Client::connect(&RedisCluster::shared().url()).unwrap()
}

/// The number of requests that members answered by sending the client elsewhere.
fn redirections(cluster: &RedisCluster) -> u64 {
    let moved = |node: &RedisServer| node.info("errorstat_MOVED").map_or(0, |stat| count_of(&stat));
    cluster.nodes().iter().map(moved).sum()
}

fn count_of(stat: &str) -> u64 {
    stat.split('=').nth(1).and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[test]
fn locks_of_all_members_are_taken_and_given_back() {
    let (cluster, client) = (RedisCluster::shared(), client());
    let mut used = [false; 3];
    for _ in 0..40 {
        let name = fresh("routing");
        let guard = client.get_lock(&name).try_lock().unwrap().expect("nobody else wants it");
        let node = cluster.node_of(&name);
        used[node] = true;
        assert!(cluster.node(node).query::<bool>(&["EXISTS", &name]), "the owner of slot {} has it", slot_of(&name));
        guard.unlock().unwrap();
        assert!(!cluster.node(node).query::<bool>(&["EXISTS", &name]));
    }
    assert_eq!(used, [true; 3]);
}

#[test]
fn one_member_is_enough_to_find_all() {
    let cluster = RedisCluster::shared();
    let place = cluster.node(1).address();
    for url in [format!("redis+cluster://{place}"), format!("valkey+cluster://127.0.0.1:1,{place}/0")] {
        let client = Client::connect(&url).unwrap();
        for _ in 0..10 {
            client.get_lock(fresh("one")).try_lock().unwrap().expect("nobody else wants it").unlock().unwrap();
        }
    }
}

#[test]
fn a_client_that_connects_lazily_learns_the_map() {
    let client = Client::builder(&RedisCluster::shared().url()).connect_lazily().unwrap();
    for _ in 0..10 {
        client.get_lock(fresh("lazily")).try_lock().unwrap().expect("nobody else wants it").unlock().unwrap();
    }
}

#[test]
fn locks_of_one_slot_are_taken_by_one_request() {
    let client = client();
    let tag = fresh("tag");
    let locks: Vec<Lock> = (0..5).map(|number| client.get_lock(format!("{{{tag}}}:{number}"))).collect();
    let multi = Lock::multi(locks);
    multi.try_lock().unwrap().expect("nobody else wants them").unlock().unwrap();
}

#[test]
fn a_red_lock_on_one_cluster_is_refused() {
    let client = client();
    let locks = (0..3).map(|_| client.get_lock(fresh("red")));
    let error = RedLock::new(locks).try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
}

#[test]
fn a_map_that_is_right_costs_no_redirection() {
    let cluster = RedisCluster::start(2, 0);
    let client = Client::connect(&cluster.url()).unwrap();
    for _ in 0..20 {
        client.get_lock(fresh("straight")).try_lock().unwrap().expect("nobody else wants it").unlock().unwrap();
    }
    assert_eq!(redirections(&cluster), 0);
}

#[test]
fn a_server_of_its_own_is_refused_behind_a_cluster_url() {
    let server = RedisServer::shared();
    let error = Client::connect(&format!("redis+cluster://{}", server.address())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("connect with redis://"), "{error}");
}

/// The machine of a dead master may have got another server by now, while its replica has its slots.
#[test]
fn a_stranger_at_the_address_of_a_member_is_left() {
    let cluster = RedisCluster::start(3, 1);
    let proxies = proxies_of(&cluster);
    cluster.wait_until_well();
    let masters = cluster.masters();
    let strangers = [RedisServer::start(), RedisServer::builder().password("word").start()];
    let url = format!("redis+cluster://{}", proxies[masters[2]].address());
    for (stranger, dead) in strangers.iter().zip(masters) {
        let client = Client::connect(&url).unwrap();
        let name = std::iter::repeat_with(|| fresh("stranger")).find(|name| cluster.node_of(name) == dead).unwrap();
        cluster.fail_over(dead);
        proxies[dead].retarget(stranger.address());
        let lock = client.get_lock(&name);
        // A refused login may be that of the client, so it is told; but the map is looked at.
        eventually(SOON, "its successor is found", || lock.try_lock_for(ms(2_000)).is_ok());
    }
}

#[test]
fn a_stranger_in_the_url_hides_no_member() {
    let [stranger, member] = [RedisServer::shared(), RedisCluster::shared().node(0)].map(RedisServer::address);
    let client = Client::builder(&format!("redis+cluster://{stranger},{member}")).connect_lazily().unwrap();
    let lock = client.get_lock(fresh("hidden"));
    eventually(SOON, "the members are found", || lock.try_lock().is_ok());
}
