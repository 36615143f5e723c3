//! Many readers or one writer, and the change from each side to the other.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, ErrorKind};
use lockson_harness::{RedisServer, eventually};

use super::{channel, is_free, sides};
use crate::support::{SCHEDULING, SOON, client, elsewhere, fresh, handed_over, joined, kind_of, ms, timed};

#[test]
fn no_owner_is_ever_beside_a_writer() {
    const ROUNDS: u64 = 30;
    let name = fresh("rw");
    // Each reader adds one, a writer a thousand.
    let (inside, written) = (AtomicI64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for client in [client(), client(), client()] {
            for number in 0..4 {
                let (read, write) = sides(&client, &name);
                let (inside, written) = (&inside, &written);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if (round + number) % 3 == 0 {
                            let guard = write.lock().unwrap();
                            assert_eq!(inside.fetch_add(1_000, Ordering::SeqCst), 0, "another thread is inside");
                            let seen = written.load(Ordering::SeqCst);
                            thread::yield_now();
                            written.store(seen + 1, Ordering::SeqCst);
                            inside.fetch_sub(1_000, Ordering::SeqCst);
                            guard.unlock().unwrap();
                        } else {
                            let guard = read.lock().unwrap();
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 1_000, "a writer is inside");
                            thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            guard.unlock().unwrap();
                        }
                    }
                });
            }
        }
    });
    assert_eq!(written.load(Ordering::SeqCst), 12 * ROUNDS / 3);
}

#[test]
fn a_writer_may_read_and_reads_on_when_it_stops_writing() {
    let name = fresh("rw");
    let (ours, theirs) = (client(), client());
    let ((read, write), (other_read, other_write)) = (sides(&ours, &name), sides(&theirs, &name));
    let writing = write.lock().unwrap();
    let reading = read.try_lock().unwrap().expect("a writer may read");
    assert!(!is_free(&other_read) && !is_free(&other_write));
    writing.unlock().unwrap();
    assert!(reading.is_held());
    assert!(is_free(&other_read) && !is_free(&other_write), "the owner is one reader of many now");
    reading.unlock().unwrap();
    assert!(is_free(&other_write));
    // The other way round: reading ends first.
    let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
    reading.unlock().unwrap();
    assert!(writing.is_held() && !is_free(&other_read) && !is_free(&other_write));
    writing.unlock().unwrap();
    assert!(is_free(&other_write));
}

#[test]
fn a_reader_that_wants_to_write_is_told_at_once_that_it_cannot() {
    let name = fresh("rw");
    let (ours, theirs) = (client(), client());
    let ((read, write), (other_read, other_write)) = (sides(&ours, &name), sides(&theirs, &name));
    let alone = read.lock().unwrap();
    let beside_others = other_read.lock().unwrap();
    for _ in 0..2 {
        let wanted = [
            timed(|| write.lock().map(drop)),
            timed(|| write.try_lock().map(drop)),
            timed(|| write.try_lock_for(SOON).map(drop)),
            timed(|| write.with_lease(ms(500)).lock().map(drop)),
            timed(|| ours.get_read_write_lock(&name).get_write_lock().lock().map(drop)),
        ];
        for (took, outcome) in wanted {
            let error = outcome.unwrap_err();
            assert_eq!((error.kind(), error.lock_name()), (ErrorKind::AlreadyHeld, Some(&*name)));
            assert!(took <= SCHEDULING, "{took:?}");
        }
        assert!(alone.is_held() && read.hold_count() == 1 && write.hold_count() == 0);
    }
    // Another thread of the same client only waits.
    elsewhere(|| assert!(write.try_lock_for(ms(50)).unwrap().is_none()));
    beside_others.unlock().unwrap();
    assert_eq!(kind_of(write.try_lock()), ErrorKind::AlreadyHeld, "also for a single reader");
    alone.unlock().unwrap();
    let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
    let again = write.lock().unwrap();
    assert!(!is_free(&other_write), "a writer that reads may take the write side again");
    drop((writing, again));
    assert_eq!(kind_of(write.lock()), ErrorKind::AlreadyHeld, "not after the writer has stepped down");
    drop(reading);
    assert!(is_free(&other_write));
}

#[test]
fn stepping_down_from_writing_lets_waiting_readers_in_at_once() {
    for same_client in [false, true] {
        let server = RedisServer::start();
        let ours = Client::connect(&server.url()).unwrap();
        let theirs = if same_client { ours.clone() } else { Client::connect(&server.url()).unwrap() };
        let ((read, write), other_read) = (sides(&ours, "job"), sides(&theirs, "job").0);
        let mut late: Vec<Duration> = (0..7)
            .map(|_| {
                let (writing, _reading) = (write.lock().unwrap(), read.lock().unwrap());
                thread::scope(|scope| {
                    let waiters = [(); 3].map(|()| {
                        scope.spawn(|| {
                            let _guard = other_read.lock().unwrap();
                            Instant::now()
                        })
                    });
                    eventually(SOON, "they listen", || server.subscribers(&channel("job")) > 0);
                    await_sleepers(&server);
                    let stepped = Instant::now();
                    writing.unlock().unwrap();
                    waiters.map(|waiter| joined(waiter).saturating_duration_since(stepped)).into_iter().max().unwrap()
                })
            })
            .collect();
        late.sort();
        // A waiter asks again each second: a faster grant proves a wake-up.
        assert!(late[3] <= ms(250), "half of the wake-ups took longer than {:?}", late[3]);
        assert!(late[6] <= SCHEDULING, "{:?}", late[6]);
    }
}

#[test]
fn one_release_of_a_writer_lets_all_readers_in() {
    const READERS: usize = 24;
    let server = RedisServer::start();
    let [ours, theirs, writer] = [(); 3].map(|()| Client::connect(&server.url()).unwrap());
    let write = sides(&writer, "job").1;
    let mut late: Vec<Duration> = (0..5)
        .map(|_| {
            let writing = write.lock().unwrap();
            let inside = AtomicI64::new(0);
            thread::scope(|scope| {
                let readers: Vec<_> = (0..READERS)
                    .map(|number| {
                        let read = sides(if number % 2 == 0 { &ours } else { &theirs }, "job").0;
                        let inside = &inside;
                        scope.spawn(move || {
                            let guard = read.lock().unwrap();
                            let granted = Instant::now();
                            // All readers are granted before the first reader releases.
                            inside.fetch_add(1, Ordering::SeqCst);
                            eventually(SOON, "all are in", || inside.load(Ordering::SeqCst) == READERS as i64);
                            guard.unlock().unwrap();
                            granted
                        })
                    })
                    .collect();
                eventually(SOON, "both clients listen", || server.subscribers(&channel("job")) == 2);
                await_sleepers(&server);
                let released = Instant::now();
                writing.unlock().unwrap();
                let last = readers.into_iter().map(joined).max().unwrap();
                last.saturating_duration_since(released)
            })
        })
        .collect();
    late.sort();
    assert!(late[2] <= ms(250), "half of the time the last reader took longer than {:?}", late[2]);
    assert!(late[4] <= SCHEDULING, "{:?}", late[4]);
}

#[test]
fn the_last_reader_to_leave_wakes_a_waiting_writer_at_once() {
    let (ours, theirs) = (client(), client());
    let mut late: Vec<Duration> = (0..7)
        .map(|_| {
            let (server, name) = (RedisServer::shared(), fresh("rw"));
            let (read, write) = (sides(&ours, &name).0, sides(&theirs, &name).1);
            let guards = [read.owned().lock().unwrap(), read.owned().lock().unwrap(), read.owned().lock().unwrap()];
            thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let _guard = write.lock().unwrap();
                    Instant::now()
                });
                eventually(SOON, "it listens", || server.subscribers(&channel(&name)) > 0);
                let [first, second, last] = guards;
                first.unlock().unwrap();
                second.unlock().unwrap();
                assert!(!writer.is_finished());
                let released = Instant::now();
                last.unlock().unwrap();
                joined(writer).saturating_duration_since(released)
            })
        })
        .collect();
    late.sort();
    assert!(late[3] <= ms(250), "half of the wake-ups took longer than {:?}", late[3]);
    assert!(late[6] <= SCHEDULING, "{:?}", late[6]);
}

#[test]
fn deaf_waiters_of_both_sides_are_served_within_a_second() {
    let server = RedisServer::start();
    let [ours, theirs] = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
    let (own_read, own_write) = sides(&ours, "job");
    let (read, write) = sides(&theirs, "job");
    for (held, wanted) in [(&own_write, &read), (&own_write, &write), (&own_read, &write)] {
        let guard = held.lock().unwrap();
        let becomes_deaf = || {
            eventually(SOON, "it listens", || server.subscribers(&channel("job")) > 0);
            server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        };
        let waited = handed_over(wanted, becomes_deaf, || guard.unlock().unwrap());
        assert!(waited <= ms(1_000) + SCHEDULING, "{waited:?}");
    }
}

#[test]
fn readers_do_not_wait_behind_a_waiting_writer() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (ours, theirs) = (client(), client());
    let (read, write) = sides(&ours, &name);
    let reading = read.lock().unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| write.lock().unwrap().unlock().unwrap());
        eventually(SOON, "it listens", || server.subscribers(&channel(&name)) > 0);
        for read in [&read, &sides(&theirs, &name).0] {
            let (took, guard) = timed(|| elsewhere(|| read.try_lock_for(SOON).unwrap().map(|guard| guard.is_held())));
            assert!(guard == Some(true) && took <= SCHEDULING, "{took:?}");
        }
        let inner = read.lock().unwrap();
        assert!(!writer.is_finished());
        drop((inner, reading));
        joined(writer);
    });
}

/// Waits until no requests come: the waiters then sleep, for a second at most.
fn await_sleepers(server: &RedisServer) {
    let mut before = 0;
    let mut quiet = 0;
    eventually(SOON, "nobody asks", || {
        let asked = server.calls_of("evalsha");
        quiet = if asked == before { quiet + 1 } else { 0 };
        before = asked;
        quiet == 10
    });
}
