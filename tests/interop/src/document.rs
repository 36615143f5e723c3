//! Writes the results of a whole run: `docs/compatibility.md`.

use std::fmt::Write;
use std::{fs, io};

use crate::kind::Column;
use crate::load::{Fairness, GRACE_MS, LEAST_SHARE, Loaded, STARVED, THREADS};
use crate::matrix::Row;
use crate::names;
use crate::program::workspace;
use crate::state::{Compared, Record};
use crate::token::Library;
use crate::verdict::Verdict;

/// All results of a whole run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) matrix: Vec<Row>,
    pub(crate) matrix_of_3: Vec<Row>,
    pub(crate) matrix_on_cluster: Vec<Row>,
    pub(crate) loads_on_cluster: Vec<Loaded>,
    pub(crate) names: Vec<names::Column>,
    pub(crate) states: Vec<Compared>,
    pub(crate) loads: Vec<Loaded>,
    pub(crate) fairness: Fairness,
    pub(crate) token: Vec<Library>,
    /// The newest Redisson and the last version of the older line.
    pub(crate) versions: [String; 2],
}

/// The file has verdicts without figures, so that the file changes only with the verdicts; the table of shares has
/// figures, because the figures are the result there.
pub(crate) fn write(results: &Results) -> io::Result<()> {
    let [newest, older] = &results.versions;
    let mut text = INTRODUCTION.replace("{newest}", newest).replace("{older}", older);
    text += &format!("\n## Conformance with Redisson {newest}\n\n{}", matrix(&results.matrix, Column::ALL));
    text += &format!("\n{}", specials(&results.matrix));
    text += &format!("\n## Conformance with Redisson {older}\n\n{}", matrix(&results.matrix_of_3, Column::ALL));
    let on_cluster = matrix(&results.matrix_on_cluster, Column::ON_CLUSTER);
    text += &format!("\n## On a cluster\n\n{}\n{on_cluster}", CLUSTER.replace("{newest}", newest));
    text += &format!("\n{}", load_table(&results.loads_on_cluster));
    text += &format!("\n## Names\n\n{NAMES}\n{}", name_table(&results.names));
    text += &format!("\n## Under load\n\n{}", load_table(&results.loads));
    text += &format!("\n{SHARES_HEAD}{}\n{}", shares(), share_table(&results.fairness));
    text += &format!("\n## The token lock beside other libraries\n\n{TOKEN}\n{}", token_table(&results.token));
    text += &format!("\n## State after each operation\n\n{STATES}");
    for compared in &results.states {
        text += &format!("\n### {}\n\n{}", compared.kind.title, state_tables(compared));
    }
    fs::write(workspace().join("docs/compatibility.md"), text)
}

/// Writes the table of shares into the document, and leaves the rest.
pub(crate) fn write_shares(fairness: &Fairness) -> io::Result<()> {
    let path = workspace().join("docs/compatibility.md");
    let text = fs::read_to_string(&path)?;
    let (before, rest) = text.split_once(SHARES_HEAD).ok_or(io::ErrorKind::InvalidData)?;
    let after = rest.split_once("\n## ").map_or(String::new(), |(_, after)| format!("\n## {after}"));
    fs::write(path, format!("{before}{SHARES_HEAD}{}\n{}{after}", shares(), share_table(fairness)))
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed(_) => "**FAILED**",
        Verdict::NotDefined => "not defined",
    }
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        writeln!(text, "| {} |", row.join(" | ")).expect("text takes everything");
    }
    text
}

fn matrix(rows: &[Row], columns: &[Column]) -> String {
    let heads: Vec<&str> = ["object"].into_iter().chain(columns.iter().map(|column| column.title())).collect();
    let cell = |(cell, column): (&Verdict, &Column)| match cell {
        Verdict::NotDefined if *column == Column::Sequence => "-".to_owned(),
        cell => word(cell).to_owned(),
    };
    let row =
        |row: &Row| [row.kind.title.to_owned()].into_iter().chain(row.cells.iter().zip(columns).map(cell)).collect();
    table(&heads, rows.iter().map(row))
}

fn specials(rows: &[Row]) -> String {
    let special = |row: &Row| {
        let sequence = row.kind.sequence?;
        Some(format!("* special of the {}: {}\n", row.kind.title.to_lowercase(), sequence.title))
    };
    rows.iter().filter_map(special).collect()
}

fn name_table(columns: &[names::Column]) -> String {
    let heads: Vec<&str> = ["name"].into_iter().chain(columns.iter().map(|column| column.kind.title)).collect();
    let row = |(place, sort): (usize, &&str)| {
        [(*sort).to_owned()]
            .into_iter()
            .chain(columns.iter().map(|column| word(&column.cells[place]).to_owned()))
            .collect()
    };
    table(&heads, names::SORTS.iter().enumerate().map(row))
}

fn load_table(loads: &[Loaded]) -> String {
    table(&["claim", ""], loads.iter().map(|load| vec![load.claim.clone(), word(&load.verdict).to_owned()]))
}

/// The text above the table of shares.
fn shares() -> String {
    let shares = SHARES.replace("{share}", &LEAST_SHARE.to_string()).replace("{starved}", &STARVED.to_string());
    shares.replace("{grace}", &GRACE_MS.to_string())
}

fn share_table(fairness: &Fairness) -> String {
    let threads = THREADS.map(|[one, other]| format!("{one}+{other}"));
    let heads: Vec<&str> = ["object, hold, processes"].into_iter().chain(threads.iter().map(String::as_str)).collect();
    let cell = |cell: &Option<(Verdict, String)>| match cell {
        Some((Verdict::Passed, shown)) => shown.clone(),
        Some((verdict, shown)) => format!("{}: {shown}", word(verdict)),
        None => "-".to_owned(),
    };
    let rows =
        fairness.rows.iter().map(|row| [row.title.clone()].into_iter().chain(row.cells.iter().map(cell)).collect());
    table(&heads, rows)
}

fn token_table(libraries: &[Library]) -> String {
    let row = |library: &Library| {
        let test = format!("`{}`", library.test);
        vec![library.title.to_owned(), library.version.clone(), test, word(&library.verdict).to_owned()]
    };
    table(&["library", "version", "test", ""], libraries.iter().map(row))
}

fn state_tables(compared: &Compared) -> String {
    let (same, other): (Vec<_>, Vec<_>) =
        compared.operations.iter().partition(|operation| operation.rust == operation.java);
    let rows = same.iter().map(|operation| {
        let left = operation.java.clone();
        vec![operation.label.to_owned(), left.answer, left.keys, left.messages, word(&operation.verdict).to_owned()]
    });
    let mut text = table(&["operation", "answer", "both leave", "both say", ""], rows);
    if other.is_empty() {
        return text;
    }
    let rows = other.iter().map(|operation| {
        let reason = operation.reason.as_deref().unwrap_or(NOT_INTENDED);
        let [rust, java] = [&operation.rust, &operation.java].map(Record::in_a_cell);
        vec![operation.label.to_owned(), rust, java, reason.to_owned(), word(&operation.verdict).to_owned()]
    });
    text += "\nDifferent:\n\n";
    text + &table(&["operation", "Lockson", "Redisson", "why", ""], rows)
}

/// In place of the reason of a difference that nobody has judged.
pub(crate) const NOT_INTENDED: &str = "**not intended**";

const INTRODUCTION: &str = "\
# Compatibility with Redisson

Written by `make interop`, which tests this crate against real Redisson {newest} and {older} on a real Redis. Edit
nothing but the column *why*: a difference passes with a reason in that column, and with exactly these two states.

* passed: checked with both languages, each in a separate process
* not defined: Redisson has no such feature for this object

Every check is about one kind of lock under one name. Redisson's kinds do not exclude each other: Redisson grants its
read and write locks on a name that is held as a plain, fair, spin, fenced or non-reentrant lock, by either language.
This crate refuses with `OtherKind`.

*Is woken* means by the message of the release: the waiter holds the lock within 500 ms of the release, while the time
to live is 30 s and a waiter of this crate would ask again after 1 s. *Killed* is `kill -9` of the process.
";

const NAMES: &str = "\
Each cell: both languages exclude each other under such a name, and wake each other.
";

const SHARES_HEAD: &str = "## Shares of a hot lock\n\n";
const SHARES: &str = "\
Two processes at one lock: each thread takes the lock, holds it, releases it and asks again at once. A process's part
of the grants is its share of the threads. The columns are the numbers of threads of the two processes. Each cell: the
part that the process with fewer grants really got, where 1 is the whole part, and the longest wait of any thread.

Two Redissons are the standard, and no target applies to them. The target of the others is {share} of the part, or of
what the lesser of two Redissons got if that is less, and no wait longer than {grace} ms plus twice the longest wait of
two Redissons. After a miss the two processes meet again for three times as long, and the cell says (missed) if the
second result misses the target too. A cell has **FAILED** below {starved} in place of {share}, or if the wait was twice
the permitted wait. Spin locks never fail: both sides poll, so who asks in the moment of a release is a matter of
chance, and either side may keep the lock for seconds. `make interop` measures a sample;
`make interop INTEROP=\"--only fairness --all-shares\"` measures every cell and writes this table.
";

const CLUSTER: &str = "\
Both languages on a Redis Cluster of three masters, Redisson {newest} by `useClusterServers`. Both choose sharded
pub/sub, as the servers know it. The locks of a multi-lock are on several masters; the majority of a red lock counts a
cluster as one server.

In the load the slots of all names move from master to master, with a pause in the middle of each move. Required are no
overlap in both languages, and of this crate nobody stuck, no error, no lost lock and no long wait. Redisson's sharded
subscriptions do not follow a slot: its calls may fail with time-outs, wait for the end of the time to live, or, in the
queue of a fair lock, sleep for minutes.
";

const TOKEN: &str = "\
Each library runs in a separate process (`tests/interop/token_peers`), with this crate's `token_lock` on the same key:
each side waits for the other and is granted the lock after a release or the end of a lease, two holders are never
inside at once, and neither side extends or releases a lock that the other side has taken meanwhile. The libraries
also release a lock of this crate when they are given its value. Each test runs with `ReleaseBy::Script` and
`ReleaseBy::Transaction`, with values of this crate's form and of the library's form. `ReleaseBy::Server` writes and
compares the same value; this form needs a newer server, and `make servers` tests it there.
";

const STATES: &str = "\
Both languages carry out each operation, each on a separate server; then all keys, their fields, values and times to
live, and all messages are compared. An owner is shown as a letter, without the number of the hold (`A` is
`<client>:<thread>` in Redisson and `<client>:<thread>.<hold>` in this crate: Redisson compares owners and never
parses them). A fencing token is shown by its place among the tokens of the run (Redisson counts from 1; this crate
never goes below the server's clock in microseconds, so that tokens still rise after the loss of a counter). `N` is
the name, times are rounded up to seconds, `-` is nothing.

Redisson's release writes the key `redisson_unlock_latch:{N}:<id>` and deletes it at once; the key is gone before the
comparison. This crate never writes the key, because its releases may be repeated unchanged. Semaphores and latches of
this crate keep an idempotency key for ten minutes, `lockson_once:{N}:<client>:<slot>`; Redisson neither reads nor needs
the key, and the comparison leaves it out.
";
