//! A peer process, commanded in the words of `tests/interop/redisson/PROTOCOL.md`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use lockson_harness::percent::decode;
use lockson_harness::{HelperProcess, cargo};

use super::SOON;

/// A process with its own Lockson clients.
#[derive(Debug)]
pub(crate) struct Peer {
    process: HelperProcess,
    next: u64,
    /// Answers that arrived while another answer was awaited.
    early: VecDeque<(u64, Answer)>,
}

/// An answer of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) ok: bool,
    values: BTreeMap<String, String>,
}

impl Peer {
    /// Starts the peer in Rust without a client.
    pub(crate) fn start() -> Self {
        let process = HelperProcess::spawn(program(), &[] as &[&str]);
        let ready = process.next_line(SOON);
        assert!(ready.starts_with("ready "), "{ready}");
        Self { process, next: 0, early: VecDeque::new() }
    }

    /// Starts the peer and opens client 0 with these options.
    pub(crate) fn open(options: &str) -> Self {
        let mut peer = Self::start();
        peer.ask(&format!("open {options}")).expect_ok();
        peer
    }

    /// Sends a command and waits for the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str) -> Answer {
        let id = self.send(command);
        self.answer(id, SOON)
    }

    /// Sends a command; the answer is to be asked for with [`answer`](Self::answer).
    #[track_caller]
    pub(crate) fn send(&mut self, command: &str) -> u64 {
        self.next += 1;
        self.process.send(&format!("{} {command}", self.next));
        self.next
    }

    /// Waits for the answer to an earlier command.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64, within: Duration) -> Answer {
        if let Some(position) = self.early.iter().position(|(other, _)| *other == id) {
            return self.early.remove(position).expect("the path was found").1;
        }
        loop {
            let (other, answer) = parse(&self.process.next_line(within));
            if other == id {
                return answer;
            }
            self.early.push_back((other, answer));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends SIGKILL: no lock is released.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends SIGSTOP and waits until the process is stopped.
    pub(crate) fn stop(&self) {
        self.process.stop();
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) {
        self.process.resume();
    }
}

impl Answer {
    /// Returns the answer, and panics unless the answer reports success.
    #[track_caller]
    pub(crate) fn expect_ok(self) -> Self {
        assert!(self.ok, "{self:?}");
        self
    }

    /// The kind and the message of a failure.
    #[track_caller]
    pub(crate) fn expect_failure(&self) -> (&str, &str) {
        assert!(!self.ok, "{self:?}");
        (&self.values["kind"], &self.values["message"])
    }

    #[track_caller]
    pub(crate) fn text(&self, key: &str) -> &str {
        self.values.get(key).unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }

    #[track_caller]
    pub(crate) fn number(&self, key: &str) -> i64 {
        self.text(key).parse().unwrap_or_else(|error| panic!("{key} in {self:?}: {error}"))
    }

    #[track_caller]
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.text(key) == "true"
    }
}

fn parse(line: &str) -> (u64, Answer) {
    let mut words = line.split(' ');
    let id = words.next().and_then(|id| id.parse().ok());
    let ok = words.next() == Some("ok");
    let values = words
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key.to_owned(), decode(value).expect("a peer writes UTF-8")));
    (id.unwrap_or_else(|| panic!("no answer: {line:?}")), Answer { ok, values: values.collect() })
}

/// The peer's program, built from the present sources for a test of its own package: `cargo build` gives the library
/// other features of its dependencies, and would build the library once more.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("a running program has a path");
        let folder = test.parent().and_then(Path::parent).expect("tests are in target/<profile>/deps");
        let (target, profile) = (folder.parent().expect("a profile is below the target"), folder.file_name());
        let profile = match profile.and_then(|name| name.to_str()) {
            Some("debug") => "test",
            Some(name) => name,
            None => panic!("no profile in {}", folder.display()),
        };
        let built = cargo("test")
            .args(["--no-run", "--quiet", "--offline", "--test", "peer", "--profile", profile, "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo can be started");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        folder.join("lockson-peer")
    })
}
