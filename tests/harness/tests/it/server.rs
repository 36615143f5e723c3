//! The promises of the harness about servers.

use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use lockson_harness::{HelperProcess, RedisServer, descriptors_of, eventually, is_alive, threads_of};
use redis::Commands;

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
fn a_start_and_a_drop_leave_nothing_open() {
    let mut helper = child();
    let pid = helper.pid();
    helper.ask("server-and-drop", SOON);
    // In a separate process, because other tests of this process open and close descriptors meanwhile.
    let before = (threads_of(pid), descriptors_of(pid));
    for _ in 0..3 {
        helper.ask("server-and-drop", SOON);
    }
    assert_eq!((threads_of(pid), descriptors_of(pid)), before);
    assert_eq!(children_of(pid), Vec::<u32>::new());
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

#[test]
fn the_log_outlives_a_panic() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let failure = thread::spawn(move || {
        let server = RedisServer::start();
        sender.send(server.log_path()).unwrap();
        panic!("on purpose, to see the log kept");
    });
    assert!(failure.join().is_err());
    let log = receiver.recv().unwrap();
    assert!(fs::read_to_string(&log).unwrap().contains("Ready to accept"));
    fs::remove_dir_all(log.parent().unwrap()).unwrap();
}

#[test]
fn the_counters_tell_what_happened() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut named = client.get_connection().unwrap();
    let () = redis::cmd("CLIENT").arg(&["SETNAME", "lockson-test-1"]).query(&mut named).unwrap();
    assert_eq!(server.clients_named("lockson-test"), 1);
    eventually(SOON, "no other client is connected", || server.clients().len() == 1);
    server.reset_counters();
    for _ in 0..3 {
        let () = named.set("key", "value").unwrap();
    }
    assert_eq!(server.calls_of("SET"), 3);
    assert_eq!(server.calls_of("get"), 0);
    let mut listener = named.as_pubsub();
    listener.subscribe("news").unwrap();
    assert_eq!(server.channels(), ["news"]);
    assert_eq!(server.subscribers("news"), 1);
    drop(listener);
    drop(named);
    eventually(SOON, "the client is gone", || server.clients().is_empty());
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

fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}
