//! A lock that waits for its replica, beside one that does not, when the replica is promoted.
//!
//! `cargo run --example durable`

use std::error::Error;
use std::time::{Duration, Instant};

use lockson::{Client, Durability, ErrorKind};
use lockson_harness::{RedisServer, missing_server};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let (master, replica) = start_servers()?;
    let client = Client::builder(&master.url()).watchdog(TTL, TTL / 4).connect()?;
    let usual = client.get_lock("lockson:example:usual");
    let durable = client.get_lock("lockson:example:durable").with_durability(Durability::replicas(1));

    let _usual = usual.lock()?;
    let guard = durable.lock()?;
    println!("both are held; the replica has {:?}", replica.keys());

    // The network between the two servers breaks, and somebody promotes the replica. The client stays at the master.
    replica.run(&["REPLICAOF", "NO", "ONE"]);
    let error = client.get_lock("lockson:example:late").with_durability(Durability::replicas(1)).try_lock();
    let error = error.map(drop).err().ok_or("no replica has it")?;
    println!("a new lock: {error}");
    expect(error.kind() == ErrorKind::NotDurable)?;

    let other = Client::connect(&replica.url())?;
    let began = Instant::now();
    for name in [usual.name(), durable.name()] {
        let theirs = other.get_lock(name).try_lock_for(TTL * 5)?.ok_or("the copy expires")?;
        let ours = client.held().iter().any(|held| held.name() == name);
        println!("{name}: granted at the new master after {:.1?}; held here: {ours}", began.elapsed());
        expect(theirs.is_held() && ours == (name == usual.name()))?;
    }
    println!("the usual lock has two holders, the durable lock one");
    expect(guard.lost().is_some())
}

fn start_servers() -> Outcome<(RedisServer, RedisServer)> {
    if let Some(advice) = missing_server() {
        return Err(advice.into());
    }
    let start = || RedisServer::builder().config("repl-diskless-sync-delay 0").start();
    let (master, replica) = (start(), start());
    replica.run(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let began = Instant::now();
    while !master.info("slave0").is_some_and(|told| told.contains("state=online")) {
        if began.elapsed() > Duration::from_secs(10) {
            return Err("the replica does not come".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("servers: a throw-away master with a replica\n");
    Ok((master, replica))
}

/// An example that shows the wrong result must fail.
#[track_caller]
fn expect(so: bool) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("wrong result at {}", std::panic::Location::caller()).into()) }
}

/// How long a lock outlives its last renewal.
const TTL: Duration = Duration::from_secs(2);
