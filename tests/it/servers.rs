//! The same requests to servers of several versions, which `.ci/servers` installs side by side.

pub(crate) mod deeds;
mod document;
mod error_texts;
mod operations;
mod own_command;
mod refusals;
pub(crate) mod rights;
mod scene;
mod stage;
mod table;
mod users;
mod ways;
mod ways_cluster;
mod ways_login;
pub(crate) mod wrong_server;

use std::io::Write;
use std::{env, io};

use lockson_harness::RedisServerBuilder;

use crate::support::prelude::*;
pub(crate) use scene::refuses;

/// A server program of some version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// `Redis 7.0`; of Valkey the first number alone, `Valkey 8`.
    pub(crate) label: String,
    program: PathBuf,
}

impl Version {
    /// The version that this program reports; `None` where the program does not run.
    fn of(program: &Path) -> Option<Version> {
        let told = Command::new(program).arg("--version").output().ok()?;
        let text = String::from_utf8(told.stdout).ok()?;
        let product = text.split_whitespace().next()?;
        let number = text.split_once(" v=")?.1.split_whitespace().next()?;
        let mut parts = number.split('.');
        let (major, minor) = (parts.next()?, parts.next()?);
        let label = if product == "Valkey" { format!("Valkey {major}") } else { format!("{product} {major}.{minor}") };
        Some(Version { label, program: program.to_owned() })
    }

    /// The default version of tests.
    fn of_this_machine() -> Option<Version> {
        let program = env::var_os("LOCKSON_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        Version::of(Path::new(&program))
    }

    /// Prepares a server of this version.
    pub(crate) fn builder(&self) -> RedisServerBuilder {
        RedisServer::builder().program(&self.program)
    }

    /// Starts a server of this version.
    pub(crate) fn start(&self) -> RedisServer {
        self.builder().start()
    }

    /// Redis 6.2 lacks some settings of the tests, and always allows `DEBUG`.
    fn is_old(&self) -> bool {
        self.label == "Redis 6.2"
    }
}

/// The machine's own server, and the fetched servers.
///
/// With `LOCKSON_ALL_SERVERS` in the environment every version must be present, except versions from sources that drop
/// old versions.
pub(crate) fn versions() -> Vec<Version> {
    let mut versions: Vec<Version> = vec![];
    let mut absent = vec![];
    for name in FETCHED {
        match Version::of(&folder().join(name).join("server")) {
            Some(version) => versions.push(version),
            None => absent.push(name),
        }
    }
    if let Some(own) = Version::of_this_machine()
        && versions.iter().all(|version| version.label != own.label)
    {
        absent.retain(|name| *name != own.label.replace(' ', "-").to_lowercase());
        versions.push(own);
    }
    versions.sort();
    assert!(!versions.is_empty(), "no server runs here");
    if !absent.is_empty() {
        let text = format!("left out, because they are not here: {absent:?}; `sh .ci/servers` fetches them");
        assert!(!all_are_required() || absent.iter().all(|name| name.ends_with("-new")), "{text}");
        // Past the test runner, which shows only the output of failed tests.
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| drop(writeln!(io::stderr(), "{text}")));
    }
    versions
}

/// Runs a check for each version, all at once; the text of a failure names the version.
pub(crate) fn at_each_version(check: impl Fn(&Version) + Sync) {
    at_once(&versions(), check);
}

fn all_are_required() -> bool {
    env::var_os("LOCKSON_ALL_SERVERS").is_some()
}

/// The folder of `.ci/servers`, beside the folder for temporary files of tests.
fn folder() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().expect("it is below the target folder").join("servers")
}

const FETCHED: [&str; 6] = ["redis-6.2", "redis-7.0", "redis-8.0", "redis-new", "valkey-8", "valkey-new"];
