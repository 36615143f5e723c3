//! Waiters for permits: the waiter that a message wakes, the number of questions, and the ends of a wait.

use std::sync::mpsc::channel;
use std::thread;

use lockson::{Cancel, Client, ErrorKind};
use lockson_harness::{RedisServer, eventually};

use crate::support::{SOON, STANDSTILLS, client, fresh, joined, kind_of, median, ms, timed};

/// Waits until so many threads of the client sleep.
fn wait_for_waiters(client: &Client, waiters: usize) {
    eventually(SOON, "the threads wait", || client.waiting().len() == waiters);
}

#[test]
fn waiters_of_one_process_are_served_in_order() {
    const WAITERS: usize = 200;
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let calls = client.get_permit_expirable_semaphore("calls");
    calls.set_permits(1).unwrap();
    let held = calls.acquire(1).unwrap();
    let (served, order) = channel();
    thread::scope(|scope| {
        for index in 0..WAITERS {
            let (calls, served) = (&calls, served.clone());
            scope.spawn(move || {
                let permit = calls.acquire(1).unwrap();
                served.send(index).unwrap();
                permit.release().unwrap();
            });
            wait_for_waiters(&client, index + 1);
        }
        let before = server.calls_of("evalsha");
        assert!(before < WAITERS as u64 / 2, "only the first waiter asks, but there were {before} questions");
        held.release().unwrap();
        let all: Vec<usize> = order.iter().take(WAITERS).collect();
        assert!(all.iter().copied().eq(0..WAITERS), "served out of order: {all:?}");
        let releases = WAITERS as u64 + 1;
        let questions = server.calls_of("evalsha") - before - releases;
        assert!(questions <= 3 * releases, "{questions} questions for {releases} releases");
    });
    assert_eq!(calls.available().unwrap(), 1);
}

#[test]
fn a_waiter_for_one_passes_a_waiter_for_two() {
    let client = client();
    let took = median(5, |_| {
        let calls = client.get_permit_expirable_semaphore(fresh("permits"));
        calls.set_permits(0).unwrap();
        thread::scope(|scope| {
            let two = scope.spawn(|| calls.acquire(2).unwrap());
            wait_for_waiters(&client, 1);
            let one = scope.spawn(|| calls.acquire(1).unwrap());
            wait_for_waiters(&client, 2);
            let (took, one) = timed(|| {
                calls.add_permits(1).unwrap();
                joined(one)
            });
            assert!(!two.is_finished());
            calls.add_permits(1).unwrap();
            one.release().unwrap();
            assert_eq!(joined(two).ids().len(), 2);
            took
        })
    });
    assert!(took < ms(300) + STANDSTILLS, "{took:?}");
}

#[test]
fn a_waiter_that_gives_up_passes_its_wake_up_on() {
    let client = client();
    let calls = client.get_permit_expirable_semaphore(fresh("permits"));
    calls.set_permits(0).unwrap();
    for round in 0..20 {
        let cancel = Cancel::new();
        thread::scope(|scope| {
            let impatient = scope.spawn(|| calls.with_cancel(&cancel).acquire(1));
            wait_for_waiters(&client, 1);
            let patient = scope.spawn(|| calls.acquire(1).unwrap());
            wait_for_waiters(&client, 2);
            let (took, permit) = timed(|| {
                calls.add_permits(1).unwrap();
                cancel.cancel();
                match joined(impatient) {
                    Ok(permit) => {
                        permit.release().unwrap();
                        joined(patient)
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Cancelled);
                        joined(patient)
                    }
                }
            });
            assert!(took < ms(900) + STANDSTILLS, "round {round}: the wake-up was lost, {took:?}");
            permit.keep_until_expiry();
        });
    }
}

#[test]
fn permits_are_waited_for_beside_plain_permits_of_the_name() {
    // A semaphore of the name has no channel of its own: both listen to one.
    let client = client();
    let name = fresh("permits");
    let (expiring, plain) = (client.get_permit_expirable_semaphore(&name), client.get_semaphore(&name));
    expiring.set_permits(0).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| expiring.acquire(1).map(lockson::ExpiringPermits::release));
        let second = scope.spawn(|| plain.acquire(1).map(lockson::Permits::release));
        wait_for_waiters(&client, 2);
        expiring.add_permits(1).unwrap();
        joined(first).unwrap().unwrap();
        joined(second).unwrap().unwrap();
    });
    assert_eq!(kind_of(expiring.try_acquire(0)), ErrorKind::BadInput);
    assert_eq!(expiring.available().unwrap(), 1);
}
