//! Members behind cables that need a while for each round trip: they are found again, plain and over TLS.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, ClientBuilder};
use lockson_harness::{RedisCluster, RedisServer, eventually, slot_of};

#[cfg(feature = "tls")]
use crate::campaign::Campaign;
use crate::support::{SOON, fresh, ms};

/// A cable to a server, on which all bytes are late, those of a handshake among them.
struct Cable {
    port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Cable {
    fn to(server: SocketAddr, round_trip: Duration) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, is_cut) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let in_thread = Arc::clone(&is_cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let connected = Instant::now() + round_trip;
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    carry(from, to, connected, round_trip / 2, Arc::clone(&in_thread));
                }
            }
        });
        Cable { port, is_cut }
    }

    /// Carries nothing from now on, and tells nobody.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }
}

/// Carries bytes one way, each `late` by as much.
fn carry(mut from: TcpStream, mut to: TcpStream, connected: Instant, late: Duration, is_cut: Arc<AtomicBool>) {
    to.set_nodelay(true).unwrap();
    let (put, on_the_way) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = [0; 16_384];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let arrives = Instant::now().max(connected) + late;
            if !is_cut.load(Ordering::SeqCst) && put.send((arrives, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (arrives, bytes) in on_the_way {
            thread::sleep(arrives.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Four masters, which a client reaches by cables only.
struct Scene {
    cluster: RedisCluster,
    cables: Vec<Cable>,
}

impl Scene {
    fn new(cluster: RedisCluster, round_trip: Duration, address: fn(&RedisServer) -> SocketAddr) -> Scene {
        let cables: Vec<Cable> = cluster.nodes().iter().map(|node| Cable::to(address(node), round_trip)).collect();
        for (node, cable) in cluster.nodes().iter().zip(&cables) {
            node.run(&["CONFIG", "SET", "cluster-announce-port", &cable.port.to_string()]);
        }
        let knows = |node: &RedisServer| {
            let nodes: String = node.query(&["CLUSTER", "NODES"]);
            cables.iter().all(|cable| nodes.contains(&format!(":{}@", cable.port)))
        };
        eventually(SOON, "the nodes announce the cables", || cluster.nodes().iter().all(knows));
        Scene { cluster, cables }
    }

    /// Takes a lock whose slot has moved away from a master that is gone. Returns how long that took.
    fn find_again(&self, builder: impl Fn(&str) -> ClientBuilder) -> Duration {
        let places: Vec<String> = self.cables.iter().map(|cable| format!("127.0.0.1:{}", cable.port)).collect();
        let client = builder(&places.join(",")).connect().unwrap();
        let name = fresh("slow");
        let from = self.cluster.node_of(&name);
        let lock = client.get_lock(&name);
        lock.lock().unwrap().unlock().unwrap();
        self.cluster.move_slot(slot_of(&name), (from + 1) % self.cables.len());
        self.cables[from].cut();
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
