//! Waiting for a state instead of sleeping in hope.

use std::thread;
use std::time::{Duration, Instant};

/// Calls `done` every few milliseconds until `done` returns true, less often in a long wait: most questions open a
/// connection to a server.
///
/// # Panics
///
/// Panics with `what` when `limit` has passed without a true answer.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep((started.elapsed() / 20).clamp(PAUSE, PAUSE * 5));
    }
}

/// Short against every bound of a test, long enough to leave the processor to other threads.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
