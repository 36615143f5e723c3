//! What a command gets: the lock of each kind, an environment, a terminal.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockson::Client;
use lockson_harness::{HelperProcess, RedisServer};

use super::{SOON, fresh, lockson, run};

const SHOW: [&str; 4] = ["--", "sh", "-c", "echo $LOCKSON_NAME $LOCKSON_OWNER $LOCKSON_TOKEN"];

#[test]
fn each_kind_of_lock_is_in_the_environment_of_its_command() {
    let kinds: [(&str, usize); 10] = [
        ("", 2),
        ("--fair", 2),
        ("--spin", 2),
        ("--token", 2),
        ("--read", 2),
        ("--write", 2),
        ("--lease=20s", 2),
        ("--once-per=20s", 2),
        ("--fenced", 3),
        ("--leader=me", 3),
    ];
    std::thread::scope(|scope| {
        for (kind, words) in kinds {
            scope.spawn(move || {
                let name = fresh("kind");
                let options: Vec<&str> = [&*name, kind].into_iter().filter(|word| !word.is_empty()).collect();
                let (code, said, errors) = run(&[&options[..], &SHOW].concat());
                assert_eq!((code, &*errors), (Some(0), ""), "{kind}");
                let told: Vec<&str> = said.split_whitespace().collect();
                assert_eq!((told.len(), told[0]), (words, &*name), "{kind}: {said}");
            });
        }
    });
}

#[test]
fn permits_are_set_once_and_given_back() {
    let name = fresh("permits");
    let taking = [&name, "--permits", "2", "--of", "5", "--wait", "0", "--"];
    let inner =
        |permits| format!("'{}' run {name} --permits {permits} --wait 0 -- true", env!("CARGO_BIN_EXE_lockson"));
    let script = format!("echo $LOCKSON_OWNER; {} && ! {}", inner(3), inner(4));
    let url = RedisServer::shared().url();
    let done = lockson(&url, &["run"]).env("LOCKSON_URL", &url).args(taking).args(["sh", "-c", &script]).output();
    let done = done.expect("lockson starts");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim().split(',').map(str::len).collect::<Vec<_>>(), [32, 32]);
    let semaphore = Client::connect(&url).unwrap().get_permit_expirable_semaphore(&name);
    assert_eq!((semaphore.available().unwrap(), semaphore.permits().unwrap()), (5, 5));
    let (code, _, errors) = run(&[&[&*name, "--permits", "2", "--of", "1"], &SHOW[..]].concat());
    assert!(code == Some(125) && errors.contains("--permits 2 cannot be taken --of 1"), "{code:?} {errors}");
}

#[test]
fn redissons_file_tells_for_how_long_a_lock_lives() {
    let (server, name, folder) = (RedisServer::shared(), fresh("file"), tempfile::tempdir().unwrap());
    let yaml = folder.path().join("redisson.yaml");
    let servers = format!("singleServerConfig: {{address: 'redis://{}', timeout: 60000}}", server.address());
    std::fs::write(&yaml, servers + "\nlockWatchdogTimeout: 120000\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockson"));
    command.arg("--redisson-yaml").arg(yaml).args(["run", &name, "--", "sh", "-c", "echo in; read line; exit 7"]);
    let mut holder = HelperProcess::spawn_command(command);
    holder.expect_line("in", SOON);
    let left = Client::connect(&server.url()).unwrap().get_lock(&name).remaining_time_to_live().unwrap();
    assert!(left > Some(Duration::from_secs(60)), "{left:?}");
    holder.close_input();
    assert_eq!(holder.wait(SOON).code(), Some(7));
}

#[test]
fn a_token_is_not_passed_on_by_a_lock_without_one() {
    let (outer, inner) = (fresh("outer"), fresh("inner"));
    let url = RedisServer::shared().url();
    let done = lockson(&url, &["run", &outer, "--fenced", "--", env!("CARGO_BIN_EXE_lockson"), "run", &inner])
        .args(SHOW)
        .env("LOCKSON_URL", &url)
        .output()
        .expect("lockson starts");
    assert_eq!(String::from_utf8_lossy(&done.stdout).split_whitespace().count(), 2, "{done:?}");
}

#[test]
fn what_a_command_leaves_running_ends_before_the_lock_is_free() {
    // The one that is left ignores SIGTERM, so that only SIGKILL ends it.
    let script = "(trap '' TERM; echo here; sleep 60) & read line </dev/null; echo $!; sleep 0.2; exit 5";
    let (code, said, errors) = run(&[&fresh("leftover"), "--grace", "200ms", "--", "sh", "-c", script]);
    assert_eq!((code, &*errors), (Some(5), ""));
    let pid = said.lines().find_map(|line| line.parse().ok()).expect("a process was left");
    assert!(!lockson_harness::is_alive(pid), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_command_reads_from_the_terminal() {
    let url = RedisServer::shared().url();
    let (program, name) = (env!("CARGO_BIN_EXE_lockson"), fresh("terminal"));
    // `script` gives a terminal to its command; in the background the command would be stopped as it reads.
    let line = format!("'{program}' --url {url} run {name} -- sh -c 'read word; echo got-$word; exit 6'");
    let mut script = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is there");
    script.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let done = script.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("got-hello"), "{said}");
    assert_eq!(done.status.code(), Some(6), "{said}");
}
