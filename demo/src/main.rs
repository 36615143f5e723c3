//! A flash sale by real processes on one lock: tills are killed, stopped and delayed, and the stock stays right.
//!
//! `make demo`, or `cargo run --package lockson-demo`; with `REDIS_URL` on your own server. With `--with-java`, which
//! `make demo` says where Java and Maven are, `Till.java` sells on the same lock.
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

/// The result of any step, by the manager or by a till.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [till::ROLE, rest @ ..] => till::main(rest),
        [] => demo(false),
        ["--with-java"] => demo(true),
        _ => {
            eprintln!("usage: lockson-demo [--with-java]");
            ExitCode::FAILURE
        }
    }
}

fn demo(with_java: bool) -> ExitCode {
    // A panic has said why on standard error; the last line is said in any case.
    let troubles = std::panic::catch_unwind(|| sale::run(with_java)).unwrap_or_else(|_| Err("it panicked".into()));
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
