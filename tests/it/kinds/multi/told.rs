//! What events and lists tell of a group.

use std::sync::Arc;
use std::thread;

use lockson::{Guard, Lock, LockAcquired, LockLost, LockReleased, Observer, WaitGivenUp, WaitStarted};
use lockson_harness::{RedisServer, eventually};
use parking_lot::Mutex;

use super::holds::{assert_all_free, multi};
use super::names;
use crate::support::{SOON, brisk, client, joined, ms};

/// The group of each event, by the event and the name of the lock.
#[derive(Clone, Debug, Default)]
struct Groups(Arc<Mutex<Vec<Told>>>);

type Told = (String, Option<String>);

impl Groups {
    fn note(&self, event: &str, name: &str, group: Option<&str>) {
        self.0.lock().push((format!("{event} {name}"), group.map(str::to_owned)));
    }

    fn take(&self) -> Vec<Told> {
        let mut told = std::mem::take(&mut *self.0.lock());
        told.sort();
        told
    }
}

impl Observer for Groups {
    fn waiting(&self, event: &WaitStarted) {
        self.note("waiting", event.name(), event.group());
    }

    fn gave_up(&self, event: &WaitGivenUp) {
        self.note("gave up", event.name(), event.group());
    }

    fn acquired(&self, event: &LockAcquired) {
        self.note("acquired", event.name(), event.group());
    }

    fn released(&self, event: &LockReleased) {
        self.note("released", event.name(), event.group());
    }

    fn lost(&self, event: &LockLost) {
        self.note("lost", event.name(), event.group());
    }
}

#[test]
fn events_of_members_name_their_group() {
    let (groups, [one, two]) = (Groups::default(), names());
    let client = brisk(RedisServer::shared()).observer(groups.clone()).connect().unwrap();
    let multi = Lock::multi([client.get_lock(&one), client.get_lock(&two)]);
    let told = |events: &[(&str, &String)], group: Option<&str>| -> Vec<Told> {
        let told = |(event, name): &(&str, &String)| (format!("{event} {name}"), group.map(str::to_owned));
        events.iter().map(told).collect()
    };
    let guard = multi.lock().unwrap();
    assert_eq!(groups.take(), told(&[("acquired", &one), ("acquired", &two)], Some(multi.name())));
    guard.unlock().unwrap();
    assert_eq!(groups.take(), told(&[("released", &one), ("released", &two)], Some(multi.name())));
    client.get_lock(&one).lock().unwrap().unlock().unwrap();
    assert_eq!(groups.take(), told(&[("acquired", &one), ("released", &one)], None));

    let theirs = crate::support::client().get_lock(&two).owned().lock().unwrap();
    assert!(multi.try_lock_for(ms(100)).unwrap().is_none());
    assert_eq!(groups.take(), told(&[("gave up", &two), ("waiting", &two)], Some(multi.name())));
    theirs.unlock().unwrap();

    let guard = multi.lock().unwrap();
    groups.take();
    assert!(client.get_lock(&two).force_unlock().unwrap());
    eventually(SOON, "the observer is told", || groups.0.lock().len() == 1);
    assert_eq!(groups.take(), told(&[("lost", &two)], Some(multi.name())));
    drop(guard);
}

#[test]
fn a_client_lists_members_and_the_one_that_is_waited_for() {
    let (client, names) = (client(), names::<3>());
    let multi = multi(&client, &names);
    let guard: Guard = multi.lock().unwrap();
    let listed: Vec<String> = client.held().iter().map(|held| held.name().to_owned()).collect();
    assert_eq!(listed, names);
    guard.unlock().unwrap();
    let theirs = crate::support::client().get_lock(&names[1]).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| multi.lock().map(drop));
        eventually(SOON, "it waits", || !client.waiting().is_empty());
        let waiting = client.waiting();
        assert_eq!((waiting.len(), waiting[0].name()), (1, &*names[1]));
        assert_eq!(client.held(), [], "a waiter holds nothing");
        theirs.unlock().unwrap();
        joined(waiter).unwrap();
    });
    assert_eq!(client.waiting(), []);
    assert_all_free(&client, &names);
}
