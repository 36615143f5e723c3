//! The peer in Rust: holds locks on command, in the words of `tests/interop/redisson/PROTOCOL.md`.

mod answer;
mod clients;
mod counted;
mod cycle;
mod dispatcher;
mod locks;
mod permits;
mod request;
mod worker;

use std::io::{self, BufRead, Write};
use std::process;

use dispatcher::Dispatcher;

fn main() {
    // The peer and the library carry the same version.
    say(&format!("ready {} {}", env!("CARGO_PKG_VERSION"), process::id()));
    let dispatcher = Dispatcher::default();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if !line.trim().is_empty() {
            dispatcher.dispatch(&line);
        }
    }
    // The commanding process is gone: this process ends like a killed process, without any clean-up.
    process::exit(0);
}

/// Writes one line to the commanding process.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        process::exit(0);
    }
}
