//! Many readers or one writer, and the change from each side to the other.

use std::sync::atomic::AtomicI64;

use super::{channel, sides};
use crate::support::prelude::*;

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
            timed(|| ours.get_read_write_lock(&name).write().lock().map(drop)),
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
