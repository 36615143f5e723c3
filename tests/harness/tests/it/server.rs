//! The promises of the harness about servers.

use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use lockson_harness::{HelperProcess, RedisServer, eventually, is_alive};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_dropped_server_leaves_no_process_and_no_folder() {
    let server = RedisServer::start();
    let (pid, port, socket) = (server.pid(), server.port(), server.socket());
    assert!(is_alive(pid) && socket.exists());
    drop(server);
    assert!(!is_alive(pid));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!socket.parent().unwrap().exists());
}

#[test]
fn a_paused_server_is_dropped_at_once_too() {
    let server = RedisServer::start();
    let pid = server.pid();
    server.pause();
    let started = Instant::now();
    drop(server);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(!is_alive(pid));
}

#[test]
fn a_killed_test_process_takes_its_servers_with_it() {
    for request in ["server", "shared"] {
        let mut helper = child();
        let (pid, _, folder) = server_of(&helper.ask(request, SOON));
        assert!(is_alive(pid) && Path::new(&folder).exists());
        helper.kill();
        gone(pid, &folder);
    }
}

#[test]
fn a_shared_server_ends_with_a_process_that_ends_well() {
    let mut helper = child();
    let (pid, port, folder) = server_of(&helper.ask("shared", SOON));
    assert_eq!(server_of(&helper.ask("shared", SOON)).1, port);
    helper.send("exit 0");
    assert!(helper.wait(SOON).success());
    gone(pid, &folder);
}

/// Starts the child of this crate, which can start servers.
fn child() -> HelperProcess {
    HelperProcess::spawn(env!("CARGO_BIN_EXE_harness-child"), &["listen"])
}

fn server_of(line: &str) -> (u32, u16, String) {
    let words: Vec<&str> = line.split(' ').collect();
    let (pid, port) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    (pid, port, words[2].to_owned())
}

fn gone(pid: u32, folder: &str) {
    eventually(SOON, "the server is gone", || !is_alive(pid));
    eventually(SOON, "the folder is gone", || !Path::new(folder).exists());
}
