//! A service that ends well: on SIGTERM waiters stop waiting, holders finish their work, and no lock is left.
//!
//! `cargo run --example shutdown`, then Ctrl-C

use std::error::Error;
use std::thread;
use std::time::Duration;

use lockson::{Client, ErrorKind, Lock};
use lockson_harness::ExampleServer;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?; // before any work: an early signal is kept
    let server = ExampleServer::open()?;
    let client = Client::connect(server.url())?;
    let locks = ["lockson:example:till:1", "lockson:example:till:2"].map(|name| client.get_lock(name));
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let lock = locks[number % locks.len()].clone();
            thread::spawn(move || serve(&lock))
        })
        .collect();
    println!("8 workers, 2 locks; kill -TERM {} ends them", std::process::id());

    let signal = signals.forever().next();
    client.stop_waiting(); // who waits, or begins to wait, gets `Cancelled`
    let mut served = 0;
    for worker in workers {
        served += worker.join().map_err(|_| "a worker panicked")??; // a holder finishes first
    }
    let held = client.held().len();
    client.close();
    println!("signal {}: {served} sections served to their end, {held} locks held", signal.unwrap_or_default());
    if held == 0 { Ok(()) } else { Err("a lock was left".into()) }
}

/// Serves one customer after another, until nobody may wait for the lock any more.
fn serve(lock: &Lock) -> lockson::Result<u32> {
    let mut served = 0;
    loop {
        match lock.run(|_| thread::sleep(Duration::from_millis(20))) {
            Ok(()) => served += 1,
            Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(served),
            Err(error) => return Err(error),
        }
    }
}
