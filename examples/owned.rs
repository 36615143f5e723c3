//! A lock taken by one thread and released by another: the guard travels with the work.
//!
//! `cargo run --example owned`

use std::error::Error;
use std::sync::mpsc;
use std::thread;

use lockson::{Client, OwnedGuard};
use lockson_harness::ExampleServer;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let server = ExampleServer::open()?;
    let client = Client::connect(server.url())?;
    let import = client.get_lock("lockson:example:import").owned();

    let (jobs, inbox) = mpsc::channel::<(String, OwnedGuard)>();
    let worker = thread::spawn(move || {
        for (file, guard) in inbox {
            println!("worker: importing {file}, protected: {}", guard.is_held());
            guard.unlock()?;
            println!("worker: {file} is done and the lock is released");
        }
        Ok::<(), lockson::Error>(())
    });

    for file in ["monday.csv", "tuesday.csv"] {
        let guard = import.lock()?; // waits here until the worker has released the previous guard
        println!("main: took the lock for {file}");
        jobs.send((file.to_owned(), guard))?;
    }
    drop(jobs);
    worker.join().map_err(|_| "the worker panicked")??;
    Ok(())
}
