//! Tells a slow library from a busy machine: how long the threads of some processes have waited for a processor.

use std::fs;
use std::path::PathBuf;

/// Watches the processes of a check.
#[derive(Debug)]
pub(crate) struct Starved {
    pids: Vec<u32>,
    waited_ms: f64,
}

impl Starved {
    pub(crate) fn watch(pids: Vec<u32>) -> Self {
        let waited_ms = waited_ms(&pids);
        Self { pids, waited_ms }
    }

    /// Milliseconds that the threads have waited since the start, added up. Zero where the system does not report the
    /// time.
    pub(crate) fn millis(&self) -> f64 {
        (waited_ms(&self.pids) - self.waited_ms).max(0.0)
    }
}

fn waited_ms(pids: &[u32]) -> f64 {
    let threads = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok()).flatten().flatten();
    threads.filter_map(|thread| waited_of(thread.path().join("schedstat"))).sum()
}

/// The second number is the time on a run queue, in nanoseconds.
fn waited_of(file: PathBuf) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    let nanos: f64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(nanos / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waiting_time_of_this_process_is_never_negative() {
        let starved = Starved::watch(vec![std::process::id(), u32::MAX]);
        assert!(starved.millis() >= 0.0);
    }
}
