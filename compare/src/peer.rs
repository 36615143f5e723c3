//! The candidates: their programs, and the lines that they answer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lockson_harness::HelperProcess;

/// A candidate: its name, how it is set, and its program with arguments.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    pub(crate) set: &'static str,
    program: fn() -> Vec<String>,
}

pub(crate) const CANDIDATES: &[Candidate] = &[
    Candidate {
        name: "floor",
        set: "the least work of any client: Lockson's scripts on one bare connection of the `redis` crate",
        program: || own("floor"),
    },
    Candidate { name: "Lockson", set: "defaults, plain lock", program: || own("lockson") },
    Candidate { name: "Redisson", set: "Java, defaults, `getLock`", program: java },
    Candidate {
        name: "rueidislock",
        set: "Go; one key of a lock (`KeyMajority: 1`) as for one server, `NoLoopTracking`, `TryNextAfter` 3 s as there is no next key, lease 30 s",
        program: || built("go-peer", "rueidislock"),
    },
    Candidate {
        name: "redsync",
        set: "Go, on go-redis; lease 30 s, asks again after 50 to 250 ms (its default)",
        program: || built("go-peer", "redsync"),
    },
    Candidate {
        name: "distkit",
        set: "Rust, async, on one thread of tokio; defaults: lease 30 s, asks again after 50 ms",
        program: || rust("distkit"),
    },
    Candidate {
        name: "rslock",
        set: "Rust, async, on one thread of tokio; lease 30 s, asks again after 0 to 200 ms (its default)",
        program: || rust("rslock"),
    },
    Candidate {
        name: "redlock",
        set: "Rust, blocking; lease 30 s, asks again after 0 to 200 ms (its default)",
        program: || rust("redlock"),
    },
    Candidate {
        name: "redisson.rs",
        set: "Rust, blocking, the crate `redisson`; defaults: lease 30 s, asks again after 100 ms",
        program: || rust("redisson"),
    },
];

fn own(name: &str) -> Vec<String> {
    let program = std::env::current_exe().expect("this program has a path");
    vec![program.display().to_string(), "--peer".to_owned(), name.to_owned()]
}

fn built(program: &str, name: &str) -> Vec<String> {
    vec![root().join("target/compare").join(program).display().to_string(), name.to_owned()]
}

fn rust(name: &str) -> Vec<String> {
    built("cargo/release/lockson-compare-rust-peers", name)
}

fn java() -> Vec<String> {
    let path = root().join("tests/interop/redisson/target/classpath.txt");
    let jars = std::fs::read_to_string(path).unwrap_or_default();
    let path = format!("{}:{}", root().join("target/compare/java").display(), jars.trim());
    ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", &path, "Bench"].map(str::to_owned).to_vec()
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A running peer. After its first failure it takes no further part.
pub(crate) struct Peer {
    process: HelperProcess,
    dead: Option<String>,
    pub(crate) version: String,
    pub(crate) renews: bool,
}

/// What a peer measured, or why it did not.
pub(crate) type Answer = Result<BTreeMap<String, String>, String>;

impl Peer {
    /// Starts a program and opens its clients of these servers. Returns with it the microseconds of the start.
    pub(crate) fn start(candidate: &Candidate, urls: &str) -> Result<(Self, f64), String> {
        let program = (candidate.program)();
        if program[0].contains('/') && !std::path::Path::new(&program[0]).exists() {
            return Err("not built on this machine".to_owned());
        }
        let mut process = HelperProcess::spawn(&program[0], &program[1..]);
        let ready =
            process.line(PATIENCE).and_then(|line| line.strip_prefix("ready ").and_then(|rest| parse(rest).ok()));
        let Some(ready) = ready else {
            process.kill();
            return Err("its program does not start on this machine".to_owned());
        };
        let mut peer = Self { process, dead: None, version: ready["version"].clone(), renews: ready["renews"] == "1" };
        let micros = figure(&peer.ask(&format!("open {urls}")), "us")?;
        Ok((peer, micros))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.is_some()
    }

    pub(crate) fn send(&mut self, line: &str) {
        if self.dead.is_none() {
            self.process.send(line);
        }
    }

    pub(crate) fn answer(&mut self, within: Duration) -> Answer {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        let line = self.process.line(within);
        line.map_or_else(
            || {
                self.process.kill();
                self.dead = Some(format!("over {} s: no answer", within.as_secs()));
                Err(self.dead.clone().unwrap_or_default())
            },
            |line| parse(&line),
        )
    }

    pub(crate) fn ask(&mut self, line: &str) -> Answer {
        self.send(line);
        self.answer(PATIENCE)
    }
}

/// `no REASON`, or `key=value` for each word.
fn parse(line: &str) -> Answer {
    if let Some(reason) = line.strip_prefix("no ") {
        return Err(reason.to_owned());
    }
    let pair = |word: &str| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    line.split(' ').map(pair).collect::<Option<_>>().ok_or_else(|| format!("it said {line:?}"))
}

/// One number of an answer.
pub(crate) fn figure(answer: &Answer, key: &str) -> Result<f64, String> {
    let words = answer.as_ref().map_err(Clone::clone)?;
    words.get(key).and_then(|value| value.parse().ok()).ok_or_else(|| format!("no {key}"))
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_figures_or_a_reason() {
        assert_eq!(figure(&parse("p50=12.5 p99=20"), "p50"), Ok(12.5));
        assert_eq!(figure(&parse("p50=12.5"), "p99"), Err("no p99".to_owned()));
        assert_eq!(figure(&parse("no such thing"), "p50"), Err("such thing".to_owned()));
        assert_eq!(
            figure(&parse("thread 'main' panicked"), "p50"),
            Err("it said \"thread 'main' panicked\"".to_owned())
        );
    }
}
