//! What `Client::doctor` finds: settings and states of a server that endanger locks.

mod access;
mod server;

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::listing::record;
use crate::script::examination::Examination;
use crate::transport::PubSub;

record! {
    /// Something about a server, or about the rights of the user, that endangers locks or hides a danger.
    ///
    /// ```no_run
    /// use lockson::{Client, Severity};
    ///
    /// let client = Client::connect("redis://localhost")?;
    /// for finding in client.doctor()? {
    ///     println!("{finding}");
    ///     if finding.severity() == Severity::Danger {
    ///         eprintln!("{}: {}", finding.server(), finding.remedy());
    ///     }
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    #[derive(PartialEq, Eq)]
    Finding {
        /// Returns how bad it is.
        severity: Severity => [Severity],
        /// Returns what it is about; see [`FindingKind`].
        kind: FindingKind => [FindingKind],
        /// Returns the address of the server, without credentials.
        server: String => [&str],
        /// Returns what was found; [`Display`](fmt::Display) shows it with the rest; see [`Finding`].
        what: String => [&str],
        /// Returns what it means for locks; see [`Finding`].
        consequence: String => [&str],
        /// Returns what to do about it.
        remedy: String => [&str],
    }
}

/// How bad a [`Finding`] is.
///
/// ```
/// use lockson::Severity;
///
/// assert!(Severity::Danger > Severity::Warning);
/// ```
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
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// use lockson::FindingKind;
///
/// let findings = client.doctor()?;
/// assert!(findings.iter().all(|finding| finding.kind() != FindingKind::Eviction));
/// # Ok::<(), lockson::Error>(())
/// ```
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

/// The properties of the client that the findings depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) watchdog_interval: Duration,
    /// The most connections that this client opens.
    pub(crate) connections: usize,
    /// The kind of pub/sub, where it is chosen.
    pub(crate) pub_sub: Option<PubSub>,
}

impl Finding {
    fn new(severity: Severity, kind: FindingKind, what: impl Into<String>, consequence: &str, remedy: &str) -> Self {
        let (consequence, remedy) = (consequence.to_owned(), remedy.to_owned());
        Self { severity, kind, server: String::new(), what: what.into(), consequence, remedy }
    }

    /// The finding about a server that was not examined.
    pub(crate) fn unreachable(server: &str, error: &Error) -> Self {
        let found = Self::new(
            Severity::Danger,
            FindingKind::Unreachable,
            format!("it was not examined: {error}"),
            "locks that this server keeps cannot be taken, renewed or released",
            "mend what the error names, and ask again",
        );
        Self { server: server.to_owned(), ..found }
    }
}

/// The findings about one server, the worst first.
pub(crate) fn findings(server: &str, examination: &Examination, client: Client) -> Vec<Finding> {
    let mut findings = server::findings(examination, client);
    findings.extend(access::findings(examination));
    findings.iter_mut().for_each(|finding| server.clone_into(&mut finding.server));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
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
