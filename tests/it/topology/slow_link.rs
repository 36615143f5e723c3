//! Clients behind slow links: sentinels and the nodes of a replicated set are reached again after a cut.

use std::net::SocketAddr;

use lockson_harness::SentinelSet;

use super::link::SlowLink;
use crate::support::prelude::*;

/// Cuts the links to these servers for a second, and has a lock soon after the end of the cut.
fn comes_back(servers: &[SocketAddr], master: &RedisServer, builder: &(impl Fn(&str) -> ClientBuilder + Sync)) {
    let open = &|round_trip| {
        let links: Vec<_> = servers.iter().map(|server| SlowLink::to(*server, round_trip)).collect();
        let places: Vec<_> = links.iter().map(|link| format!("127.0.0.1:{}", link.port)).collect();
        let client = builder(&places.join(",")).connect().unwrap();
        client.get_lock(fresh("before")).lock().unwrap().unlock().unwrap();
        (round_trip, links, client)
    };
    let opened: Vec<_> = thread::scope(|scope| {
        let opening = [0, 100, 200, 300].map(ms).map(|round_trip| scope.spawn(move || open(round_trip)));
        opening.map(|thread| thread.join().unwrap()).into()
    });
    opened.iter().flat_map(|(_, links, _)| links).for_each(SlowLink::cut);
    thread::sleep(ms(1_000));
    master.run(&["CLIENT", "KILL", "TYPE", "normal"]);
    opened.iter().flat_map(|(_, links, _)| links).for_each(SlowLink::mend);
    let mended = Instant::now();
    thread::scope(|scope| {
        for (round_trip, _, client) in &opened {
            scope.spawn(move || {
                while client.get_lock(fresh("after")).try_lock().is_err() {
                    assert!(mended.elapsed() < 2 * COMMAND_TIMEOUT + STANDSTILLS, "{round_trip:?}");
                }
                println!("{round_trip:?} of round trip: a lock {:?} after the cut", mended.elapsed());
            });
        }
    });
}

#[test]
#[ignore = "a campaign, for make topology"]
fn sentinels_behind_a_slow_link_are_reached_again() {
    let set = SentinelSet::start(0, 3);
    let sentinels: Vec<_> = set.sentinels().iter().map(|sentinel| sentinel.address()).collect();
    let suffix = set.url().rsplit_once('/').unwrap().1.to_owned();
    comes_back(&sentinels, set.server(0), &|places| {
        Client::builder(&format!("redis+sentinel://{places}/{suffix}")).command_timeout(COMMAND_TIMEOUT)
    });
}

#[test]
#[ignore = "a campaign, for make topology"]
fn nodes_behind_a_slow_link_are_reached_again() {
    let set = SentinelSet::start(1, 1);
    let nodes: Vec<_> = set.servers().iter().map(|server| server.address()).collect();
    comes_back(&nodes, set.server(0), &|places| {
        Client::builder(&format!("redis+replicated://{places}")).command_timeout(COMMAND_TIMEOUT)
    });
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "a campaign, for make topology"]
fn nodes_behind_a_slow_link_and_tls_are_reached_again() {
    use lockson::Tls;
    use lockson_harness::Authority;

    let authority = Authority::new();
    let start = || RedisServer::builder().tls(&authority.server()).start();
    let [master, replica] = [start(), start()];
    replica.run(&["REPLICAOF", "127.0.0.1", &master.address().port().to_string()]);
    comes_back(&[master.tls_address(), replica.tls_address()], &master, &|places| {
        let builder = Client::builder(&format!("rediss+replicated://{places}"));
        builder.tls(Tls::new().with_ca_file(authority.file())).command_timeout(COMMAND_TIMEOUT)
    });
}

/// Nothing is renewed, so the watchdog opens its connection for the watch alone, which takes two round trips.
#[test]
fn a_leased_lock_behind_a_slow_link_is_watched() {
    let server = RedisServer::start();
    let link = SlowLink::to(server.address(), ms(300));
    let client = Client::builder(&format!("redis://127.0.0.1:{}", link.port)).watchdog(ms(2_000), ms(1_000));
    let guard = client.connect().unwrap().get_lock(fresh("far")).with_lease(SOON * 6).lock().unwrap();
    assert_eq!(guard.wait_lost(ms(4_000)), None, "both connections can be open by then");
    server.run(&["DEL", guard.name()]);
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
}

/// The guard of the outer section ends while the close is under way.
#[test]
fn a_guard_that_ends_beside_the_close_leaves_a_kept_section() {
    let (server, name) = (RedisServer::start(), fresh("group"));
    let link = SlowLink::to(server.address(), ms(50));
    let client = Client::connect(&format!("redis://127.0.0.1:{}", link.port)).unwrap();
    let group = client.get_group_lock(&name, ["a"]);
    let outer = group.lock().unwrap();
    group.with_lease(SOON * 6).lock().unwrap().keep_until_expiry();
    thread::scope(|scope| {
        scope.spawn(|| client.close());
        assert_eq!(outer.wait_lost(SOON), Some(Loss::Closed));
        drop(outer);
    });
    let direct = Client::connect(&server.url()).unwrap();
    assert!(direct.get_group_lock(&name, ["a"]).try_lock().unwrap().is_none());
}

const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);
