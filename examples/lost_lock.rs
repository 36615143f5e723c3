//! Losing a lock and being told: by callback, by waiting and by question.
//!
//! `cargo run --example lost_lock`

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lockson::Client;
use lockson_harness::ExampleServer;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let server = ExampleServer::open()?;
    // Redis tells of the loss; where it does not, the next renewal does, so here within 300 ms. The defaults are 30 and
    // 10 seconds.
    let client =
        Client::builder(server.url()).watchdog(Duration::from_secs(1), Duration::from_millis(300)).connect()?;

    let guard = client.get_lock("lockson:example:report").lock()?;
    let (tell, told) = mpsc::channel();
    guard.on_lost(move |loss| {
        println!("on_lost():   {loss}");
        let _ = tell.send(()); // an error means that the receiver is gone, and then the loss needs no report
    });
    thread::sleep(Duration::from_millis(400)); // the work; Redis tells of the key once the hold is 0.2 s old
    println!("is_held():   {}, for {:.0?} more without a renewal", guard.is_held(), guard.remaining());

    println!("operator:    DEL {}", guard.name());
    let mut operator = redis::Client::open(server.url())?.get_connection()?;
    let deleted_at = Instant::now();
    redis::cmd("DEL").arg(guard.name()).exec(&mut operator)?;

    match guard.wait_lost(Duration::from_secs(5)) {
        Some(loss) => println!("wait_lost(): {loss}; told {:.0?} after the DEL", deleted_at.elapsed()),
        None => return Err("no report within 5 seconds".into()),
    }
    told.recv_timeout(Duration::from_secs(5))?;
    if guard.is_held() {
        return Err("the lock is gone, but is_held() says otherwise".into());
    }
    println!("is_held():   false, so the report is not written");
    match guard.unlock() {
        Ok(()) => Err("unlock() should have reported the loss".into()),
        Err(error) => {
            println!("unlock():    {error}");
            Ok(())
        }
    }
}
