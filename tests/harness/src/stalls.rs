//! Moments at which this process did not run: no program could have been in time then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A thread that wakes every 2 ms and records each late wake-up.
#[derive(Debug)]
pub struct Stalls {
    seen: Arc<Seen>,
    watching: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// From the due wake-up to the actual wake-up.
    stalls: Mutex<Vec<(Instant, Instant)>>,
    ended: AtomicBool,
}

impl Stalls {
    /// Begins to watch.
    pub fn watch() -> Stalls {
        let seen = Arc::<Seen>::default();
        let watched = Arc::clone(&seen);
        let watching = thread::spawn(move || {
            while !watched.ended.load(Ordering::Relaxed) {
                let due = Instant::now() + PAUSE;
                thread::sleep(PAUSE);
                let came = Instant::now();
                if came > due + NOTICED {
                    watched.stalls.lock().push((due, came));
                }
            }
        });
        Stalls { seen, watching: Some(watching) }
    }

    /// How long this process stood still between two moments.
    pub fn between(&self, from: Instant, to: Instant) -> Duration {
        let overlap = |(due, came): &(Instant, Instant)| (*came).min(to).saturating_duration_since((*due).max(from));
        self.seen.stalls.lock().iter().map(overlap).sum()
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.seen.ended.store(true, Ordering::Relaxed);
        if let Some(watching) = self.watching.take() {
            let _ = watching.join();
        }
    }
}

const PAUSE: Duration = Duration::from_millis(2);
/// Any sleep may take this much longer, so less does not count.
const NOTICED: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_as_far_as_it_lies_between_the_moments() {
        let stalls = Stalls::watch();
        let start = Instant::now() + Duration::from_secs(60);
        let at = |millis| start + Duration::from_millis(millis);
        stalls.seen.stalls.lock().extend([(at(0), at(50)), (at(100), at(130))]);
        assert_eq!(stalls.between(at(40), at(110)), Duration::from_millis(20));
        assert_eq!(stalls.between(at(50), at(100)), Duration::ZERO);
    }
}
