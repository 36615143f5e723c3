//! The child that the tests of the harness itself stop, kill and question.

use std::thread;
use std::time::Duration;

use lockson_harness::helper::{requests, say};
use lockson_harness::proxy::{Proxy, Then, When};
use lockson_harness::{HelperProcess, RedisServer, Witness, descriptors_of, threads_of};

fn main() {
    if std::env::args().nth(1).as_deref() == Some("deaf") {
        deaf();
    }
    let requests = requests();
    let mut servers = Vec::new();
    let mut helpers = Vec::new();
    let mut witness = None;
    let mut inside = Vec::new();
    for request in &requests {
        let words: Vec<&str> = request.split(' ').collect();
        match words[..] {
            ["echo", ..] => say(&request["echo ".len()..]),
            ["complain", ..] => {
                eprintln!("{}", &request["complain ".len()..]);
                say("complained");
            }
            ["block"] => {
                say("blocking");
                loop {
                    thread::park();
                }
            }
            ["server"] => {
                let server = RedisServer::start();
                say(&describe(&server));
                servers.push(server);
            }
            ["server-and-drop"] => {
                drop(RedisServer::start());
                say("dropped");
            }
            ["pause-servers"] => {
                servers.iter().for_each(RedisServer::pause);
                say("paused");
            }
            ["shared"] => say(&describe(RedisServer::shared())),
            ["helper", mode] => {
                let program = std::env::current_exe().expect("a running program has a path");
                let helper = HelperProcess::spawn(program, &[mode]);
                say(&helper.pid().to_string());
                helpers.push(helper);
            }
            ["stop-helpers"] => {
                helpers.iter().for_each(HelperProcess::stop);
                say("stopped");
            }
            ["drop-helpers"] => {
                helpers.clear();
                say("dropped");
            }
            ["usage"] => say(&usage()),
            ["witness", folder] => {
                witness = Some(Witness::at(folder));
                say("watching");
            }
            ["enter", name] => {
                let entered = witness.as_ref().expect("a witness first").enter(name);
                say(if entered.is_alone() { "alone" } else { "beside" });
                inside.push(entered);
            }
            ["leave"] => {
                inside.clear();
                say("left");
            }
            ["proxies", count, address] => {
                for _ in 0..count.parse().expect("a number of proxies") {
                    use_proxy(address);
                }
                say(&usage());
            }
            ["threads", count] => {
                for _ in 0..count.parse().expect("a number of threads") {
                    thread::spawn(thread::park);
                }
                say("started");
            }
            ["exit", code] => std::process::exit(code.parse().expect("an exit code")),
            _ => say("what?"),
        }
    }
}

/// Breaks the convention: never looks at standard input.
fn deaf() -> ! {
    loop {
        thread::park();
    }
}

fn describe(server: &RedisServer) -> String {
    let folder = server.socket();
    let folder = folder.parent().expect("the socket is in a folder");
    format!("{} {} {}", server.pid(), server.port(), folder.display())
}

fn use_proxy(address: &str) {
    let target = address.parse().expect("an address with a port");
    let proxy = Proxy::start(target);
    let client = redis::Client::open(proxy.url()).expect("an address of ours");
    let mut connection = client.get_connection().expect("a server behind the proxy");
    let held = proxy.rule(When::command("PING"), Then::HoldReply);
    let limit = Some(Duration::from_millis(5));
    connection.set_read_timeout(limit).expect("a valid limit");
    let mute = redis::cmd("PING").exec(&mut connection);
    mute.expect_err("the reply is held");
    held.release();
}

/// Threads and descriptors of this process.
fn usage() -> String {
    let pid = std::process::id();
    format!("{:?} {:?}", threads_of(pid), descriptors_of(pid))
}
