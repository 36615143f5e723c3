//! A service ported from Java line by line: lock here, unlock there, no guard to carry around.
//!
//! `cargo run --example ported_try_finally`

use std::error::Error;

use lockson::{Client, ErrorKind, Lock};
use lockson_harness::ExampleServer;

/// Was in Java:
///
/// ```java
/// void book(String seat) {
///     lock.lock();
///     try {
///         store(seat);
///     } finally {
///         lock.unlock();
///     }
/// }
/// ```
struct BookingService {
    lock: Lock,
    booked: Vec<String>,
}

impl BookingService {
    fn book(&mut self, seat: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.begin()?;
        let stored = self.store(seat); // no `?` here: the lock is given back first
        self.end()?;
        stored
    }

    /// Takes the lock and leaves the release to `end()`, on the same thread. After a panic in between the lock stays
    /// held until the thread ends; code that may panic keeps the guard.
    fn begin(&self) -> lockson::Result<()> {
        self.lock.lock()?.leave_to_unlock();
        Ok(())
    }

    fn end(&self) -> lockson::Result<()> {
        self.lock.unlock()
    }

    fn store(&mut self, seat: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        println!("storing {seat}, held by this thread: {}", self.lock.is_held_by_current_thread());
        if self.booked.iter().any(|booked| booked == seat) {
            return Err(format!("{seat} is taken").into());
        }
        self.booked.push(seat.to_owned());
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let server = ExampleServer::open()?;
    let client = Client::connect(server.url())?;
    let mut service = BookingService { lock: client.get_lock("lockson:example:booking"), booked: vec![] };

    service.book("12A")?;
    if let Err(error) = service.book("12A") {
        println!("refused: {error}; locked now: {}", service.lock.is_locked()?);
    }
    // Java throws IllegalMonitorStateException here.
    match service.end() {
        Err(error) if error.kind() == ErrorKind::NotHeld => println!("one unlock() too many: {error}"),
        other => return Err(format!("expected NotHeld, got {other:?}").into()),
    }
    Ok(())
}
