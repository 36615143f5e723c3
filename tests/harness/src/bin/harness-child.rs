//! A child process for the harness's own tests, which stop, kill and question the child.

use std::thread;
use std::time::Duration;

use lockson_harness::helper::{requests, say};
use lockson_harness::proxy::{Proxy, Then, When};
use lockson_harness::{HelperProcess, RedisServer, descriptors_of, threads_of};

fn main() {
    if std::env::args().nth(1).as_deref() == Some("deaf") {
        deaf();
    }
    let mut held = Held::default();
    for request in &requests() {
        let words: Vec<&str> = request.split(' ').collect();
        match words[..] {
            ["echo", ..] => say(&request["echo ".len()..]),
            ["block"] => {
                say("blocking");
                deaf();
            }
            ["threads", count] => {
                repeat(count, || drop(thread::spawn(thread::park)));
                say("started");
            }
            ["usage"] => say(&usage()),
            ["proxies", count, address] => {
                repeat(count, || use_proxy(address));
                say(&usage());
            }
            ["exit", code] => std::process::exit(code.parse().expect("an exit code")),
            ref words => say(&held.answer(words)),
        }
    }
}

/// Values that the child keeps until a request to drop them, or until SIGKILL.
#[derive(Default)]
struct Held {
    servers: Vec<RedisServer>,
    helpers: Vec<HelperProcess>,
}

impl Held {
    fn answer(&mut self, words: &[&str]) -> String {
        match words {
            ["server"] => {
                self.servers.push(RedisServer::start());
                return describe(&self.servers[self.servers.len() - 1]);
            }
            ["shared"] => return describe(RedisServer::shared()),
            ["server-and-drop"] => drop(RedisServer::start()),
            ["helper", mode] => {
                let program = std::env::current_exe().expect("a running program has a path");
                let helper = HelperProcess::spawn(program, &[mode]);
                let pid = helper.pid();
                self.helpers.push(helper);
                return pid.to_string();
            }
            ["stop-helpers"] => self.helpers.iter().for_each(HelperProcess::stop),
            ["drop-helpers"] => self.helpers.clear(),
            _ => panic!("an unknown request: {words:?}"),
        }
        "done".to_owned()
    }
}

fn repeat(count: &str, mut act: impl FnMut()) {
    for _ in 0..count.parse().expect("a number") {
        act();
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

/// The numbers of threads and descriptors of this process.
fn usage() -> String {
    let pid = std::process::id();
    format!("{:?} {:?}", threads_of(pid), descriptors_of(pid))
}
