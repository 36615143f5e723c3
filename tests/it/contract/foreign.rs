//! Keys that are no lock: nothing takes, asks or frees them as one; and owners of other clients, which are.

use super::for_every_single_kind;
use crate::support::listeners;
use crate::support::prelude::*;

/// Hashes that are no lock; some look like one at the first glance.
const DATA: &[&[&str]] = &[
    &["customer", "7", "total", "99"],
    &["only", "1"],
    &["order:17:items", "2"],
    &["session:4f2a9c", "1"],
    &["mode", "read", "order:17:items", "2"],
    &["mode", "write", "order:17:items", "2"],
    &["item:1", "4", "item:2", "5"],
    &["theme", "dark", "mode", "auto", "lang", "en"],
    &["theme", "dark", "mode", "read", "lang", "en"],
    &["theme", "dark", "mode", "write", "lang", "en"],
];

#[test]
fn data_is_neither_taken_nor_asked_nor_freed_as_a_lock() {
    let server = RedisServer::shared();
    for_every_single_kind(|kind| {
        for data in DATA {
            let lock = kind.get_lock(&client(), &kind.fresh());
            server.run(&[&["HSET", lock.name()], *data].concat());
            let before = fields(server, lock.name());
            assert_eq!(kind_of(lock.try_lock_for(SOON)), ErrorKind::OtherKind, "{data:?}");
            assert_eq!(kind_of(lock.try_lock()), ErrorKind::OtherKind, "{data:?}");
            // A token lock is no hash.
            if !kind.label.starts_with("token") {
                assert_eq!(kind_of(lock.is_locked()), ErrorKind::OtherKind, "{data:?}");
                assert_eq!(kind_of(lock.holder()), ErrorKind::OtherKind, "{data:?}");
                assert_eq!(kind_of(lock.force_unlock()), ErrorKind::OtherKind, "{data:?}");
                assert_eq!(kind_of(lock.force_unlock_owner(data[0])), ErrorKind::OtherKind, "{data:?}");
            } else {
                let _ = lock.force_unlock_owner(data[0]);
                let _ = lock.force_unlock();
                assert_eq!(kind_of(lock.is_locked()), ErrorKind::Refused, "{data:?}");
                assert_eq!(kind_of(lock.holder()), ErrorKind::Refused, "{data:?}");
            }
            assert_eq!(fields(server, lock.name()), before);
        }
    });
}

/// Some of its fields look like owners; by chance a script may see none of the others.
#[test]
fn data_with_a_mode_and_numbers_is_never_a_lock() {
    let (server, name) = (RedisServer::shared(), fresh("foreign"));
    let lock = client().get_read_write_lock(&name);
    for (mode, side) in [("read", lock.read()), ("write", lock.write())] {
        for _ in 0..30 {
            server.run(&["HSET", &name, "mode", mode, "item:1", "4", "title", "x"]);
            assert_eq!(kind_of(side.try_lock()), ErrorKind::OtherKind);
            assert_eq!(kind_of(side.force_unlock()), ErrorKind::OtherKind);
            assert_eq!((fields(server, &name).len(), ttl_ms(server, &name)), (3, -1));
        }
        server.run(&["DEL", &name]);
    }
}

#[test]
fn a_hold_is_released_by_the_text_of_its_owner() {
    for_every_single_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let guard = lock.lock().unwrap();
        let operator = kind.get_lock(&client(), lock.name());
        let holder = operator.holder().unwrap().unwrap();
        operator.force_unlock_owner(format!("{}0", holder.owner())).unwrap();
        assert!(operator.is_locked().unwrap(), "another owner");
        operator.force_unlock_owner(holder.owner()).unwrap();
        assert!(!operator.is_locked().unwrap());
        eventually(SOON, "the holder is told", || guard.lost().is_some());
        for no_text in ["", "\u{FFFD}A"] {
            assert_eq!(kind_of(operator.force_unlock_owner(no_text)), ErrorKind::BadInput);
        }
    });
}

#[test]
fn a_group_is_not_taken_inside_data() {
    let (server, name) = (RedisServer::shared(), fresh("foreign"));
    for data in [
        &["customer", "7", "total", "99", "day", "3"][..],
        &["job:7:expire_time", "1690000000", "job:8:expire_time", "1690000500"],
        &["0123456789abcdef0123456789abcdef", "1"],
        &["lastAuthenticationTimestamp", "1690000000"],
        &["a:b:lock_count", "1"],
    ] {
        server.run(&["DEL", &name]);
        server.run(&[&["HSET", &name], data].concat());
        server.run(&["PEXPIRE", &name, "5000"]);
        let lock = client().get_group_lock(&name, ["hall"]);
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::OtherKind, "{data:?}");
        assert_eq!(fields(server, &name).len(), data.len() / 2, "{data:?}");
        assert!(server.query::<i64>(&["PTTL", &name]) <= 5_000, "{data:?}");
        assert_eq!(client().inspect(&name).unwrap_err().kind(), ErrorKind::OtherKind, "{data:?}");
    }
}

#[test]
fn several_locks_are_not_taken_where_one_is_data() {
    let (server, name) = (RedisServer::shared(), fresh("foreign"));
    server.run(&["HSET", &name, "customer", "7"]);
    let client = client();
    let free = client.get_lock(fresh("foreign"));
    let both = Lock::multi([client.get_lock(&name), free.clone()]);
    assert_eq!(kind_of(both.try_lock()), ErrorKind::OtherKind);
    assert!(!free.is_locked().unwrap());
}

#[test]
fn a_waiter_learns_that_the_key_became_data() {
    let (server, client) = (RedisServer::shared(), client());
    let lock = client.get_lock(fresh("foreign"));
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| kind_of(crate::support::client().get_lock(lock.name()).try_lock_for(SOON)));
        eventually(SOON, "it waits", || listeners(server, lock.name()) == 1);
        // In one step: a free lock would be the waiter's.
        let data = fresh("foreign");
        server.run(&["HSET", &data, "customer", "7"]);
        server.run(&["RENAME", &data, lock.name()]);
        assert_eq!(waiter.join().unwrap(), ErrorKind::OtherKind);
    });
    drop(guard);
}

#[test]
fn owners_of_other_clients_hold_their_locks() {
    let server = RedisServer::shared();
    let id = "6f1c0d5e-8a0b-4f5e-9d3c-2b1a00c0ffee";
    let owners = [
        format!("{id}:77"),
        format!("{id}:-3"),
        format!("{id}:77:5b2f0a"), // of a transaction
        format!("{id}:7.19"),
        "billing service:1".to_owned(),
        "a:b:12".to_owned(),
    ];
    for_every_single_kind(|kind| {
        if kind.label.starts_with("token") || kind.label == "write" {
            return;
        }
        for owner in &owners {
            let lock = kind.get_lock(&client(), &kind.fresh());
            server.run(&["HSET", lock.name(), owner, "2"]);
            server.run(&["PEXPIRE", lock.name(), "30000"]);
            assert!(lock.try_lock().unwrap().is_none(), "{owner}");
            assert!(lock.try_lock_for(ms(20)).unwrap().is_none(), "{owner}");
            assert!(lock.is_locked().unwrap(), "{owner}");
            assert_eq!(lock.holder().unwrap().map(|holder| holder.owner().to_owned()).as_ref(), Some(owner));
            assert!(lock.force_unlock().unwrap(), "{owner}");
            assert!(!lock.is_locked().unwrap(), "{owner}");
        }
    });
}

#[test]
fn without_the_right_to_read_fields_a_busy_lock_stays_busy() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-hrandfield"]);
    let client = lockson::Client::connect(&format!("redis://app:secret@127.0.0.1:{}", server.port())).unwrap();
    server.run(&["HSET", "busy", "somebody:1", "1"]);
    assert!(client.get_lock("busy").try_lock().unwrap().is_none());
    server.run(&["HSET", "sides", "mode", "read", "somebody:1", "1"]);
    assert_eq!(kind_of(client.get_lock("sides").try_lock()), ErrorKind::OtherKind);
    let (took, outcome) = timed(|| client.get_fair_lock("busy").try_lock_for(ms(50)).unwrap().is_none());
    assert!(outcome && took < SOON);
}
