//! The choices of the command line.

use std::time::Duration;

use crate::kind::{KINDS, Kind};
use crate::program::{Cast, Program};

/// The settings and the chosen parts.
#[derive(Debug)]
pub(crate) struct Options {
    /// Real Redisson plays the Rust part too: a test of the checks rather than of the library.
    pub(crate) rehearse: bool,
    pub(crate) soak: Duration,
    /// Every cell of the table of shares, which is written down; otherwise a sample.
    pub(crate) all_shares: bool,
    /// Short soaks and fewer shares: the sample that gates a change.
    pub(crate) brief: bool,
    parts: Vec<String>,
    kinds: Vec<&'static Kind>,
}

impl Options {
    /// Reads the arguments; returns a message for people when the arguments make no sense.
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let soak = std::env::var("LOCKSON_SOAK_SECONDS").ok();
        let mut options = Self {
            rehearse: false,
            soak: seconds(soak.as_deref().unwrap_or("60"))?,
            all_shares: false,
            brief: false,
            parts: vec![],
            kinds: KINDS.iter().collect(),
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value\n{USAGE}"));
            match argument.as_str() {
                "--rehearse" => options.rehearse = true,
                "--all-shares" => options.all_shares = true,
                "--brief" => (options.brief, options.soak) = (true, BRIEF_SOAK),
                "--soak-seconds" => options.soak = seconds(&value()?)?,
                "--only" => options.parts = parts(&value()?)?,
                "--kinds" => options.kinds = kinds(&value()?)?,
                _ => return Err(format!("not understood: {argument}\n{USAGE}")),
            }
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    pub(crate) fn kinds(&self) -> &[&'static Kind] {
        &self.kinds
    }

    /// Whether the token lock is checked: by default, or by choice. Redisson has no such lock.
    pub(crate) fn wants_token(&self) -> bool {
        self.is_whole() || self.parts.iter().any(|part| part == "token")
    }

    /// Whether everything is checked, so that the result may be written down.
    pub(crate) fn is_whole(&self) -> bool {
        !self.rehearse && self.parts.is_empty() && self.kinds.len() == KINDS.len()
    }

    /// The partner of each version of Redisson.
    pub(crate) fn cast(&self, profile: &'static str) -> Cast {
        let rust = if self.rehearse { Program::Redisson(profile) } else { Program::Lockson };
        Cast { rust, java: Program::Redisson(profile) }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|_| format!("not a number of seconds: {text}\n{USAGE}"))
}

fn parts(text: &str) -> Result<Vec<String>, String> {
    let parts: Vec<String> = text.split(',').map(str::to_owned).collect();
    match parts.iter().find(|part| !PARTS.contains(&part.as_str())) {
        Some(part) => Err(format!("no such part: {part}\n{USAGE}")),
        None => Ok(parts),
    }
}

fn kinds(text: &str) -> Result<Vec<&'static Kind>, String> {
    text.split(',').map(|word| Kind::named(word).ok_or(format!("no such kind: {word}\n{USAGE}"))).collect()
}

const BRIEF_SOAK: Duration = Duration::from_secs(15);
const PARTS: &[&str] =
    &["matrix", "redisson3", "names", "state", "handover", "fairness", "order", "soak", "cluster", "commands", "token"];
const USAGE: &str = "\
usage: lockson-interop [--only matrix,redisson3,names,state,handover,fairness,order,soak,cluster,commands,token]
                       [--kinds plain,fair,...] [--soak-seconds 60] [--rehearse] [--brief] [--all-shares]
--rehearse   Redisson plays the Rust part too: tries the checks themselves, for every kind
--brief      soaks for 15 s and measures fewer shares, none of long holds; the document is not written
--all-shares measures every cell of the table of shares, in a quarter of an hour, and writes the table into the document";
