//! The semaphore: permits as in Redisson, in order within a process, and never more than were set.

mod state;
mod waiting;

use lockson::Semaphore;

use crate::support::prelude::*;

/// A semaphore with this number of permits.
pub(super) fn semaphore_with(client: &Client, permits: u32) -> Semaphore {
    let semaphore = client.get_semaphore(fresh("semaphore"));
    assert!(semaphore.set_permits_once(permits).unwrap());
    semaphore
}

/// The number of free permits.
#[track_caller]
pub(super) fn free(semaphore: &Semaphore) -> i64 {
    semaphore.available().unwrap()
}

#[test]
fn zero_permits_are_given_back_and_never_taken() {
    let semaphore = client().get_semaphore(fresh("semaphore"));
    let takes = [semaphore.acquire(0).map(Some), semaphore.try_acquire(0), semaphore.try_acquire_for(0, SOON)];
    assert_eq!(takes.map(kind_of), [ErrorKind::BadInput; 3]);
    semaphore.release(0).unwrap();
    assert!(!semaphore.release_if_exists(0).unwrap());
    assert_eq!(free(&semaphore), 0);
}

#[test]
fn permits_are_set_once() {
    let semaphore = client().get_semaphore(fresh("semaphore"));
    assert!(semaphore.set_permits_once(10).unwrap());
    assert!(!semaphore.set_permits_once(15).unwrap());
    assert_eq!(free(&semaphore), 10);
    assert!(semaphore.delete().unwrap() && !semaphore.delete().unwrap());
    assert!(semaphore.set_permits_once_for(1, ms(300)).unwrap());
    assert_eq!(free(&semaphore), 1);
    thread::sleep(ms(400));
    assert_eq!(free(&semaphore), 0);
    assert!(semaphore.set_permits_once(2).unwrap(), "the old one has expired");
}

#[test]
fn permits_are_added_while_others_are_out() {
    let semaphore = semaphore_with(&client(), 10);
    let ten = semaphore.acquire(10).unwrap();
    assert_eq!(free(&semaphore), 0);
    semaphore.add_permits(4).unwrap();
    assert_eq!(free(&semaphore), 4);
    ten.release().unwrap();
    assert_eq!(free(&semaphore), 14);
    semaphore.acquire(5).unwrap().leave_to_release();
    assert_eq!(free(&semaphore), 9);
}

#[test]
fn permits_are_taken_away_while_others_are_out() {
    let semaphore = semaphore_with(&client(), 10);
    let ten = semaphore.acquire(10).unwrap();
    semaphore.add_permits(-5).unwrap();
    assert_eq!(free(&semaphore), -5);
    assert_eq!(semaphore.drain().unwrap(), 0);
    assert_eq!(free(&semaphore), -5, "a debt is not forgiven");
    assert!(semaphore.try_acquire(1).unwrap().is_none());
    ten.release().unwrap();
    assert_eq!(free(&semaphore), 5);
    let five = semaphore.acquire(5).unwrap();
    assert_eq!((free(&semaphore), five.count()), (0, 5));
}

#[test]
fn a_waiter_for_two_is_served_by_added_permits() {
    let semaphore = client().get_semaphore(fresh("semaphore"));
    semaphore.add_permits(1).unwrap();
    let two = {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| semaphore.acquire(2).unwrap());
            thread::sleep(ms(100));
            semaphore.acquire(1).unwrap().leave_to_release();
            semaphore.release(1).unwrap();
            thread::sleep(ms(100));
            assert!(!waiter.is_finished());
            let (took, two) = timed(|| {
                semaphore.add_permits(1).unwrap();
                joined(waiter)
            });
            assert!(took < ms(500) + STANDSTILLS, "woken by the message, not by the clock: {took:?}");
            two
        })
    };
    assert_eq!(free(&semaphore), 0);
    two.release().unwrap();
}

#[test]
fn a_release_without_permits_makes_the_semaphore() {
    let semaphore = client().get_semaphore(fresh("semaphore"));
    assert!(!semaphore.release_if_exists(1).unwrap());
    assert_eq!(free(&semaphore), 0);
    semaphore.release(1).unwrap();
    assert_eq!(free(&semaphore), 1);
    assert!(semaphore.release_if_exists(2).unwrap());
    assert_eq!(free(&semaphore), 3);
    assert_eq!(semaphore.drain().unwrap(), 3);
    assert_eq!((free(&semaphore), semaphore.drain().unwrap()), (0, 0));
}

#[test]
fn dropped_permits_are_given_back() {
    let semaphore = semaphore_with(&client(), 10);
    drop(semaphore.acquire(1).unwrap());
    assert_eq!(free(&semaphore), 10);
    let five = semaphore.acquire(5).unwrap();
    elsewhere(|| five.release().unwrap());
    assert_eq!(free(&semaphore), 10);
}

#[test]
fn an_impossible_request_is_refused_unsent() {
    let client = client();
    let semaphore = client.get_semaphore(fresh("semaphore"));
    let too_many = u32::MAX / 2 + 1;
    assert_eq!(kind_of(semaphore.acquire(too_many)), ErrorKind::BadInput);
    assert_eq!(kind_of(semaphore.release(too_many)), ErrorKind::BadInput);
    assert_eq!(kind_of(semaphore.set_permits_once(too_many)), ErrorKind::BadInput);
    for permits in [i64::from(too_many), -i64::from(too_many), i64::MIN] {
        assert_eq!(kind_of(semaphore.add_permits(permits)), ErrorKind::BadInput);
    }
    assert_eq!(kind_of(semaphore.set_permits_once_for(1, Duration::ZERO)), ErrorKind::BadInput);
    assert_eq!(kind_of(client.get_semaphore("").acquire(1)), ErrorKind::BadInput);
    let error = semaphore.acquire(too_many).unwrap_err();
    assert_eq!(error.lock_name(), Some(semaphore.name()));
    assert_eq!(free(&semaphore), 0);
}
