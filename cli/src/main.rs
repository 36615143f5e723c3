//! `lockson`: runs a command under a lock, shows who holds what, and frees it.

mod args;
mod connect;
mod output;
mod run;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

/// The exit code where this program fails: no connection, a wrong option, a refused request.
const FAILED: u8 = 125;

/// An error of this program, with a text for its user.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    if let Some(code) = run::stage() {
        return code;
    }
    let args = Args::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        std::process::exit(if error.use_stderr() { FAILED.into() } else { 0 })
    });
    let outcome = match args.command {
        Command::Run(options) => run::run(&args.connection, &options),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("lockson: {failure}");
        ExitCode::from(FAILED)
    })
}
