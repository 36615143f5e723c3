//! A child process for the harness's own tests, which stop, kill and question the child.

use std::thread;

use lockson_harness::helper::{requests, say};
use lockson_harness::{HelperProcess, RedisServer};

fn main() {
    if std::env::args().nth(1).as_deref() == Some("deaf") {
        deaf();
    }
    let mut held = Held::default();
    for request in &requests() {
        let words: Vec<&str> = request.split(' ').collect();
        match words[..] {
            ["block"] => {
                say("blocking");
                deaf();
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
            ["helper", mode] => {
                let program = std::env::current_exe().expect("a running program has a path");
                let helper = HelperProcess::spawn(program, &[mode]);
                let pid = helper.pid();
                self.helpers.push(helper);
                return pid.to_string();
            }
            ["stop-helpers"] => self.helpers.iter().for_each(HelperProcess::stop),
            _ => panic!("an unknown request: {words:?}"),
        }
        "done".to_owned()
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
