//! Members behind slow links: they are found again, plain and over TLS.

use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::thread;

use crate::campaign::Campaign;
#[cfg(feature = "tls")]
use crate::support::prelude::*;
use crate::topology::link::SlowLink;

/// Four masters, which a client reaches by slow links only.
struct Scene {
    cluster: RedisCluster,
    links: Vec<SlowLink>,
}

impl Scene {
    fn new(cluster: RedisCluster, round_trip: Duration, address: fn(&RedisServer) -> SocketAddr) -> Scene {
        let to = |node| SlowLink::to(address(node), round_trip);
        let links: Vec<SlowLink> = cluster.nodes().iter().map(to).collect();
        for (node, link) in cluster.nodes().iter().zip(&links) {
            node.run(&["CONFIG", "SET", "cluster-announce-port", &link.port.to_string()]);
        }
        let knows = |node: &RedisServer| {
            let nodes: String = node.query(&["CLUSTER", "NODES"]);
            links.iter().all(|link| nodes.contains(&format!(":{}@", link.port)))
        };
        eventually(SOON, "the nodes announce the links", || cluster.nodes().iter().all(knows));
        Scene { cluster, links }
    }

    /// Takes a lock whose slot has moved away from a master that is gone. Returns how long that took.
    fn find_again(&self, builder: impl Fn(&str) -> ClientBuilder) -> Duration {
        let places: Vec<String> = self.links.iter().map(|link| format!("127.0.0.1:{}", link.port)).collect();
        let client = builder(&places.join(",")).connect().unwrap();
        let name = fresh("slow");
        let from = self.cluster.node_of(&name);
        let lock = client.get_lock(&name);
        lock.lock().unwrap().unlock().unwrap();
        self.cluster.move_slot(slot_of(&name), (from + 1) % self.links.len());
        self.links[from].hang();
        let began = Instant::now();
        let guard = lock.try_lock_for(SOON * 3).unwrap();
        let took = began.elapsed();
        guard.expect("the new master is found").unlock().unwrap();
        took
    }
}

fn masters() -> RedisCluster {
    RedisCluster::start(4, 0)
}

#[test]
fn a_dead_master_is_left_behind_a_slow_cable() {
    let took = Scene::new(masters(), ms(300), RedisServer::address).find_again(plain);
    assert!(took < COMMAND_TIMEOUT * 2, "{took:?}");
}

fn plain(places: &str) -> ClientBuilder {
    Client::builder(&format!("redis+cluster://{places}"))
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "make topology"]
fn dead_masters_are_left_behind_every_link() {
    use lockson::Tls;
    use lockson_harness::Authority;

    let mut campaign = Campaign::start("dead masters of a cluster, at 0 to 300 ms of round trip", 8, 8);
    let authority = Authority::new();
    let over_tls = |round_trip| {
        let cluster = RedisCluster::start_with(4, 0, |builder| builder.tls(&authority.server()));
        for node in cluster.nodes() {
            node.run(&["CONFIG", "SET", "cluster-announce-hostname", "localhost"]);
            node.run(&["CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"]);
        }
        Scene::new(cluster, round_trip, RedisServer::tls_address).find_again(|places| {
            Client::builder(&format!("rediss+cluster://{places}")).tls(Tls::new().with_ca_file(authority.file()))
        })
    };
    let mut longest = Duration::ZERO;
    for round_trip in [0, 100, 200, 300].map(ms) {
        // Most of a scene is to wait, so two run side by side.
        let took = thread::scope(|scope| {
            let secured = scope.spawn(|| over_tls(round_trip));
            let open = Scene::new(masters(), round_trip, RedisServer::address).find_again(plain);
            open.max(secured.join().expect("the lock is found over TLS"))
        });
        longest = longest.max(took);
        campaign.passed(2);
    }
    campaign.end(format!("found again within {longest:.1?}"));
    assert!(longest < COMMAND_TIMEOUT * 2, "{longest:?}");
}

/// That of a client without settings.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);
