//! `lockson run` on real servers: what a command gets, how a run ends, and that no two commands work at once.

mod command;
mod ends;
mod places;
mod trials;
mod worker;

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockson_harness::{HelperProcess, RedisServer, eventually, is_alive};

/// The bound of a wait for an event that is immediate on an idle machine.
const SOON: Duration = Duration::from_secs(60);

/// A name that no other test uses.
fn fresh(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// `lockson` on a server, with arguments.
fn lockson(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockson"));
    command.args(["--url", url]).args(arguments);
    command
}

/// Runs `lockson run` on the shared server to its end. Returns the exit code, the output and the errors.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = lockson(&RedisServer::shared().url(), &["run"]).args(arguments).output().expect("lockson starts");
    let text = |bytes| String::from_utf8(bytes).expect("lockson writes text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Starts `lockson run` on the shared server.
fn start(arguments: &[&str]) -> HelperProcess {
    let mut command = lockson(&RedisServer::shared().url(), &["run"]);
    command.args(arguments);
    HelperProcess::spawn_command(command)
}

/// Waits until a process waits for the lock of this holder, who may lose it on a machine that is too busy.
fn await_waiter(server: &RedisServer, name: &str, holder: u32) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually(SOON, "a waiter", || server.subscribers(&channel) > 0 || !is_alive(holder));
}
