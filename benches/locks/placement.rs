//! The processors of the server and the clients: a round trip between two processors costs several times as much as on
//! a single processor, so unpinned runs would measure the scheduler.

use std::process::{Command, Stdio};

use lockson_harness::RedisServer;

use crate::figure::Spread;
use crate::report::Report;

/// The placement of all processes during an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Servers and clients share one processor: the lowest cost of a round trip.
    Together,
    /// The servers have one processor, all clients another, and each round trip wakes both.
    Apart,
    /// Where the scheduler likes.
    Free,
}

impl Placement {
    /// The suffix of a figure's name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Together => "-together",
            Self::Apart => "-apart",
            Self::Free => "-free",
        }
    }
}

/// A server behind TLS, its target, and the authority whose file the target names.
#[cfg(feature = "tls")]
pub(crate) fn secured() -> (RedisServer, String, lockson_harness::Authority) {
    let authority = lockson_harness::Authority::new();
    let server = RedisServer::builder().tls(&authority.server()).start();
    let target = format!("{} {}", server.tls_url(), authority.file().display());
    (server, target, authority)
}

/// Runs an experiment once for each placement that this machine offers. Returns the ratios of the experiment's
/// variants; the ratio of the whole is the worst of all placements.
pub(crate) fn in_each(
    server: &RedisServer,
    report: &mut Report,
    name: &str,
    experiment: impl FnMut(Placement, &mut Report) -> Vec<Spread>,
) {
    let spreads = placed(&[server], report, experiment);
    if let Some(worst) = spreads.into_iter().max_by(|one, other| one.median.total_cmp(&other.median)) {
        report.ratio(name, worst);
    }
}

/// As [`in_each`], but the ratio of the whole is that of separate processors. For ratios of round trips: together, a
/// round trip costs less than the work that it asks for.
pub(crate) fn in_each_mostly_apart(
    servers: &[&RedisServer],
    report: &mut Report,
    name: &str,
    mut experiment: impl FnMut(Placement, &mut Report) -> Spread,
) {
    let spreads = placed(servers, report, |placement, report| vec![experiment(placement, report)]);
    if let Some(apart) = spreads.last() {
        report.ratio(name, *apart);
    }
}

/// Runs an experiment in each placement, separate processors last. Returns all ratios.
fn placed(
    servers: &[&RedisServer],
    report: &mut Report,
    mut experiment: impl FnMut(Placement, &mut Report) -> Vec<Spread>,
) -> Vec<Spread> {
    let processors = allowed();
    let all = processors.as_deref().unwrap_or_default();
    let (first, last) = (all.split(['-', ',']).next(), all.rsplit(['-', ',']).next());
    let mut spreads = vec![];
    if let (Some(first), Some(last)) = (first, last)
        && first != last
    {
        for (placement, of_servers) in [(Placement::Together, first), (Placement::Apart, last)] {
            if pin(std::process::id(), first) && servers.iter().all(|server| pin(server.pid(), of_servers)) {
                spreads.extend(experiment(placement, report));
            }
        }
        pin(std::process::id(), all);
        for server in servers {
            pin(server.pid(), all);
        }
    }
    if spreads.is_empty() {
        spreads.extend(experiment(Placement::Free, report));
    }
    spreads
}

/// The processors that Linux allows to this process, as a list: `0-3,6`.
fn allowed() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// Binds all threads of a process; threads started later inherit the binding. Returns `false` where `taskset` is
/// missing.
fn pin(pid: u32, processors: &str) -> bool {
    let once = || {
        let mut taskset = Command::new("taskset");
        taskset.args(["--all-tasks", "--cpu-list", "--pid", processors, &pid.to_string()]);
        taskset.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    // `taskset` fails when a thread ends while `taskset` goes through the threads.
    (0..TRIES).any(|_| once())
}

const TRIES: usize = 5;
