//! `Client::scan` while the cluster changes.

use std::thread;
use std::time::Duration;

use lockson::Client;
use lockson_harness::RedisCluster;
use lockson_harness::proxy::{Then, When};

use super::proxies_of;
use crate::support::{SOON, fresh};

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
                proxies[master].cut(lockson_harness::proxy::Scope::All);
            } else {
                cluster.take_over(cluster.replicas_of(master)[0]);
            }
            held.release();
            assert_eq!(scan.join().unwrap().unwrap(), names, "killed: {is_killed}");
        });
        cluster.wait_until_well();
    }
}
