//! Transfers between two accounts: threads move money in both directions, and a multi-lock covers both accounts.
//!
//! `cargo run --example transfer`

use std::error::Error;
use std::thread;
use std::time::Instant;

use lockson::{Client, Lock};
use lockson_harness::ExampleServer;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let server = ExampleServer::open()?;
    let mut redis = redis::Client::open(server.url())?.get_connection()?;
    for account in ACCOUNTS {
        write(&mut redis, account, OPENING_BALANCE)?;
    }

    let began = Instant::now();
    let mut threads = vec![];
    for number in 0..THREADS {
        let url = server.url().to_owned();
        // Half of the threads name the locks in the other order. With two separate locks this would be a deadlock.
        let [from, to] = if number % 2 == 0 { ACCOUNTS } else { [ACCOUNTS[1], ACCOUNTS[0]] };
        threads.push(thread::spawn(move || transfer(&url, from, to)));
    }
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }

    let [one, other] = [read(&mut redis, ACCOUNTS[0])?, read(&mut redis, ACCOUNTS[1])?];
    println!("{} transfers by {THREADS} threads in {:.1?}", THREADS * TRANSFERS, began.elapsed());
    println!("the accounts have {one} and {other}, together {}", one + other);
    if [one, other] == [OPENING_BALANCE; 2] { Ok(()) } else { Err("money was lost or made".into()) }
}

/// Moves one coin many times. Each thread could as well be a process on another machine.
fn transfer(url: &str, from: &str, to: &str) -> Outcome<()> {
    let client = Client::connect(url)?;
    let both = Lock::multi([from, to].map(|account| client.get_lock(format!("{account}:lock"))));
    let mut redis = redis::Client::open(url)?.get_connection()?;
    for _ in 0..TRANSFERS {
        let guard = both.lock()?;
        let (left, there) = (read(&mut redis, from)?, read(&mut redis, to)?);
        write(&mut redis, from, left - 1)?;
        write(&mut redis, to, there + 1)?;
        guard.unlock()?;
    }
    Ok(())
}

fn read(redis: &mut redis::Connection, account: &str) -> Outcome<i64> {
    Ok(redis::cmd("GET").arg(account).query(redis)?)
}

fn write(redis: &mut redis::Connection, account: &str, balance: i64) -> Outcome<()> {
    Ok(redis::cmd("SET").arg(account).arg(balance).exec(redis)?)
}

const ACCOUNTS: [&str; 2] = ["lockson:example:account:1", "lockson:example:account:2"];
const OPENING_BALANCE: i64 = 1_000;
const THREADS: usize = 4;
const TRANSFERS: usize = 100;
