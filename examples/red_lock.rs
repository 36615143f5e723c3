//! A red lock on five throw-away servers, two of which are killed while the lock is held.
//!
//! `cargo run --example red_lock`

use std::error::Error;
use std::time::{Duration, Instant};

use lockson::{Client, ErrorKind, Guard, RedLock};
use lockson_harness::{RedisServer, missing_server};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let servers = start_servers()?;
    let clients = servers.iter().map(client).collect::<lockson::Result<Vec<_>>>()?;
    let lock = red(&clients);

    let guard = lock.lock()?;
    println!("held on {} of {} servers", live(&guard), servers.len());
    servers[0].kill();
    servers[1].kill();
    println!("killed two servers: is_held() says {}", guard.is_held());
    guard.extend(Duration::from_secs(20))?;
    println!("extended on the other three: {:.1?} are left", guard.remaining());
    expect(guard.is_held())?;

    // Another process has its own clients, and finds the lock busy on the servers that are left.
    let rivals = servers.iter().map(client).collect::<lockson::Result<Vec<_>>>()?;
    let rival = red(&rivals);
    expect(rival.try_lock()?.is_none())?;
    guard.unlock()?;
    println!("released; the rival was refused before");

    for round in 1..=3 {
        let began = Instant::now();
        let guard = rival.try_lock_for(Duration::from_secs(5))?.ok_or("three of five servers are a majority")?;
        println!("take {round} of the rival: held on {} servers after {:.1?}", live(&guard), began.elapsed());
        guard.unlock()?;
    }

    servers[2].kill();
    let error = rival.try_lock().map(drop).err().ok_or("two of five servers are no majority")?;
    println!("killed a third server: {:?}", error.kind());
    expect(error.kind() == ErrorKind::Quorum)
}

fn start_servers() -> Outcome<Vec<RedisServer>> {
    if let Some(advice) = missing_server() {
        return Err(advice.into());
    }
    let servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start()).collect();
    println!("servers: five throw-away redis-servers\n");
    Ok(servers)
}

/// One client for each server: the servers know nothing of each other.
fn client(server: &RedisServer) -> lockson::Result<Client> {
    Client::builder(&server.url()).connect_lazily()
}

fn red(clients: &[Client]) -> RedLock {
    RedLock::new(clients.iter().map(|client| client.get_lock(NAME)))
        // These servers are new. One that restarted without its data would otherwise have no vote for 30 seconds.
        .with_rejoin_after(Duration::ZERO)
        // A busy machine may take more than 50 ms for an answer.
        .with_node_timeout(Duration::from_millis(500))
}

/// The number of servers on which the lock is held.
fn live(guard: &Guard) -> usize {
    guard.hold().members().iter().filter(|member| member.is_held()).count()
}

/// An example that shows the wrong result must fail.
#[track_caller]
fn expect(so: bool) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("wrong result at {}", std::panic::Location::caller()).into()) }
}

const NAME: &str = "lockson:example:red";
