//! Signals to other processes, and the states of other processes.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::eventually;

/// Whether a process with this id runs or is stopped.
///
/// On Linux a dead process counts as dead even before reaping; on other systems only after reaping.
pub fn is_alive(pid: u32) -> bool {
    match state(pid) {
        Some(state) => state != 'Z' && state != 'X',
        None if HAS_PROC => false,
        None => test_kill_process(as_pid(pid)).is_ok(),
    }
}

/// Sends SIGSTOP and waits until the process has really stopped.
pub(crate) fn stop(pid: u32) {
    send(pid, Signal::STOP);
    if HAS_PROC {
        eventually(BOUND, "the process stops", || matches!(state(pid), Some('T' | 't' | 'Z' | 'X') | None));
    }
}

/// Whether a process is stopped; false where the system does not tell.
pub(crate) fn is_stopped(pid: u32) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

/// Sends SIGTERM.
pub(crate) fn terminate(pid: u32) {
    send(pid, Signal::TERM);
}

/// Sends SIGCONT.
pub(crate) fn resume(pid: u32) {
    send(pid, Signal::CONT);
}

fn send(pid: u32, signal: Signal) {
    if let Err(error) = kill_process(as_pid(pid), signal) {
        panic!("cannot send {signal:?} to {pid}: {}", io::Error::from(error));
    }
}

/// The first field of `/proc/<pid>/stat` after the program's name, which may hold any sign.
fn state(pid: u32) -> Option<char> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    line.rsplit_once(") ")?.1.chars().next()
}

fn as_pid(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is positive and fits 31 bits")
}

const HAS_PROC: bool = cfg!(target_os = "linux");
const BOUND: Duration = Duration::from_secs(10);
