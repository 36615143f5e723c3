//! What events and lists tell of a group.

use super::holds::{assert_all_free, multi};
use super::names;
use crate::support::prelude::*;

type Told = (String, Option<String>);

#[test]
fn events_of_members_name_their_group() {
    let (groups, [one, two]) = (Events::default(), names());
    let client = brisk(RedisServer::shared()).observer(groups.clone()).connect().unwrap();
    let multi = Lock::multi([client.get_lock(&one), client.get_lock(&two)]);
    let told = |events: &[(&str, &String)], group: Option<&str>| -> Vec<Told> {
        let told = |(event, name): &(&str, &String)| (format!("{event} {name}"), group.map(str::to_owned));
        events.iter().map(told).collect()
    };
    let guard = multi.lock().unwrap();
    assert_eq!(groups.take_with_groups(), told(&[("acquired", &one), ("acquired", &two)], Some(multi.name())));
    guard.unlock().unwrap();
    assert_eq!(groups.take_with_groups(), told(&[("released", &one), ("released", &two)], Some(multi.name())));
    client.get_lock(&one).lock().unwrap().unlock().unwrap();
    assert_eq!(groups.take_with_groups(), told(&[("acquired", &one), ("released", &one)], None));

    let theirs = crate::support::client().get_lock(&two).owned().lock().unwrap();
    assert!(multi.try_lock_for(ms(100)).unwrap().is_none());
    assert_eq!(groups.take_with_groups(), told(&[("gave up", &two), ("waiting", &two)], Some(multi.name())));
    theirs.unlock().unwrap();

    let guard = multi.lock().unwrap();
    groups.take_with_groups();
    assert!(client.get_lock(&two).force_unlock().unwrap());
    eventually(SOON, "the observer is told", || groups.losses_of(&two) == 1);
    assert_eq!(groups.take_with_groups(), told(&[("lost: Gone", &two)], Some(multi.name())));
    drop(guard);
}

#[test]
fn several_locks_tell_one_end_for_all() {
    let (events, [one, two]) = (Events::default(), names());
    let client = brisk(RedisServer::shared()).observer(events.clone()).connect().unwrap();
    let multi = Lock::multi([client.get_lock(&one), client.get_lock(&two)]);
    let theirs = crate::support::client().get_lock(&two).owned().lock().unwrap();
    assert!(multi.try_lock().unwrap().is_none());
    assert_eq!(events.take_ends(), [format!("multi multi({one}, {two}) busy")]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(multi.lock().unwrap()));
        eventually(SOON, "it waits", || !client.waiting().is_empty());
        theirs.unlock().unwrap();
        joined(waiter);
    });
    assert_eq!(events.take_ends(), [format!("waited {two}"), format!("multi multi({one}, {two}) acquired")]);
    let outer = multi.lock().unwrap();
    let inner = multi.lock().unwrap();
    assert_eq!(events.take_ends().len(), 1, "a re-entry is no take");
    inner.unlock().unwrap();
    outer.unlock().unwrap();
    client.get_group_lock(&one, ["a", "b"]).lock().unwrap().unlock().unwrap();
    assert_eq!(events.take_ends(), [format!("group group({one}[a], {one}[b]) acquired")]);
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
