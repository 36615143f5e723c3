//! The token lock beside other lock libraries: runs the tests of `tests/it/kinds/token_peers.rs` and counts each.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use lockson_harness::{HelperProcess, RedisServer, cargo};

use crate::program::workspace;
use crate::verdict::{Score, Verdict, caught};

/// A lock library, and the verdict of its test.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) title: &'static str,
    pub(crate) version: String,
    pub(crate) test: &'static str,
    pub(crate) verdict: Verdict,
}

pub(crate) fn run(server: &RedisServer, score: &Score) -> Vec<Library> {
    let said = run_tests();
    let ran = said.iter().filter(|line| line.starts_with("test kinds::token_peers::")).count();
    let known = if ran == LIBRARIES.len() { vec![] } else { vec![format!("{ran} tests ran: {said:#?}")] };
    score.count("as many token tests as libraries", &Verdict::unless(known));
    LIBRARIES
        .iter()
        .map(|&(peer, title, test)| {
            let passed = said.contains(&format!("test kinds::token_peers::{test} ... ok"));
            let verdict = Verdict::unless(if passed { vec![] } else { vec![format!("{test} failed")] });
            score.count(&format!("token lock beside {title}"), &verdict);
            let version = caught(|| version(server, peer)).unwrap_or("not there".into());
            println!("token: {title} {version}: {}", if passed { "passed" } else { "FAILED" });
            Library { title, version, test, verdict }
        })
        .collect()
}

/// The tests' output, which is shown after a failure.
fn run_tests() -> Vec<String> {
    let mut command = cargo("test");
    command.current_dir(workspace());
    command.args(["--test", "it", "kinds::token_peers::", "--", "--ignored"]);
    // The tests wait more than they work, so all tests run at the same time.
    command.arg(format!("--test-threads={}", LIBRARIES.len()));
    let mut process = HelperProcess::spawn_command(command);
    let said: Vec<String> = std::iter::from_fn(|| process.line(LIMIT)).collect();
    if !process.wait(LIMIT).success() {
        // The tests are counted here, so the lines with the tests' own counts must not reach the sum of all results.
        let story = said.iter().filter(|line| !line.starts_with("test result:"));
        story.for_each(|line| println!("{line}"));
        println!("{}", process.errors());
    }
    said
}

/// A peer greets with `ready <library> <version>`.
fn version(server: &RedisServer, peer: &str) -> String {
    let greeting = HelperProcess::spawn(built().join(peer).join("peer"), &[&server.url(), "version"]).next_line(LIMIT);
    greeting.rsplit(' ').next().unwrap_or_default().to_owned()
}

/// The folder of the peers; this program is two levels below its target folder.
fn built() -> PathBuf {
    let program = env::current_exe().expect("the program has a path");
    program.ancestors().nth(2).expect("the program is in a target folder").join("token_peers")
}

/// Folder of the peer, title, test.
const LIBRARIES: &[(&str, &str, &str)] = &[
    ("redis-py", "redis-py, `Lock`", "redis_py_and_lockson_exclude_each_other"),
    ("redsync", "redsync", "redsync_and_lockson_exclude_each_other"),
    ("redlock", "node-redlock", "node_redlock_and_lockson_exclude_each_other"),
    ("redlock5", "node-redlock, the next", "the_next_node_redlock_and_lockson_exclude_each_other"),
    ("rslock", "rslock", "rslock_and_lockson_exclude_each_other"),
    ("jedis", "Jedis, written by hand", "handwritten_jedis_code_and_lockson_exclude_each_other"),
];
/// The limit of all tests together; a run takes half a minute after the build.
const LIMIT: Duration = Duration::from_secs(180);
