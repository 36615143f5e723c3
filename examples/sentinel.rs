//! A lock behind three sentinels: the master is killed while the lock is held, and the lock is still there.
//!
//! `cargo run --example sentinel`

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use lockson::Client;
use lockson_harness::{SentinelSet, missing_server};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let set = start_servers()?;
    println!("{}\n", set.url());
    let client = Client::connect(&set.url())?;

    let guard = client.get_lock(NAME).lock()?;
    println!("held at the master, port {}", set.server(0).port());
    let waiter = thread::spawn({
        let rival = Client::connect(&set.url())?;
        move || -> lockson::Result<Instant> {
            let guard = rival.get_lock(NAME).lock()?;
            let granted = Instant::now();
            guard.unlock()?;
            Ok(granted)
        }
    });
    // What the replica has not copied is lost with the master. `Durability` waits for the copy of each lock.
    set.wait_for_sync();

    set.server(0).kill();
    let killed = Instant::now();
    println!("killed the master");
    let other = client.get_lock("orders:43").try_lock_for(Duration::from_secs(30))?.ok_or("nobody has that lock")?;
    println!("took another lock {:.1?} later, at the new master, port {}", killed.elapsed(), set.server(1).port());
    other.unlock()?;

    println!("the first lock: is_held() says {}", guard.is_held());
    expect(guard.is_held())?;
    guard.unlock()?;
    let released = Instant::now();
    let granted = waiter.join().map_err(|_| "the waiter panicked")??;
    println!("released; the waiter has the lock after {:.1?}", granted.saturating_duration_since(released));
    Ok(())
}

fn start_servers() -> Outcome<SentinelSet> {
    if let Some(advice) = missing_server() {
        return Err(advice.into());
    }
    println!("servers: a throw-away master, its replica, and three sentinels that wait one second\n");
    Ok(SentinelSet::start(1, 3))
}

/// An example that shows the wrong result must fail.
#[track_caller]
fn expect(holds: bool) -> Outcome<()> {
    if holds { Ok(()) } else { Err("this example did not show what it promises".into()) }
}

const NAME: &str = "lock:orders:42";
