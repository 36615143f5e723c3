//! A lock on a throw-away Redis Cluster, whose slot moves to another master while the lock is held and waited for.
//!
//! `cargo run --example cluster`

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Lock};
use lockson_harness::{RedisCluster, missing_server, slot_of};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let cluster = start_cluster()?;
    let client = Client::connect(&cluster.url())?;
    let lock = client.get_lock(NAME);

    let guard = lock.lock()?;
    let (slot, home) = (slot_of(NAME), cluster.node_of(NAME));
    println!("held: slot {slot} is on master {home}");

    // Another process waits for the lock; here it is another client.
    let rival = Client::connect(&cluster.url())?.get_lock(NAME);
    let waiter = thread::spawn(move || -> lockson::Result<Option<Instant>> {
        let Some(guard) = rival.try_lock_for(Duration::from_secs(30))? else { return Ok(None) };
        let granted = Instant::now();
        guard.unlock()?;
        Ok(Some(granted))
    });
    while !client_waits(&cluster) {
        thread::sleep(Duration::from_millis(10));
    }

    let target = (home + 1) % MASTERS;
    cluster.move_slot(slot, target);
    println!("the slot has moved to master {}", cluster.node_of(NAME));
    expect(guard.is_held() && lock.is_locked()?)?;
    guard.extend(Duration::from_secs(30))?;
    println!("extended there: {:.1?} are left", guard.remaining());
    // The waiter follows within a second.
    thread::sleep(Duration::from_secs(2));

    let released = Instant::now();
    guard.unlock()?;
    let granted = waiter.join().map_err(|_| "the waiter panicked")??.ok_or("the waiter got nothing")?;
    println!("released: the waiter had the lock after {:.1?}", granted - released);
    expect(granted - released < Duration::from_secs(1))?;

    // Locks whose names share a hash tag are in one slot, so a multi-lock takes them by one request.
    let multi = Lock::multi(["{cart:7}:items", "{cart:7}:total"].map(|name| client.get_lock(name)));
    multi.lock()?.unlock()?;
    println!("two locks of one slot were taken together");
    Ok(())
}

fn start_cluster() -> Outcome<RedisCluster> {
    if let Some(advice) = missing_server() {
        return Err(advice.into());
    }
    let cluster = RedisCluster::start(MASTERS, 0);
    println!("cluster: {MASTERS} throw-away masters, {}\n", cluster.url());
    Ok(cluster)
}

/// Whether a client listens for the release, by plain or by sharded messages.
fn client_waits(cluster: &RedisCluster) -> bool {
    let channels = |node: &lockson_harness::RedisServer, kind| node.query::<Vec<String>>(&["PUBSUB", kind]);
    let is_ours = |channel: &String| channel.contains(NAME);
    cluster
        .nodes()
        .iter()
        .any(|node| ["CHANNELS", "SHARDCHANNELS"].iter().any(|kind| channels(node, kind).iter().any(is_ours)))
}

/// An example that shows the wrong result must fail.
#[track_caller]
fn expect(so: bool) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("wrong result at {}", std::panic::Location::caller()).into()) }
}

const NAME: &str = "lockson:example:cluster";
const MASTERS: usize = 3;
