//! A peer process, commanded in the words of `tests/interop/redisson/PROTOCOL.md`.

mod answer;

use std::process::Command;
use std::time::{Duration, Instant};

use crate::HelperProcess;

pub use answer::Answer;

/// A process with its own lock clients.
#[derive(Debug)]
pub struct Peer {
    process: HelperProcess,
    next: u64,
    /// Answers that arrived while another answer was awaited.
    early: Vec<Answer>,
    version: Option<String>,
}

/// A sent command without an answer so far.
#[derive(Clone, Copy, Debug)]
#[must_use = "the answer waits to be taken"]
pub struct Ticket(u64);

impl Peer {
    /// Starts a peer without waiting for its readiness.
    pub fn launch(program: Command) -> Self {
        let process = HelperProcess::spawn_command(program);
        Self { process, next: 0, early: vec![], version: None }
    }

    /// Starts a peer and opens client 0.
    pub fn open(program: Command, options: &str) -> Self {
        let mut peer = Self::launch(program);
        peer.ask(&format!("open {options}")).expect_ok();
        peer
    }

    /// The version of the lock library; waits until the peer is up.
    #[track_caller]
    pub fn version(&mut self) -> &str {
        let process = &self.process;
        self.version.get_or_insert_with(|| {
            let ready = process.next_line(START);
            let version = ready.strip_prefix("ready ").and_then(|rest| rest.split(' ').next());
            version.unwrap_or_else(|| panic!("no greeting of a peer: {ready:?}")).to_owned()
        })
    }

    /// Sends a command and waits for the answer.
    #[track_caller]
    pub fn ask(&mut self, command: &str) -> Answer {
        let ticket = self.send(command);
        self.answer(ticket, SOON)
    }

    /// Sends a command; the answer is to be taken with [`answer`](Self::answer).
    #[track_caller]
    pub fn send(&mut self, command: &str) -> Ticket {
        self.version();
        self.next += 1;
        self.process.send(&format!("{} {command}", self.next));
        Ticket(self.next)
    }

    /// Waits for the answer to an earlier command.
    #[track_caller]
    pub fn answer(&mut self, ticket: Ticket, within: Duration) -> Answer {
        self.answer_if_any(ticket, within).unwrap_or_else(|| {
            panic!("no answer within {within:?}; the peer's diagnostics: {:?}", self.process.errors())
        })
    }

    /// Waits for the answer to an earlier command; `None` if no answer comes.
    pub fn answer_if_any(&mut self, ticket: Ticket, within: Duration) -> Option<Answer> {
        if let Some(position) = self.early.iter().position(|answer| answer.id == ticket.0) {
            return Some(self.early.swap_remove(position));
        }
        let end = Instant::now() + within;
        loop {
            let answer = Answer::parse(&self.process.line(end.saturating_duration_since(Instant::now()))?);
            if answer.id == ticket.0 {
                return Some(answer);
            }
            self.early.push(answer);
        }
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends SIGSTOP and waits until the process is stopped.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Sends SIGKILL and waits for the end: no lock is released.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

/// The bound of a start; a JVM starts slowly on a busy machine.
const START: Duration = Duration::from_secs(30);
/// The bound of an operation that does not wait for a lock; a JVM's first client takes long on a busy machine.
const SOON: Duration = Duration::from_secs(30);
