//! How a run ends: exit codes, signals, and locks that are not free.

use std::process::Command;

use lockson::Client;
use lockson_harness::{HelperProcess, RedisServer, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{SOON, await_waiter, fresh, lockson, run, start};

#[test]
fn a_run_ends_with_the_code_of_its_command() {
    let code = |command: &[&str]| run(&[&[&*fresh("code"), "--"], command].concat()).0;
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -USR1 $$"]), Some(128 + Signal::SIGUSR1 as i32));
    assert_eq!(code(&["/no/such/program"]), Some(127));
    assert_eq!(code(&["/dev/null"]), Some(126));
}

#[test]
fn a_lock_that_is_not_free_has_a_code_and_no_word() {
    let name = fresh("busy");
    let client = Client::connect(&RedisServer::shared().url()).unwrap();
    let guard = client.get_lock(&name).lock().unwrap();
    let nothing = |code| (Some(code), String::new(), String::new());
    assert_eq!(run(&[&name, "--wait", "0", "--", "echo", "here"]), nothing(124));
    assert_eq!(run(&[&name, "--wait", "20ms", "-E", "9", "--", "echo", "here"]), nothing(9));
    guard.unlock().unwrap();
    assert_eq!(run(&[&name, "--wait", "0", "--", "true"]), nothing(0));
}

#[test]
fn a_job_runs_once_per_interval() {
    let name = fresh("once");
    let job =
        |more: &[&str]| run(&[&[&*name, "--once-per", "1h"], more, &["--", "sh", "-c", "echo did; exit 3"]].concat());
    assert_eq!(job(&[]), (Some(3), "did\n".to_owned(), String::new()));
    assert_eq!(job(&[]), (Some(0), String::new(), String::new()));
    assert_eq!(job(&["-E", "9"]).0, Some(9));
}

#[test]
fn what_lockson_cannot_do_has_a_code_of_its_own() {
    let nowhere = lockson("redis://127.0.0.1:1", &["run", "x", "--", "true"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(125), "{nowhere:?}");
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("127.0.0.1:1"), "{nowhere:?}");
    assert_eq!(run(&["x", "--fair", "--fenced", "--", "true"]).0, Some(125));
    assert_eq!(run(&["x", "--ttl", "4s", "--grace", "3s", "--", "true"]).0, Some(125));
    assert_eq!(run(&["x"]).0, Some(125));
}

#[test]
fn a_signal_ends_the_wait_for_a_lock() {
    let name = fresh("wait");
    let client = Client::connect(&RedisServer::shared().url()).unwrap();
    let guard = client.get_lock(&name).lock().unwrap();
    let mut waiter = start(&[&name, "--", "echo", "here"]);
    await_waiter(RedisServer::shared(), &name, std::process::id());
    signal(waiter.pid(), Signal::SIGTERM);
    assert_eq!(waiter.wait(SOON).code(), Some(128 + Signal::SIGTERM as i32));
    assert_eq!(waiter.line(SOON), None);
    guard.unlock().unwrap();
}

#[test]
fn a_signal_is_passed_on_to_the_command() {
    let name = fresh("signal");
    let script = "trap 'echo user' USR1; trap 'echo end; exit 4' TERM; echo in; while :; do sleep 0.05; done";
    let mut holder = start(&[&name, "--", "sh", "-c", script]);
    holder.expect_line("in", SOON);
    signal(holder.pid(), Signal::SIGUSR1);
    holder.expect_line("user", SOON);
    signal(holder.pid(), Signal::SIGTERM);
    holder.expect_line("end", SOON);
    assert_eq!(holder.wait(SOON).code(), Some(4));
    let client = Client::connect(&RedisServer::shared().url()).unwrap();
    assert!(!client.get_lock(&name).is_locked().unwrap());
}

#[test]
#[cfg(target_os = "linux")]
fn an_ignored_signal_stays_ignored() {
    let url = RedisServer::shared().url();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_lockson"), "--url", &url]);
    command.args(["run", &fresh("nohup"), "--", "sh", "-c", "echo in; read line; kill -HUP $$; exit 7"]);
    let mut holder = HelperProcess::spawn_command(command);
    holder.expect_line("in", SOON);
    signal(holder.pid(), Signal::SIGHUP);
    holder.close_input();
    assert_eq!(holder.wait(SOON).code(), Some(7));
}

#[test]
fn a_lease_ends_its_command_before_its_own_end() {
    let name = fresh("lease");
    let script = "trap 'echo end; exit 0' TERM; echo in; while :; do sleep 0.05; done";
    let mut holder = start(&[&name, "--lease", "4s", "--", "sh", "-c", script]);
    holder.expect_line("in", SOON);
    holder.expect_line("end", SOON);
    assert_eq!(holder.wait(SOON).code(), Some(123));
    eventually(SOON, "a word on standard error", || holder.errors().contains("was lost"));
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}
