//! `Client::scan` while the cluster changes.

use super::proxies_of;
use crate::support::prelude::*;

#[test]
fn a_scan_finds_all_names_across_a_fail_over() {
    let cluster = RedisCluster::start(3, 1);
    let proxies = proxies_of(&cluster);
    let holder = Client::connect(&cluster.url()).unwrap();
    let mut names: Vec<String> = (0..30).map(|_| fresh("scan")).collect();
    names.sort();
    let _guards: Vec<_> = names.iter().map(|name| holder.get_lock(name).lock().unwrap()).collect();
    for is_killed in [false, true] {
        // Each time another master, and each is asked before or after the one that changes.
        let master = cluster.masters()[usize::from(is_killed)];
        cluster.wait_until_synced(master);
        let client = Client::builder(&cluster.url()).command_timeout(Duration::from_secs(20)).connect_lazily().unwrap();
        let held = proxies[master].rule(When::command("SCAN"), Then::HoldRequest);
        thread::scope(|scope| {
            let scan = scope.spawn(|| client.scan("scan:", 1_000));
            held.wait_hit(SOON);
            if is_killed {
                cluster.fail_over(master);
                proxies[master].cut(Scope::All);
            } else {
                cluster.take_over(cluster.replicas_of(master)[0]);
            }
            held.release();
            assert_eq!(scan.join().unwrap().unwrap(), names, "killed: {is_killed}");
        });
        cluster.wait_until_well();
    }
}

#[test]
fn a_scan_waits_for_a_cluster_that_is_down() {
    let cluster = RedisCluster::start(3, 1);
    let proxies = proxies_of(&cluster);
    let holder = Client::connect(&cluster.url()).unwrap();
    let mut names: Vec<String> = (0..30).map(|_| fresh("down")).collect();
    names.sort();
    let _guards: Vec<_> = names.iter().map(|name| holder.get_lock(name).lock().unwrap()).collect();
    // The masters are asked in the order of their slots.
    let &[asked, _, killed] = &cluster.masters()[..] else { panic!("three masters") };
    cluster.wait_until_synced(killed);
    let replica = cluster.replicas_of(killed)[0];
    let may_take_over = |may: &str| {
        cluster.node(replica).run(&["CONFIG", "SET", "cluster-replica-no-failover", may]);
    };
    may_take_over("yes");
    let connect = |timeout| Client::builder(&cluster.url()).command_timeout(timeout).connect_lazily().unwrap();
    cluster.kill(killed);
    proxies[killed].cut(Scope::All);
    eventually(SOON, "the cluster is down", || {
        let error = connect(Duration::from_secs(1)).scan("down:", 1_000).unwrap_err();
        assert!(!error.to_string().contains("redis+cluster"), "{error}");
        error.redis_word() == Some("CLUSTERDOWN")
    });
    let client = connect(Duration::from_secs(20));
    let first = proxies[asked].rule(When::command("TYPE"), Then::HoldRequest);
    thread::scope(|scope| {
        let scan = scope.spawn(|| client.scan("down:", 1_000));
        first.wait_hit(SOON);
        let again = proxies[asked].rule(When::command("TYPE"), Then::HoldRequest);
        first.release();
        again.wait_hit(SOON);
        assert!(!scan.is_finished());
        may_take_over("no");
        again.release();
        assert_eq!(scan.join().unwrap().unwrap(), names);
    });
}
