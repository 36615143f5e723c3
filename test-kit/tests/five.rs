//! The five tests that every service with locks should have; the README shows them.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lockson::{ErrorKind, Lock, Permits, Result, Semaphore};
use lockson_test::TestRedis;

/// A part of a service: exports 10,000 parts while it holds the lock. `None` if another machine is at it.
fn export(lock: &Lock, mut write: impl FnMut(u32)) -> Result<Option<u32>> {
    lock.try_run_for(Duration::from_millis(50), |guard| {
        let parts = (0..10_000).take_while(|_| guard.is_held());
        parts.map(&mut write).count() as u32
    })
}

/// Another part: sells one of the tickets, if there is one.
fn sell(tickets: &Semaphore) -> Result<bool> {
    Ok(tickets.try_acquire(1)?.map(Permits::leave_to_release).is_some())
}

#[test]
fn a_lost_lock_stops_the_work() {
    let redis = TestRedis::start();
    let lock = redis.client().get_lock("export");
    let mut written = 0;
    let outcome = export(&lock, |part| {
        if part == 2 {
            redis.delete("export");
        }
        thread::sleep(Duration::from_millis(1));
        written = part;
    });
    assert!(outcome.unwrap_err().is_lost());
    assert!(written < 9_999, "the loss is told within milliseconds");
}

#[test]
fn a_busy_lock_is_no_error() {
    let redis = TestRedis::start();
    let rival = redis.rival();
    let _guard = rival.get_lock("export").lock().unwrap();
    let lock = redis.client().get_lock("export");
    assert_eq!(export(&lock, |_| panic!("two machines at work")).unwrap(), None);
}

#[test]
fn an_unreachable_redis_is_an_error_in_time() {
    let redis = TestRedis::start();
    let lock = redis.client().get_lock("export");
    redis.down();
    assert!(export(&lock, |_| panic!("without a lock")).unwrap_err().is_transient());
    redis.heal();
    assert_eq!(export(&lock, |_| {}).unwrap(), Some(10_000));
}

#[test]
fn a_lost_answer_has_its_effect_once() {
    let redis = TestRedis::start();
    let tickets = redis.client().get_semaphore("tickets");
    tickets.set_permits_once(10).unwrap();
    let answer = redis.lose_answer("tickets");
    assert!(sell(&tickets).unwrap());
    assert!(answer.is_lost());
    assert_eq!(tickets.available().unwrap(), 9);
}

#[test]
fn a_shutdown_gives_locks_back() {
    let redis = TestRedis::start();
    let client = redis.client();
    let lock = client.get_lock("export");
    let (began, begun) = channel();
    let (go_on, may_go_on) = channel();
    thread::scope(|scope| {
        let lock = &lock;
        let holder = scope.spawn(move || {
            export(lock, |part| {
                if part == 0 {
                    began.send(()).unwrap();
                    may_go_on.recv().unwrap();
                }
            })
        });
        begun.recv().unwrap();
        let waiter = scope.spawn(|| lock.lock().map(drop));
        client.stop_waiting(); // as at SIGTERM
        assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
        go_on.send(()).unwrap();
        assert_eq!(holder.join().unwrap().unwrap(), Some(10_000), "the holder finishes");
    });
    client.close();
    assert_eq!(redis.keys(), [""; 0]);
}

#[test]
fn the_readme_shows_these_tests() {
    let shown =
        include_str!("five.rs").split_once("\n\n").unwrap().1.split_once("\n\n#[test]\nfn the_readme").unwrap().0;
    assert!(include_str!("../README.md").contains(shown), "copy this file into the README");
}
