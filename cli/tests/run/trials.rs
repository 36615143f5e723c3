//! Faults while a command runs and another one waits: no two commands work at once, and the exit codes are right.
//!
//! Each fault is tried a few times, or as often as `LOCKSON_TRIALS` says.

use std::process::Command;

use lockson::Client;
use lockson_harness::{HelperProcess, RedisServer, SentinelSet, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::worker::{DONE, STUBBORN, WORK, WORKER, overlaps};
use super::{SOON, await_waiter, fresh, lockson};

const LOST: i32 = 123;
const FAILED: i32 = 125;
/// How many trials of a fault run at a time.
const AT_ONCE: usize = 10;

#[test]
fn a_stopped_holder_is_ended_before_the_next() {
    each(3, AT_ONCE, |number| {
        let mut trial = Trial::on_shared("2s", number);
        trial.holder.stop();
        trial.next_works();
        trial.holder.resume();
        assert_eq!(trial.holder.wait(SOON).code(), Some(LOST));
    });
}

#[test]
fn a_killed_holder_is_ended_before_the_next() {
    each(3, AT_ONCE, |number| {
        let mut trial = Trial::on_shared("2s", number);
        trial.holder.kill();
        trial.next_works();
    });
}

#[test]
fn a_stopped_guardian_goes_on() {
    each(3, AT_ONCE, |number| {
        let mut trial = Trial::on_shared("30s", number);
        send(trial.guardian, Signal::SIGSTOP);
        trial.holder.close_input();
        assert_eq!(trial.holder.wait(SOON).code(), Some(DONE));
        trial.next_works();
    });
}

#[test]
fn a_command_ends_with_its_guardian() {
    each(3, AT_ONCE, |number| {
        let mut trial = Trial::on_shared("30s", number);
        send(trial.guardian, Signal::SIGKILL);
        assert_eq!(trial.holder.wait(SOON).code(), Some(FAILED));
        trial.next_works();
    });
}

#[test]
fn a_dead_server_ends_the_command_before_the_lock() {
    each(2, AT_ONCE, |number| {
        let server = RedisServer::builder().config("appendonly yes").config("appendfsync always").start();
        let mut trial = Trial::begin(&server, &server.url(), "2s", number);
        server.kill();
        // Back before the command ends, or after.
        if number % 2 == 0 {
            assert_eq!(trial.holder.wait(SOON).code(), Some(LOST));
        }
        server.start_again();
        trial.holder.close_input();
        let code = trial.holder.wait(SOON).code();
        assert!([Some(DONE), Some(LOST)].contains(&code), "{code:?}");
        trial.next_works();
    });
}

#[test]
fn a_lock_taken_away_ends_its_command() {
    let client = Client::connect(&RedisServer::shared().url()).unwrap();
    each(3, AT_ONCE, |number| {
        let mut trial = Trial::on_shared("30s", number);
        assert!(client.get_lock(&trial.name).force_unlock().unwrap());
        assert_eq!(trial.holder.wait(SOON).code(), Some(LOST));
        trial.next_works();
    });
}

#[test]
fn a_suspended_command_keeps_its_lock() {
    let client = Client::connect(&RedisServer::shared().url()).unwrap();
    each(3, AT_ONCE, |number| {
        let mut trial = Trial::on_shared("6s", number);
        send(trial.command, Signal::SIGSTOP);
        let left = || client.get_lock(&trial.name).remaining_time_to_live().unwrap().unwrap_or_default();
        let before = left();
        eventually(SOON, "a renewal", || left() > before);
        send(trial.command, Signal::SIGCONT);
        trial.holder.close_input();
        assert_eq!(trial.holder.wait(SOON).code(), Some(DONE));
        trial.next_works();
    });
}

#[test]
fn a_fail_over_makes_no_two_commands() {
    each(1, 2, |number| {
        let set = SentinelSet::start(1, 3);
        let mut trial = Trial::begin(set.server(0), &set.url(), "20s", number);
        set.wait_for_sync();
        set.server(0).kill();
        set.wait_for_another_master(0);
        trial.holder.close_input();
        assert_eq!(trial.holder.wait(SOON).code(), Some(DONE));
        trial.next_works();
    });
}

/// One command at work, and one that waits.
struct Trial {
    name: String,
    folder: TempDir,
    holder: HelperProcess,
    next: HelperProcess,
    command: i32,
    guardian: i32,
}

impl Trial {
    fn on_shared(ttl: &str, number: usize) -> Self {
        let server = RedisServer::shared();
        Self::begin(server, &server.url(), ttl, number)
    }

    fn begin(server: &RedisServer, url: &str, ttl: &str, number: usize) -> Self {
        let (name, folder) = (fresh("trial"), tempfile::tempdir().unwrap());
        let start = |ttl: &str, is_stubborn: bool| {
            let mut command: Command = lockson(url, &["run", &name, "--ttl", ttl, "--grace", "400ms", "--"]);
            command.arg(std::env::current_exe().unwrap()).args(WORKER).env(WORK, folder.path());
            if is_stubborn {
                command.env(STUBBORN, "1");
            }
            HelperProcess::spawn_command(command)
        };
        let holder = start(ttl, number % 2 == 1);
        let (command, guardian) = entry(&holder);
        let next = start("30s", false);
        await_waiter(server, &name, holder.pid());
        Self { name, folder, holder, next, command, guardian }
    }

    /// The second command comes to work, alone, and ends.
    fn next_works(&mut self) {
        entry(&self.next);
        self.next.close_input();
        assert_eq!(self.next.wait(SOON).code(), Some(DONE), "{}", self.next.errors());
        assert_eq!(overlaps(self.folder.path()), "", "both were at work");
    }
}

/// Waits until a worker is at work. Returns its id and the id of its guardian.
fn entry(run: &HelperProcess) -> (i32, i32) {
    loop {
        let line = run.next_line(SOON);
        if let Some((command, guardian)) = line.strip_prefix("in ").and_then(|ids| ids.split_once(' ')) {
            return (command.parse().unwrap(), guardian.parse().unwrap());
        }
    }
}

/// Makes so many trials, or as many as the environment says; some at a time.
fn each(usual: usize, at_once: usize, trial: impl Fn(usize) + Sync) {
    let wanted = std::env::var("LOCKSON_TRIALS").ok().and_then(|number| number.parse().ok());
    let numbers: Vec<usize> = (0..wanted.unwrap_or(usual)).collect();
    for some in numbers.chunks(at_once) {
        std::thread::scope(|scope| some.iter().for_each(|number| drop(scope.spawn(|| trial(*number)))));
    }
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}
