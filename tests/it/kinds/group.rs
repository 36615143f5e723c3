//! Group locks: several values of one group in one request.

mod like_redisson;
mod rights;

use std::collections::HashSet;

use lockson::LockKind;

use crate::support::prelude::*;

#[test]
fn values_of_a_group_are_held_side_by_side() {
    let (client, group) = (client(), fresh("group"));
    let lock = |values: &[&str]| client.get_group_lock(&group, values);
    let pair = lock(&["one", "two"]).lock().unwrap();
    let is_busy = |values: &[&str]| elsewhere(|| lock(values).try_lock().unwrap().map(drop).is_none());
    assert!(is_busy(&["two", "three"]) && is_busy(&["one"]) && !is_busy(&["three"]));
    // The thread re-enters the value that it holds, and takes the other one.
    let overlapping = lock(&["two", "three"]).try_lock().unwrap().expect("three is free");
    assert!(is_busy(&["three"]));
    assert_eq!((lock(&["two"]).hold_count(), lock(&["three"]).hold_count()), (2, 1));
    assert!(
        client.held().iter().filter(|held| held.name().starts_with(&group)).all(|held| held.kind() == LockKind::Group)
    );
    pair.unlock().unwrap();
    assert!(!is_busy(&["one"]) && is_busy(&["two"]));
    overlapping.unlock().unwrap();
    assert!(fields(RedisServer::shared(), &group).is_empty());
}

/// The time for clocks that differ is in the key's own time to live, and not twice in the answers.
#[test]
fn a_value_is_told_to_end_no_later_than_its_key() {
    let (server, group) = (RedisServer::shared(), fresh("group"));
    let skewed = Client::builder(&server.url()).peer_clock_skew(ms(20_000)).connect().unwrap();
    let lock = skewed.get_group_lock(&group, ["hall"]).with_lease(ms(10_000));
    lock.lock().unwrap().keep_until_expiry();
    let told = skewed.inspect(&group).unwrap().holders()[0].remaining().unwrap();
    for left in [lock.remaining_time_to_live().unwrap().unwrap(), told] {
        assert!(left > ms(29_000) && left <= ms(30_000), "{left:?}");
    }
}

#[test]
fn a_take_and_a_release_are_one_request_each() {
    let (server, client) = alone();
    let values: Vec<String> = (0..100).map(|value| format!("value {value}")).collect();
    let lock = client.get_group_lock("group", &values);
    lock.lock().unwrap().unlock().unwrap(); // the scripts are known now
    let before = server.calls_of("evalsha");
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(server.calls_of("evalsha") - before, 2);
}

#[test]
fn values_that_expired_long_ago_are_cleared_away() {
    let (server, group) = (RedisServer::shared(), fresh("group"));
    let client = Client::connect(&server.url()).unwrap();
    let kept = client.get_group_lock(&group, ["kept"]).lock().unwrap();
    let names = || fields(server, &group).into_iter().map(|(name, _)| name);
    let own: Vec<String> = names().collect();
    for number in 0..300 {
        let (value, owner) = (format!("{number:0>22}"), format!("0d7a7c52-5f1b-4a58-8b16-6f3c1a52b3aa:{number}"));
        let [ends, count] = ["expire_time", "lock_count"].map(|end| format!("{value}:{owner}:{end}"));
        server.run(&["HSET", &group, &value, &owner, &ends, "1700000000000", &count, "1"]);
    }
    for number in 0..1_000 {
        client.get_group_lock(&group, [number.to_string()]).lock().unwrap().unlock().unwrap();
    }
    let left: HashSet<String> = names().collect();
    assert!(left.len() < 300, "{} fields of 900", left.len());
    assert!(own.iter().all(|name| left.contains(name)) && kept.is_held(), "{own:?} {left:?}");
    kept.unlock().unwrap();
}

#[test]
fn no_value_and_too_many_are_refused() {
    let (client, group) = (client(), fresh("group"));
    assert_eq!(kind_of(client.get_group_lock(&group, [""; 0]).lock()), ErrorKind::BadInput);
    let many = (0..1_001).map(|value| value.to_string());
    assert_eq!(kind_of(client.get_group_lock(&group, many).lock()), ErrorKind::BadInput);
}
