//! Re-entry: a locking function calls another function that takes the same lock, on the same thread.
//!
//! `cargo run --example nested`

use std::error::Error;

use lockson::{Client, Lock, Result};
use lockson_harness::ExampleServer;

fn main() -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
    let server = ExampleServer::open()?;
    let client = Client::connect(server.url())?;
    let account = client.get_lock("lockson:example:account");

    deposit(&account, 70)?;
    transfer(&account, 30)?;
    println!("locked now: {}", account.is_locked()?);
    Ok(())
}

/// Takes the lock, and calls a function that takes the same lock.
fn transfer(account: &Lock, amount: u32) -> Result<()> {
    let guard = account.lock()?;
    println!("transfer: this thread holds the lock {} time(s)", account.hold_count());
    deposit(account, amount)?;
    println!("transfer: {} time(s) again, and still protected: {}", account.hold_count(), guard.is_held());
    guard.unlock()
}

/// Works alone and inside another section: a thread never waits for its own lock.
fn deposit(account: &Lock, amount: u32) -> Result<()> {
    let _guard = account.lock()?;
    println!("deposit of {amount}: this thread holds the lock {} time(s)", account.hold_count());
    Ok(())
}
