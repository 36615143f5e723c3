//! When the process of a server started: a server that started lately may have forgotten locks.

use std::sync::Arc;
use std::time::Duration;

use super::introduction::field_of;
use crate::time::Instant;

/// A run of a server process, as `INFO server` told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerStart {
    /// The number that the server drew when it started.
    pub(super) run_id: Arc<str>,
    /// The latest time at which the server started, if its clock was not set since.
    started: Instant,
    /// The time of the last known answer, at first of this one.
    alive: Instant,
}

impl ServerStart {
    /// Reads the text of `INFO server` that arrived at `now`.
    pub(super) fn read(info: &str, now: Instant) -> Option<Self> {
        // The server counts whole seconds of its clock: of an uptime of 3 s, a little more than 2 s are certain.
        // It is negative where the clock was set back after the start.
        let uptime = field_of(info, "uptime_in_seconds")?.parse::<i64>().ok()?.saturating_sub(1);
        let started = now.before(Duration::from_secs(uptime.try_into().unwrap_or(0)));
        Some(Self { run_id: field_of(info, "run_id")?.into(), started, alive: now })
    }
}

/// The runs of one server that were seen so far.
///
/// The uptime is measured by the clock of the machine, which may be set forward after a start. What was seen before
/// is more certain: a run started after the last answer of the run before, and not before any start that it told.
#[derive(Default)]
pub(super) struct Runs(Vec<ServerStart>);

impl Runs {
    /// Returns the latest time at which the server of a connection started.
    pub(super) fn learn(&mut self, server_start: &ServerStart) -> Instant {
        if let Some(run) = self.0.iter_mut().find(|run| run.run_id == server_start.run_id) {
            run.started = run.started.max(server_start.started);
            return run.started;
        }
        let before = self.0.iter().map(|run| run.alive).max();
        let started = before.map_or(server_start.started, |alive| alive.max(server_start.started));
        if self.0.len() == MOST_RUNS {
            self.0.remove(0);
        }
        self.0.push(ServerStart { started, ..server_start.clone() });
        started
    }

    /// Records an answer of a run to a request that was sent at `sent`.
    pub(super) fn answered(&mut self, id: &str, sent: Instant) {
        if let Some(run) = self.0.iter_mut().find(|run| &*run.run_id == id) {
            run.alive = run.alive.max(sent);
        }
    }
}

/// Connections to earlier runs may still be in the pool, so the last run alone is not enough.
const MOST_RUNS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000_000);

    fn at(seconds: u64) -> Instant {
        NOW.after(Duration::from_secs(seconds))
    }

    fn server_start(id: &str, uptime: u64, now: Instant) -> ServerStart {
        ServerStart::read(&format!("run_id:{id}\r\nuptime_in_seconds:{uptime}\r\n"), now).unwrap()
    }

    #[test]
    fn the_start_of_a_server_is_rounded_to_the_safe_side() {
        let server_start = |info: &str| ServerStart::read(info, NOW);
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:30\r\nuptime_in_days:0\r\n";
        let started = NOW.before(Duration::from_secs(29));
        assert_eq!(server_start(info), Some(ServerStart { run_id: "abc".into(), started, alive: NOW }));
        for uptime in ["0", "-9"] {
            let info = format!("run_id:abc\r\nuptime_in_seconds:{uptime}\r\n");
            assert_eq!(server_start(&info).map(|server_start| server_start.started), Some(NOW));
        }
        assert_eq!(server_start("run_id:abc\r\n"), None);
        assert_eq!(server_start("uptime_in_seconds:30\r\n"), None);
        assert_eq!(server_start("run_id:abc\r\nuptime_in_seconds:x\r\n"), None);
    }

    #[test]
    fn the_latest_start_that_a_run_told_counts() {
        let mut runs = Runs::default();
        assert_eq!(runs.learn(&server_start("a", 101, at(0))), NOW.before(Duration::from_secs(100)));
        assert_eq!(runs.learn(&server_start("a", 8, at(0))), NOW.before(Duration::from_secs(7)));
        // The clock was set forward by an hour.
        assert_eq!(runs.learn(&server_start("a", 3_612, at(4))), NOW.before(Duration::from_secs(7)));
    }

    #[test]
    fn a_run_started_after_the_last_answer_of_the_run_before() {
        let mut runs = Runs::default();
        let old = server_start("a", 1_000, at(0));
        runs.learn(&old);
        runs.answered("a", at(50));
        runs.answered("a", at(40));
        assert_eq!(runs.learn(&server_start("b", 3_600, at(60))), at(50));
        assert_eq!(runs.learn(&server_start("c", 1, at(70))), at(70));
        // An old connection says nothing about the new run.
        runs.learn(&old);
        assert_eq!(runs.learn(&server_start("b", 3_600, at(80))), at(50));
    }

    #[test]
    fn few_runs_are_remembered() {
        let mut runs = Runs::default();
        for number in 0..100 {
            runs.learn(&server_start(&number.to_string(), 1, at(number)));
        }
        assert_eq!(runs.0.len(), MOST_RUNS);
        assert_eq!(runs.learn(&server_start("99", 3_600, at(200))), at(99));
    }
}
