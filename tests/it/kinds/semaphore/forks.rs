//! A forked child of a process with permits: every call refuses at once, and the permits stay with the parent.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use fork::Fork;
use lockson::{Client, ErrorKind, Permits};
use lockson_harness::{HelperProcess, RedisServer, helper};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{SOON, kind_of, ms};

#[test]
fn a_forked_child_gives_no_permit_back() {
    let server = RedisServer::start();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "kinds::semaphore::forks::a_taker_of_permits_forks";
    command.args(["--exact", test, "--nocapture"]).env(SERVER, server.url());
    let parent = HelperProcess::spawn_command(command);
    for round in 0..ROUNDS {
        let line = loop {
            let line = parent.next_line(SOON * 2);
            if let Some(line) = line.strip_prefix("child ") {
                break line.to_owned();
            }
        };
        assert_eq!(line, "0", "round {round}");
    }
    while parent.next_line(SOON) != HELD {}
    assert_eq!(server.query::<String>(&["GET", NAME]), "8");
}

/// This process is the parent if the variable is set; otherwise there is nothing to test here.
#[test]
fn a_taker_of_permits_forks() {
    let Ok(url) = std::env::var(SERVER) else { return };
    helper::say("");
    let client = Client::connect(&url).unwrap();
    let semaphore = client.get_semaphore(NAME);
    semaphore.set_permits_once(10).unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for wish in [1, 2, 3, 7] {
            let (semaphore, ended) = (&semaphore, &ended);
            scope.spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    drop(semaphore.try_acquire_for(wish, ms(50)).unwrap());
                }
            });
        }
        for _ in 0..ROUNDS {
            let permits = semaphore.acquire(2).unwrap();
            match fork::fork().unwrap() {
                Fork::Parent(child) => helper::say(&format!("child {}", status_of(child))),
                Fork::Child => {
                    let is_refused = in_child(&client, permits);
                    // The child has none of the parent's threads, and runs no destructor of theirs.
                    std::process::exit(i32::from(!is_refused));
                }
            }
            permits.release().unwrap();
        }
        ended.store(true, Ordering::Release);
    });
    semaphore.acquire(2).unwrap().leave_to_release();
    helper::say(HELD);
}

fn in_child(client: &Client, permits: Permits) -> bool {
    let (semaphore, latch) = (client.get_semaphore(NAME), client.get_count_down_latch("latch"));
    let kinds = [
        kind_of(semaphore.acquire(1)),
        kind_of(semaphore.try_acquire(1)),
        kind_of(semaphore.release(1)),
        kind_of(semaphore.available()),
        kind_of(latch.count_down()),
        kind_of(latch.wait()),
        kind_of(permits.release()),
    ];
    client.close();
    kinds.iter().all(|kind| *kind == ErrorKind::Closed)
}

/// The exit status of a child, which is killed after a time limit.
fn status_of(child: i32) -> i32 {
    let forked = Instant::now();
    while forked.elapsed() < SOON {
        match fork::waitpid_nohang(child).unwrap() {
            Some(status) => return status,
            None => thread::sleep(ms(2)),
        }
    }
    let _ = kill_process(Pid::from_raw(child).unwrap(), Signal::KILL);
    -1
}

const SERVER: &str = "LOCKSON_TEST_PERMITS_SERVER";
const NAME: &str = "forked";
const HELD: &str = "the parent has its permits";
const ROUNDS: usize = 20;
