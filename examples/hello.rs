//! The shortest useful program: one machine at a time.
//!
//! `REDIS_URL=redis://localhost cargo run --example hello`

use std::time::Duration;

use lockson::{Client, Result};

fn main() -> Result<()> {
    let client = Client::from_env()?;
    let lock = client.get_lock("lockson:hello");
    match lock.try_lock_for(Duration::from_secs(2))? {
        Some(guard) => {
            println!("ours, as {}; renewed in the background while the guard lives", guard.owner());
            guard.unlock()?;
            println!("released");
        }
        None => match lock.holder()? {
            Some(holder) => println!("gave up after two seconds: {} holds the lock", holder.owner()),
            None => println!("gave up after two seconds, just before the release"),
        },
    }
    Ok(())
}
