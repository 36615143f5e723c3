//! The child's side of the line protocol of [`HelperProcess`](crate::HelperProcess).
//!
//! A helper reads one request a line from standard input, answers in lines on standard output,
//! and exits when standard input reaches its end: that is how it learns that its test is gone.

use std::io::{self, BufRead, Write};
use std::process;
use std::thread;

use crossbeam_channel::{Receiver, unbounded};

/// Starts reading requests, and ends this process when there are no more.
///
/// The reading has a thread of its own, so the process ends even while its main thread is blocked.
/// Nothing is dropped then: whatever the helper holds is left as after a crash.
pub fn requests() -> Receiver<String> {
    let (sender, receiver) = unbounded();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
        process::exit(0);
    });
    receiver
}

/// Writes one line to the test; ends this process when nobody can read it.
pub fn say(line: &str) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        process::exit(0);
    }
}
