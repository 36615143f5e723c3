//! Examples that a test runs, because they end by a signal.

use std::process::Command;

use lockson_harness::{HelperProcess, RedisServer, eventually};

use crate::support::{SOON, built, channel};

#[test]
fn a_service_under_load_ends_well_at_sigterm() {
    let server = RedisServer::start();
    let mut command = Command::new(built("build", &["--example", "shutdown"]).join("examples/shutdown"));
    command.env("REDIS_URL", server.url());
    let mut service = HelperProcess::spawn_command(command);
    let tills = [1, 2].map(|number| format!("lockson:example:till:{number}"));
    let is_busy = |till: &String| server.query::<bool>(&["EXISTS", till]) && server.subscribers(&channel(till)) > 0;
    eventually(SOON, "both locks are held and waited for", || tills.iter().all(is_busy));
    service.terminate();
    let ended = service.wait(SOON);
    let mut said: Vec<String> = std::iter::from_fn(|| service.line(SOON)).collect();
    assert!(ended.success(), "{ended}: {said:?}, {}", service.errors());
    let last = said.pop().unwrap_or_default();
    assert!(last.starts_with("signal 15: ") && last.ends_with(" to their end, 0 locks held"), "{last}");
    assert_eq!(server.keys(), [""; 0], "nothing is left");
}
