//! A child process that a test talks to in lines and can stop or kill.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use parking_lot::Mutex;

use crate::eventually::PAUSE;
use crate::leash::Leash;
use crate::pids;

/// A helper program under the control of a test.
///
/// The convention: the helper reads one request a line from standard input, answers in lines on standard output, and
/// exits when standard input ends ([`helper`](crate::helper) implements the convention for programs in Rust). A helper
/// that breaks the convention, or is stopped, is still killed when this process ends, and on drop.
#[derive(Debug)]
pub struct HelperProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    leash: Option<Leash>,
}

impl HelperProcess {
    /// Starts a program with arguments.
    pub fn spawn<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[A]) -> HelperProcess {
        let mut command = Command::new(program);
        command.args(arguments);
        HelperProcess::spawn_command(command)
    }

    /// Starts a prepared command, for a test that sets variables or a folder.
    pub fn spawn_command(mut command: Command) -> HelperProcess {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let leash = Leash::hold(child.id(), None);
        let input = child.stdin.take();
        let output = child.stdout.take().expect("standard output is a pipe");
        let trouble = child.stderr.take().expect("standard error is a pipe");
        let (sender, lines) = unbounded();
        let errors = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&errors);
        let readers = vec![
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            }),
            thread::spawn(move || collect(trouble, &seen)),
        ];
        HelperProcess { child, input, lines, errors, readers, leash: Some(leash) }
    }

    /// The process id of the helper.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one line.
    ///
    /// # Panics
    ///
    /// Panics when the helper no longer reads.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        let pipe = self.input.as_mut().expect("the input was closed before");
        if let Err(error) = pipe.write_all(format!("{line}\n").as_bytes()) {
            panic!("the helper does not read {line:?}: {error}{}", self.story());
        }
    }

    /// Returns the next line if a line comes in time; `None` also at the end of the output.
    pub fn line(&self, within: Duration) -> Option<String> {
        self.lines.recv_timeout(within).ok()
    }

    /// Takes the next line.
    ///
    /// # Panics
    ///
    /// Panics when no line comes in time, and shows the helper's standard error.
    #[track_caller]
    pub fn next_line(&self, within: Duration) -> String {
        self.line(within).unwrap_or_else(|| panic!("no line from the helper within {within:?}{}", self.story()))
    }

    /// Reads the next line, which must equal `wanted`.
    ///
    /// # Panics
    ///
    /// Panics when no line comes in time, or a different line.
    #[track_caller]
    pub fn expect_line(&self, wanted: &str, within: Duration) {
        let line = self.next_line(within);
        assert!(line == wanted, "the helper said {line:?}, not {wanted:?}{}", self.story());
    }

    /// Sends a line and returns the next line as the answer.
    ///
    /// # Panics
    ///
    /// Panics when the helper does not read or does not answer in time.
    #[track_caller]
    pub fn ask(&mut self, line: &str, within: Duration) -> String {
        self.send(line);
        self.next_line(within)
    }

    /// Closes standard input: a well-behaved helper now exits.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Sends SIGKILL and waits for the end. The helper releases no lock.
    pub fn kill(&mut self) -> ExitStatus {
        let _ = self.child.kill(); // an error means that the process has ended already
        self.reap_after_end()
    }

    /// Sends SIGTERM, which a program may answer as it likes.
    pub fn terminate(&self) {
        pids::terminate(self.pid());
    }

    /// Sends SIGSTOP and waits until the helper stands still.
    pub fn stop(&self) {
        pids::stop(self.pid());
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        pids::resume(self.pid());
    }

    /// Tells whether the helper has not ended.
    pub fn is_running(&mut self) -> bool {
        self.ended().is_none()
    }

    /// Waits for the helper to end without a signal.
    ///
    /// # Panics
    ///
    /// Panics when the helper has not ended in time.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            if started.elapsed() > within {
                panic!("the helper did not end within {within:?}{}", self.story());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Everything on the helper's standard error so far.
    pub fn errors(&self) -> String {
        self.errors.lock().clone()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        // Unlike `Child::wait`, `try_wait` leaves the input open for a helper that is still talking.
        let status = self.child.try_wait().expect("the child is ours to wait for")?;
        self.leash = None;
        Some(status)
    }

    fn reap_after_end(&mut self) -> ExitStatus {
        if let Some(leash) = self.leash.take() {
            leash.release(); // before the reaping, because the system may reuse the pid afterwards
        }
        self.child.wait().expect("the child is ours to wait for")
    }

    fn story(&self) -> String {
        match self.errors() {
            errors if errors.is_empty() => String::new(),
            errors => format!("\nits standard error:\n{errors}"),
        }
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.kill();
        for reader in self.readers.drain(..) {
            // A grandchild may keep a pipe open for ever; the reader of such a pipe is left behind.
            let started = Instant::now();
            while !reader.is_finished() && started.elapsed() < PATIENCE {
                thread::sleep(PAUSE);
            }
            if reader.is_finished() {
                let _ = reader.join();
            }
        }
        if thread::panicking() {
            eprintln!("helper {}{}", self.pid(), self.story());
        }
    }
}

fn collect(mut from: impl Read, into: &Mutex<String>) {
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut part) {
        into.lock().push_str(&String::from_utf8_lossy(&part[..length]));
    }
}

/// How long a drop waits for the last output of a dead helper.
const PATIENCE: Duration = Duration::from_secs(1);
