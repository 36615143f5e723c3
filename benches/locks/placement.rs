//! Which processors the server and its clients run on: a round trip costs several times as much
//! between two as on one, so a run that the scheduler places anew each moment measures the scheduler.

use std::process::{Command, Stdio};

use lockson_harness::RedisServer;

use crate::figure::Spread;
use crate::report::Report;

/// Where everything runs during an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Server and clients take turns on one processor: the least that a round trip can cost.
    Together,
    /// The server has one processor, all clients another, and each round trip wakes both.
    Apart,
    /// Where the scheduler likes.
    Free,
}

impl Placement {
    /// What is added to the name of a figure.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Together => "-together",
            Self::Apart => "-apart",
            Self::Free => "-free",
        }
    }
}

/// Runs an experiment once for each placement that this machine can do. It answers with the ratios
/// of its variants; the worst of all is the ratio of the whole.
pub(crate) fn in_each(
    server: &RedisServer,
    report: &mut Report,
    name: &str,
    mut experiment: impl FnMut(Placement, &mut Report) -> Vec<Spread>,
) {
    let processors = allowed();
    let all = processors.as_deref().unwrap_or_default();
    let (first, last) = (all.split(['-', ',']).next(), all.rsplit(['-', ',']).next());
    let mut spreads = vec![];
    if let (Some(first), Some(last)) = (first, last)
        && first != last
    {
        for (placement, of_server) in [(Placement::Together, first), (Placement::Apart, last)] {
            if pin(std::process::id(), first) && pin(server.pid(), of_server) {
                spreads.extend(experiment(placement, report));
            }
        }
        for pid in [std::process::id(), server.pid()] {
            pin(pid, all);
        }
    }
    if spreads.is_empty() {
        spreads.extend(experiment(Placement::Free, report));
    }
    if let Some(worst) = spreads.into_iter().max_by(|one, other| one.median.total_cmp(&other.median)) {
        report.ratio(name, worst);
    }
}

/// The processors that this process may use, as Linux lists them: `0-3,6`.
fn allowed() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// Binds all threads of a process; those it starts later follow. `false` where `taskset` is missing.
fn pin(pid: u32, processors: &str) -> bool {
    let once = || {
        let mut taskset = Command::new("taskset");
        taskset.args(["--all-tasks", "--cpu-list", "--pid", processors, &pid.to_string()]);
        taskset.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    // It fails when one of the threads ends while it goes through them.
    (0..TRIES).any(|_| once())
}

const TRIES: usize = 5;
