//! The bench program started again, as the other process of an experiment.

use std::time::Instant;

use lockson::Client;
use lockson_harness::helper::{requests, say};
use lockson_harness::{HelperProcess, resident_bytes, thread_names_of};

use crate::remote::{BareWaiter, LocksonWaiter, Waiter};
use crate::usage::processor_time;

/// Starts this program again, for one of the jobs below.
pub(crate) fn spawn(arguments: &[&str]) -> HelperProcess {
    let program = std::env::current_exe().expect("this program has a path");
    HelperProcess::spawn(program, &[&[FLAG], arguments].concat())
}

pub(crate) fn run(arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [LOCKSON_WAITER, url, name] => serve(LocksonWaiter::new(url, name)),
        [BARE_WAITER, url, name] => serve(BareWaiter::new(url, name)),
        [AT_REST, url] => rest(url),
        _ => panic!("no such job: {arguments:?}"),
    }
}

fn serve(mut waiter: impl Waiter) {
    for _ in requests() {
        say(&waiter.wait().to_string());
    }
}

/// Does one pair, prints the time of the pair and the number of connections and threads, and then stays idle.
fn rest(url: &str) {
    let started = Instant::now();
    let client = Client::builder(url).client_name(AT_REST).connect().expect("redis is reached");
    client.get_lock("bench:rest").lock().and_then(|guard| guard.unlock()).expect("works");
    say(&format!("{}", started.elapsed().as_micros()));
    let pid = std::process::id();
    for _ in requests() {
        let names = thread_names_of(pid).unwrap_or_default();
        let ours = names.iter().filter(|name| name.starts_with("lockson")).count();
        let memory = resident_bytes(pid).unwrap_or(0) / 1024;
        say(&format!("{ours} {memory} {}", processor_time(pid).as_millis()));
    }
    drop(client);
}

pub(crate) const FLAG: &str = "--child";
pub(crate) const LOCKSON_WAITER: &str = "lockson-waiter";
pub(crate) const BARE_WAITER: &str = "bare-waiter";
/// The job's name, and the name of the job's connections.
pub(crate) const AT_REST: &str = "bench-rest";
