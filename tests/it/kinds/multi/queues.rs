//! Long waits for several locks: beside long queues, and through a stop of the process.

use std::process::Command;
use std::thread;
use std::time::Duration;

use lockson::{Client, Guard, Lock};
use lockson_harness::{HelperProcess, RedisServer, eventually, helper};

use super::names;
use crate::support::{Busy, SOON, client, listeners, ms};

type MakeLock = fn(&Client, &str) -> Lock;

/// Takes both locks while short holds keep `fast` busy, and long ones `slow`. Checks that the take is granted before the
/// queue of the slow lock has passed three times.
fn check_turn([ours, theirs]: [&Client; 2], (fast, fast_name): (MakeLock, &str), (slow, slow_name): (MakeLock, &str)) {
    let (short, long) = (Busy::new(fast(theirs, fast_name)), Busy::new(slow(theirs, slow_name)));
    thread::scope(|scope| {
        short.start(scope, (3, ms(20)));
        long.start(scope, (QUEUE, ms(250)));
        let before = long.grants();
        let guard = Lock::multi([fast(ours, fast_name), slow(ours, slow_name)]).try_lock_for(SOON);
        let turns = long.grants() - before;
        [&short, &long].into_iter().for_each(Busy::end);
        println!("{turns} grants to others before the take, of a queue of {QUEUE}");
        guard.unwrap().expect("the take has its turn").unlock().unwrap();
        assert!(turns <= 3 * (QUEUE + 1), "{turns} grants to others");
    });
}

/// Checks the turn for both orders of the names, in which a take begins.
fn check_both_orders(clients: [&Client; 2], fast: MakeLock, slow: MakeLock) {
    let (mut one, mut other) = (names::<2>(), names::<2>());
    one.sort();
    other.sort();
    thread::scope(|scope| {
        scope.spawn(|| check_turn(clients, (fast, &one[0]), (slow, &one[1])));
        scope.spawn(|| check_turn(clients, (fast, &other[1]), (slow, &other[0])));
    });
}

#[test]
fn a_long_fair_queue_does_not_starve_a_group() {
    check_both_orders(
        [&client(), &client()],
        |client, name| client.get_lock(name),
        |client, name| client.get_fair_lock(name),
    );
}

#[test]
fn a_long_local_queue_does_not_starve_a_group() {
    let client = client();
    let plain: MakeLock = |client, name| client.get_lock(name);
    check_both_orders([&client, &client], plain, plain);
}

#[test]
fn a_wait_that_ends_in_a_stop_of_the_process_is_no_outage() {
    let (server, [held, free]) = (RedisServer::shared(), names());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kinds::multi::queues::a_stopped_process_waits", "--nocapture"]);
    command.env(NAMES, format!("{held} {free}")).env(URL, server.url());
    let mut waiter = HelperProcess::spawn_command(command);
    let guard = client().get_lock(&held).lock().unwrap();
    while waiter.next_line(SOON) != "connected" {}
    waiter.send("wait");
    eventually(SOON, "the process waits for the held lock", || listeners(server, &held) == 1);
    waiter.stop();
    guard.unlock().unwrap();
    thread::sleep(WAIT + PATIENCE);
    waiter.resume();
    // The last requests may still be granted.
    let told = waiter.next_line(SOON);
    assert!(told.starts_with("Ok("), "{told}");
}

/// This process is the waiter if the variable is set; otherwise there is nothing to test here.
#[test]
fn a_stopped_process_waits() {
    let (Ok(names), Ok(url)) = (std::env::var(NAMES), std::env::var(URL)) else { return };
    helper::say("");
    let client = Client::builder(&url).command_timeout(PATIENCE).connect().unwrap();
    let multi = Lock::multi(names.split(' ').map(|name| client.get_lock(name)));
    helper::say("connected");
    assert_eq!(helper::requests().recv().unwrap(), "wait");
    helper::say(&format!("{:?}", multi.try_lock_for(WAIT).map(|guard| guard.map(Guard::unlock))));
}

const NAMES: &str = "LOCKSON_TEST_STOPPED_NAMES";
const URL: &str = "LOCKSON_TEST_STOPPED_SERVER";
const WAIT: Duration = Duration::from_millis(1_000);
const PATIENCE: Duration = Duration::from_millis(300);

/// The threads that want the slow lock.
const QUEUE: u32 = 5;
