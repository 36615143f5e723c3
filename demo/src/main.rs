//! A flash sale by real processes on one lock: tills are killed, stopped and delayed, and the stock stays right.
//!
//! `make demo`, or `cargo run --release --package lockson-demo`; with `REDIS_URL` on your own server.
//!
//! To see the sale fail: `... lockson-demo -- --without lock` gives every seller a separate lock, and
//! `... lockson-demo -- --without asking` writes without a look at `is_held()`.
//!
//! Start reading at `till.rs`, which resembles a service that uses the lock.

mod audit;
mod clock;
mod crew;
mod plan;
mod progress;
mod report;
mod sale;
mod shop;
mod till;

use std::error::Error;
use std::process::ExitCode;

use plan::Fault;

/// The result of any step, by the manager or by a till.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [till::ROLE, rest @ ..] => till::main(rest),
        [] => demo(Fault::None),
        ["--without", "lock"] => demo(Fault::WithoutLock),
        ["--without", "asking"] => demo(Fault::WithoutAsking),
        _ => {
            eprintln!("usage: lockson-demo [--without lock | --without asking]");
            ExitCode::FAILURE
        }
    }
}

fn demo(fault: Fault) -> ExitCode {
    // A panic has said why on standard error; the last line is said in any case.
    let troubles = std::panic::catch_unwind(|| sale::run(fault)).unwrap_or_else(|_| Err("it panicked".into()));
    match troubles {
        Ok(troubles) if troubles.is_empty() => {
            println!("demo: ok");
            return ExitCode::SUCCESS;
        }
        Ok(troubles) => {
            for trouble in troubles {
                println!("wrong: {trouble}");
            }
        }
        Err(error) => println!("\nthe sale could not go on: {error}"),
    }
    println!("demo: failed");
    ExitCode::FAILURE
}
