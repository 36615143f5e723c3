//! Clients behind slow links: sentinels and the nodes of a replicated set are reached again after a cut.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, ClientBuilder};
use lockson_harness::{RedisServer, SentinelSet};

use crate::support::{STANDSTILLS, fresh, ms};

/// Passes bytes on to one server, late.
struct SlowLink {
    port: u16,
    /// The sockets of all connections; `None` while the link is cut.
    sockets: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl SlowLink {
    fn start(target: SocketAddr, round_trip: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let sockets = Arc::new(Mutex::new(Some(vec![])));
        let link = Self { port, sockets: Arc::clone(&sockets) };
        thread::spawn(move || {
            for client in listener.incoming() {
                if let Some(sockets) = sockets.lock().unwrap().as_mut() {
                    let (client, server) = (client.unwrap(), TcpStream::connect(target).unwrap());
                    sockets.extend([&client, &server].map(|socket| socket.try_clone().unwrap()));
                    // This machine accepts at once, and a far one after a round trip.
                    pass(client.try_clone().unwrap(), server.try_clone().unwrap(), round_trip / 2, round_trip);
                    pass(server, client, round_trip / 2, Duration::ZERO);
                }
            }
        });
        link
    }

    fn cut(&self) {
        let sockets = self.sockets.lock().unwrap().take();
        sockets.into_iter().flatten().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    }

    fn mend(&self) {
        *self.sockets.lock().unwrap() = Some(vec![]);
    }
}

/// Passes the bytes of one direction on after `delay`, and the first ones after `more`.
fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration, mut more: Duration) {
    let (late, due): (Sender<(Instant, Vec<u8>)>, Receiver<_>) = channel();
    to.set_nodelay(true).unwrap();
    thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let _ = late.send((Instant::now() + delay + std::mem::take(&mut more), bytes[..count].to_vec()));
        }
    });
    thread::spawn(move || {
        for (moment, bytes) in due {
            thread::sleep(moment.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Cuts the links to these servers for a second, and has a lock soon after the end of the cut.
fn comes_back(servers: &[SocketAddr], master: &RedisServer, builder: &(impl Fn(&str) -> ClientBuilder + Sync)) {
    let open = &|round_trip| {
        let links: Vec<_> = servers.iter().map(|server| SlowLink::start(*server, round_trip)).collect();
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

const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);
