//! Long waits for several locks: beside long queues, and through a stop of the process.

use lockson_harness::percent::encode_all;

use super::names;
use crate::support::prelude::*;
use crate::support::{Busy, encode, listeners};

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
    let (server, names) = (RedisServer::shared(), names::<2>());
    let mut waiter = open_peer(&format!("address={} timeout_ms={}", encode(&server.url()), PATIENCE.as_millis()));
    let guard = client().get_lock(&names[0]).lock().unwrap();
    let wait = format!("try_lock kind=multi names={} wait_ms={}", encode_all(&names), WAIT.as_millis());
    let waiting = waiter.send(&wait);
    eventually(SOON, "the process waits for the held lock", || listeners(server, &names[0]) == 1);
    // It asks once more, and sleeps until its time is up. A stop in a request would be another matter.
    thread::sleep(WAIT / 4);
    waiter.stop();
    guard.unlock().unwrap();
    thread::sleep(WAIT + PATIENCE);
    waiter.resume();
    // The last requests may still be granted.
    waiter.answer(waiting, SOON).expect_ok();
}

const WAIT: Duration = Duration::from_millis(1_000);
const PATIENCE: Duration = Duration::from_millis(300);

/// The threads that want the slow lock.
const QUEUE: u32 = 5;
