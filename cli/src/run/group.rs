//! The process group of a command, as the holder of the lock sees it.

use std::io::{BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use lockson::{Hold, Loss};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::guardian::{self, ENDING, READY, STEP};
use super::terminal::Terminal;
use super::{Event, Timing, clock};
use crate::Failure;

/// Smaller changes of the deadline are differences of two clock readings.
const JITTER: Duration = Duration::from_millis(10);

/// How a command ended.
pub(super) enum End {
    Exited(u8),
    /// By a signal before the command was started.
    Cancelled(u8),
    /// By its guardian or by this process, with the reason.
    Lost(String),
    /// By this process, because its guardian was killed.
    Unguarded,
}

/// A command and its guardian, who leads the group.
pub(super) struct Group<'a> {
    hold: &'a Hold,
    timing: Timing,
    guardian: Child,
    /// Tells the guardian the deadline.
    deadlines: Option<ChildStdin>,
    deadline: Duration,
    /// The id of the guardian and of the group. It stays theirs until the guardian is waited for.
    id: Pid,
    command: Option<Pid>,
    /// Before this reading the command does not start.
    not_before: Duration,
    is_guarded: bool,
    terminal: Terminal,
    is_ending: bool,
}

/// The exit code of a wait that a signal ended.
pub(super) fn cancelled(events: &Receiver<Event>) -> std::process::ExitCode {
    let signal = events.try_iter().find_map(|event| match event {
        Event::Signal(signal) if signal != Signal::SIGCHLD => Some(by_signal(signal)),
        _ => None,
    });
    signal.unwrap_or(crate::FAILED).into()
}

impl<'a> Group<'a> {
    /// Starts the guardian.
    pub(super) fn start(
        hold: &'a Hold,
        timing: Timing,
        rest: Duration,
        events: Sender<Event>,
    ) -> Result<Self, Failure> {
        let not_before = clock::now().saturating_add(rest);
        let deadline = deadline(hold);
        let mut guardian = guardian::guardian(deadline, timing)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start the guardian of the command: {error}"))?;
        let (deadlines, words) = (guardian.stdin.take(), guardian.stdout.take());
        std::thread::spawn(move || {
            for word in words.into_iter().flat_map(|words| BufReader::new(words).bytes()).map_while(Result::ok) {
                match word {
                    READY => drop(events.send(Event::Ready)),
                    ENDING => drop(events.send(Event::Ending)),
                    _ => {}
                }
            }
            let _ = events.send(Event::GuardianEnded);
        });
        let id = pid(guardian.id());
        let terminal = Terminal::of(id);
        let (command, is_guarded, is_ending) = (None, false, false);
        Ok(Self {
            hold,
            timing,
            guardian,
            deadlines,
            deadline,
            id,
            command,
            not_before,
            is_guarded,
            terminal,
            is_ending,
        })
    }

    /// Runs the command to its end, or to the loss of the lock.
    pub(super) fn supervise(
        &mut self,
        events: &Receiver<Event>,
        command: impl Fn(Duration) -> Result<Command, std::io::Error>,
    ) -> Result<End, Failure> {
        loop {
            let rest = self.not_before.saturating_sub(clock::now());
            match events.recv_timeout(if rest.is_zero() { STEP } else { rest.min(STEP) }) {
                Ok(Event::Ready) => self.is_guarded = true,
                Ok(Event::Signal(Signal::SIGCHLD)) | Err(_) => {}
                Ok(Event::Signal(signal)) if self.command.is_some() => self.signal(signal),
                Ok(Event::Signal(signal)) => {
                    self.kill();
                    return Ok(End::Cancelled(by_signal(signal)));
                }
                Ok(Event::Lost(loss)) => return Ok(self.lose(loss)),
                Ok(Event::Ending) => self.is_ending = true,
                Ok(Event::GuardianEnded) => return Ok(self.end_unguarded(events)),
            }
            if let Some(code) = self.look() {
                return Ok(self.sweep(code, events));
            }
            self.tell_deadline();
            if self.is_guarded && self.command.is_none() && clock::now() >= self.not_before {
                self.execute(command(self.deadline.saturating_sub(self.timing.margin))?)?;
            }
            if clock::now() >= self.last_moment() {
                return Ok(self.lose(self.hold.lost().unwrap_or(Loss::Expired)));
            }
        }
    }

    /// Whether the command was in the foreground of the terminal.
    pub(super) fn had_terminal(&self) -> bool {
        self.terminal.was_given
    }

    fn execute(&mut self, mut command: Command) -> Result<(), Failure> {
        use std::os::unix::process::CommandExt;
        self.terminal.give();
        let child = command.process_group(self.id.as_raw()).spawn();
        let child = child.map_err(|error| format!("cannot start a process: {error}"))?;
        self.command = Some(pid(child.id()));
        Ok(())
    }

    /// Returns the exit code of the command once it has ended. A command that stopped itself stops this program, too.
    fn look(&mut self) -> Option<u8> {
        let command = self.command?;
        match waitpid(command, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU)) => {
                if self.terminal.stop() {
                    self.signal(if self.hold.is_held() { Signal::SIGCONT } else { Signal::SIGKILL });
                }
                None
            }
            status => ended(status),
        }
    }

    fn tell_deadline(&mut self) {
        let deadline = deadline(self.hold);
        if deadline.abs_diff(self.deadline) <= JITTER {
            return;
        }
        self.deadline = deadline;
        if let Some(pipe) = &mut self.deadlines {
            // A guardian that was stopped goes on; of one that has ended an event tells.
            let _ = kill(self.id, Signal::SIGCONT);
            let _ = pipe.write_all(format!("{}\n", clock::write(deadline)).as_bytes());
        }
    }

    /// Has the guardian end what the command left running, and waits for that.
    fn sweep(&mut self, code: u8, events: &Receiver<Event>) -> End {
        self.command = None;
        self.deadlines = None;
        let _ = kill(self.id, Signal::SIGCONT);
        let limit = self.last_moment().min(clock::now().saturating_add(self.timing.grace + STEP * 10));
        while let Some(left) = limit.checked_sub(clock::now()).filter(|left| !left.is_zero()) {
            match events.recv_timeout(left.min(STEP)) {
                Ok(Event::Lost(loss)) => return self.lose(loss),
                Ok(Event::Ending) => self.is_ending = true,
                Ok(Event::GuardianEnded) => break,
                Ok(Event::Ready | Event::Signal(_)) | Err(_) => {}
            }
        }
        self.kill();
        let is_late = self.is_ending || clock::now() >= self.last_moment();
        if is_late { End::Lost(NOT_RENEWED.to_owned()) } else { End::Exited(code) }
    }

    /// Ends the group without its guardian.
    fn end_unguarded(&mut self, events: &Receiver<Event>) -> End {
        let limit = self.last_moment().min(clock::now().saturating_add(self.timing.grace));
        self.signal(Signal::SIGTERM);
        while clock::now() < limit && self.command.is_some() && self.look().is_none() {
            if let Ok(Event::Lost(loss)) = events.recv_timeout(guardian::STEP / 10) {
                return self.lose(loss);
            }
        }
        self.kill();
        if self.is_ending { End::Lost(NOT_RENEWED.to_owned()) } else { End::Unguarded }
    }

    fn lose(&mut self, loss: Loss) -> End {
        self.kill();
        End::Lost(if self.is_ending { NOT_RENEWED.to_owned() } else { loss.to_string() })
    }

    /// Ends the group and the guardian at once, and waits for their ends.
    fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.guardian.kill(); // it may have left the group
        while let Some(command) = self.command {
            match waitpid(command, None) {
                Err(Errno::EINTR) => {}
                _ => self.command = None,
            }
        }
        let _ = self.guardian.wait();
        self.terminal.take_back();
    }

    fn signal(&self, signal: Signal) {
        let _ = killpg(self.id, signal); // an error means that the group is empty
    }

    /// When this process ends a group that its guardian should have ended.
    fn last_moment(&self) -> Duration {
        self.deadline.saturating_sub(self.timing.margin / 2)
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !matches!(self.guardian.try_wait(), Ok(Some(_))) {
            self.kill();
        }
    }
}

/// The end of the hold.
fn deadline(hold: &Hold) -> Duration {
    clock::now().saturating_add(hold.remaining())
}

fn ended(status: Result<WaitStatus, Errno>) -> Option<u8> {
    match status {
        Ok(WaitStatus::Exited(_, code)) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(by_signal(signal)),
        Err(Errno::ECHILD) => Some(crate::FAILED),
        _ => None,
    }
}

/// The exit code of a command that a signal ended.
pub(super) fn by_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap_or(i32::MAX))
}

const NOT_RENEWED: &str = "it was about to expire";
