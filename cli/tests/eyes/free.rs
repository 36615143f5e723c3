//! One part of a lock is freed, and other parts stay.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use lockson::Client;
use lockson_harness::{RedisServer, eventually};
use serde_json::json as value;

use super::table::SOON;
use super::{code, json, lockson};

#[test]
fn one_owner_is_freed_and_others_stay() {
    let server = RedisServer::start();
    let (url, client) = (server.url(), Client::connect(&server.url()).unwrap());
    let readers = [(); 2].map(|()| client.get_read_write_lock("prices").read().owned().lock().unwrap());
    let other = Client::connect(&url).unwrap().get_read_write_lock("prices").read().lock().unwrap();
    let freed = lockson(&url, &["free", "prices", "--owner", other.owner(), "--reason", "test"]);
    assert_eq!(code(&freed), 0);
    let told = String::from_utf8(freed.stdout).unwrap();
    assert!(told.contains(other.owner()) && told.matches("was held by").count() == 1, "{told}");
    eventually(SOON, "the freed reader is told", || other.lost().is_some());
    assert!(readers.iter().all(|reader| reader.is_held()));
    assert_eq!(json(&lockson(&url, &["show", "prices", "--json"]))["holder_count"], 2);
}

#[test]
fn an_owner_of_a_group_is_freed_by_its_value() {
    let server = RedisServer::start();
    let guard = Client::connect(&server.url()).unwrap().get_group_lock("seats", ["a1"]).lock().unwrap();
    let shown = json(&lockson(&server.url(), &["show", "seats", "--json"]));
    let owner = shown["holders"][0]["owner"].as_str().unwrap();
    let freed = lockson(&server.url(), &["free", "seats", "--owner", owner, "--reason", "test"]);
    assert_eq!(code(&freed), 125);
    assert!(String::from_utf8_lossy(&freed.stderr).contains("give --value VALUE"), "{freed:?}");
    assert!(guard.is_held());
}

#[test]
fn more_permits_than_are_listed_are_all_freed() {
    let server = RedisServer::start();
    let permits = Client::connect(&server.url()).unwrap().get_permit_expirable_semaphore("calls");
    permits.set_permits_once(1_001).unwrap();
    for number in [1_000, 1] {
        permits.acquire(number).unwrap().keep_until_expiry();
    }
    let freed = json(&lockson(&server.url(), &["free", "calls", "--reason", "test", "--json"]));
    assert_eq!((&freed["freed"], &freed["before"]["holder_count"]), (&value!(true), &value!(1_001)));
    assert_eq!(permits.available().unwrap(), 1_001);
}

#[test]
fn taken_permits_are_no_semaphore_and_no_latch() {
    let server = RedisServer::start();
    let permits = Client::connect(&server.url()).unwrap().get_permit_expirable_semaphore("calls");
    permits.set_permits_once(4).unwrap();
    let taken = permits.acquire(2).unwrap();
    for options in [&["--permits", "1"][..], &["--latch"]] {
        let freed = lockson(&server.url(), &[&["free", "calls", "--reason", "test"], options].concat());
        assert_eq!((code(&freed), freed.stdout.len()), (125, 0), "{freed:?}");
        assert!(String::from_utf8_lossy(&freed.stderr).contains("give --permit ID"), "{freed:?}");
    }
    assert_eq!(permits.available().unwrap(), 2);
    taken.release().unwrap();
}

#[test]
fn a_permit_that_was_the_last_one_is_nothing_to_free() {
    let server = RedisServer::start();
    let permits = Client::connect(&server.url()).unwrap().get_permit_expirable_semaphore("calls");
    permits.set_permits_once(1).unwrap();
    let taken = permits.acquire(1).unwrap();
    let id = taken.ids()[0].to_string();
    taken.release().unwrap();
    for option in ["--permit", "--owner"] {
        let freed = lockson(&server.url(), &["free", "calls", option, &id, "--reason", "test"]);
        assert_eq!(code(&freed), 1, "{freed:?}");
        assert_eq!(String::from_utf8_lossy(&freed.stdout), "nothing to free at calls: test\n");
    }
    assert_eq!(permits.available().unwrap(), 1);
}

#[test]
fn an_owner_beyond_the_list_is_freed_and_told() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let read = || client.get_read_write_lock("prices").read().owned().lock().unwrap();
    let readers: Vec<_> = (0..1_001).map(|_| read()).collect();
    let shown = json(&lockson(&server.url(), &["show", "prices", "--json"]));
    let listed: Vec<_> = shown["holders"].as_array().unwrap().iter().map(|holder| holder["owner"].clone()).collect();
    let reader = readers.iter().find(|reader| !listed.contains(&reader.owner().into())).unwrap();
    let freed = lockson(&server.url(), &["free", "prices", "--owner", reader.owner(), "--reason", "test"]);
    assert_eq!(code(&freed), 0, "{freed:?}");
    let told = String::from_utf8(freed.stdout).unwrap();
    assert!(told.starts_with(&format!("prices is not held by {} now: test\n", reader.owner())), "{told}");
    eventually(SOON, "the freed reader is told", || reader.lost().is_some());
}

#[test]
fn a_latch_is_never_closed_for_long_to_be_opened() {
    let server = RedisServer::start();
    let latch = Client::connect(&server.url()).unwrap().get_count_down_latch("gate");
    latch.set_count_once(3).unwrap();
    server.run(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    assert_eq!(code(&lockson(&server.url(), &["free", "gate", "--latch", "--reason", "test"])), 0);
    assert_eq!(latch.count().unwrap(), 0);
    let mut connection = TcpStream::connect(server.address()).unwrap();
    connection.write_all(b"SLOWLOG GET 100\r\nQUIT\r\n").unwrap();
    let mut log = String::new();
    connection.read_to_string(&mut log).unwrap();
    // The count that is set for Java's waiters, and its time to live.
    assert!(log.contains("\r\n1\r\n$5\r\n10000\r\n"), "{log}");
}
