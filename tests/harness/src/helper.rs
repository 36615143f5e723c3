//! The child's side of the line protocol of [`HelperProcess`](crate::HelperProcess).
//!
//! The helper's side of a child process: one request a line on standard input, answers in lines on standard output, and
//! an exit at the end of standard input, which proves that the test is gone.

use std::io::{self, BufRead, Write};
use std::process;
use std::thread;

use crossbeam_channel::{Receiver, unbounded};

/// Starts reading requests, and ends this process at the end of standard input.
///
/// A separate thread reads, so the process ends even while the main thread is blocked. No destructor runs then: the
/// helper's locks stay as after a crash.
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

/// Writes one line to the test; ends this process when the pipe is closed.
pub fn say(line: &str) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        process::exit(0);
    }
}
