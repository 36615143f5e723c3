//! Waiting for a state instead of sleeping in hope.

use std::thread;
use std::time::{Duration, Instant};

/// Polls `done` every few milliseconds until it answers true.
///
/// # Panics
///
/// Panics with `what` when `limit` has passed without a true answer.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// Short against every bound that a test may set, long enough to leave the processor to others.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
