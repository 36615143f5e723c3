//! Judges the servers of a [Lockson](lockson) client: lists the settings and states that endanger locks there.

mod access;
mod server;

use std::cmp::Reverse;
use std::fmt;

use lockson::{Client, Error, Examination, Result};

/// Looks for settings and states of each server that endanger locks: eviction, persistence, replicas, rights of
/// the user, proxies, clocks, and own locks without a time to live. Lists the findings about each server, the worst
/// first; a well-kept server has none.
///
/// Changes nothing, and takes at most one command time-out for each server, on a cluster one more. What the user may not
/// ask is a finding, too.
///
/// ```no_run
/// use lockson_doctor::Severity;
///
/// let client = lockson::Client::connect("redis://localhost")?;
/// for finding in lockson_doctor::findings(&client)? {
///     println!("{finding}");
///     if finding.severity == Severity::Danger {
///         eprintln!("{}: {}", finding.server, finding.remedy);
///     }
/// }
/// # Ok::<(), lockson::Error>(())
/// ```
///
/// # Errors
///
/// As [`Client::connect`] when no server answers; `Closed` on a closed client. One of several servers that does not
/// answer is a finding.
pub fn findings(client: &Client) -> Result<Vec<Finding>> {
    let (mut all, mut failures) = (vec![], vec![]);
    let servers = client.examine()?;
    let count = servers.len();
    for (server, answers) in servers {
        let mut found = match answers {
            Ok(examination) => about(&examination),
            Err(error) => {
                failures.push(error.clone());
                vec![unreachable(&error)]
            }
        };
        found.iter_mut().for_each(|finding| server.clone_into(&mut finding.server));
        all.extend(found);
    }
    match failures.pop() {
        Some(error) if failures.len() + 1 == count => Err(error),
        _ => Ok(all),
    }
}

/// Something about a server, or about the rights of the user, that endangers locks or hides a danger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub kind: FindingKind,
    /// The address of the server, without credentials.
    pub server: String,
    /// What was found; [`Display`](fmt::Display) shows it with the rest.
    pub what: String,
    /// What it means for locks.
    pub consequence: String,
    /// What to do about it.
    pub remedy: String,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Good to know; nothing to do for many fleets.
    Note,
    /// Locks fail, are slow or are lost when something else goes wrong, too.
    Warning,
    /// Locks can be lost, or fail, while everything works as configured.
    Danger,
}

/// What a [`Finding`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// The server may evict keys.
    Eviction,
    /// The memory of the server is nearly full.
    Memory,
    /// A restart loses locks.
    Persistence,
    /// The server refuses writes, because it cannot persist.
    Writes,
    /// A fail-over loses locks.
    Replicas,
    /// A lock of this client has no time to live.
    TimeToLive,
    /// The user may not run commands that a kind of locks needs.
    Rights,
    /// Requests without an answer cannot be fenced.
    Fencing,
    /// Losses are told late, because keys cannot be tracked.
    Tracking,
    /// The cluster serves no requests.
    Cluster,
    /// This client and others of the cluster may not hear each other.
    PubSub,
    /// Something between client and server answers in place of the server.
    Proxy,
    /// The clocks of server and client differ.
    Clock,
    /// The server is too old, or another program.
    Version,
    /// The server closes idle connections too soon.
    IdleTimeout,
    /// The server closes listening connections at small bursts.
    OutputBuffer,
    /// The server has little room for connections.
    Connections,
    /// The server does not answer.
    Unreachable,
    /// A question was refused, so an answer is missing above.
    NotAsked,
}

impl Finding {
    fn new(severity: Severity, kind: FindingKind, what: impl Into<String>, consequence: &str, remedy: &str) -> Self {
        let (consequence, remedy) = (consequence.to_owned(), remedy.to_owned());
        Self { severity, kind, server: String::new(), what: what.into(), consequence, remedy }
    }
}

/// The finding about a server that was not examined.
fn unreachable(error: &Error) -> Finding {
    Finding::new(
        Severity::Danger,
        FindingKind::Unreachable,
        format!("it was not examined: {error}"),
        "locks that this server keeps cannot be taken, renewed or released",
        "mend what the error names, and ask again",
    )
}

/// The findings about one server, the worst first.
fn about(examination: &Examination) -> Vec<Finding> {
    let mut findings = server::findings(examination);
    findings.extend(access::findings(examination));
    findings.sort_by_key(|finding| Reverse(finding.severity));
    findings
}

/// Shows "danger: redis at host:port/database: what; consequence; remedy".
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, kind: _, server, what, consequence, remedy } = self;
        write!(f, "{severity}: redis at {server}: {what}; {consequence}; {remedy}")
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Danger => "danger",
        })
    }
}
