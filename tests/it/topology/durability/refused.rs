//! Servers and users that cannot wait, and disks.

use lockson::Durability;

use super::scene::{Copied, WITHIN, none, one};
use crate::servers::at_each_version;
use crate::support::prelude::*;

/// The address for a user without a right.
fn without(server: &RedisServer, right: &str) -> String {
    server.run(&["ACL", "SETUSER", "meek", "reset", "on", ">secret", "~*", "&*", "+@all", right]);
    server.url().replace("redis://", "redis://meek:secret@")
}

#[test]
fn a_user_without_the_right_is_told_at_the_first_lock() {
    let copied = Copied::start(1);
    let (missing, client) = Events::of_client(Client::builder(&without(&copied.master, "-wait")));
    let lock = client.get_lock(fresh("refused"));
    let error = lock.with_durability(one()).try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    for part in ["WAIT", "NOPERM", "given back", "with_best_effort()"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(copied.master.keys(), Vec::<String>::new());
    assert_eq!(missing.count_of("not durable"), 0, "the caller knows");
    for _ in 0..3 {
        let guard = lock.with_durability(one().with_best_effort()).lock().unwrap();
        guard.extend(WITHIN * 1_000).unwrap();
        guard.unlock().unwrap();
    }
    let told = missing.errors_of("not durable at 127.0.0.1");
    assert!(told.len() == 1 && told[0].to_string().contains("NOPERM"), "told once: {told:?}");
}

#[test]
fn best_effort_waits_where_it_can() {
    let copied = Copied::start(1);
    let client = Client::connect(&copied.master.url()).unwrap();
    copied.replicas[0].pause();
    let lock = client.get_lock(fresh("late")).with_durability(none().with_best_effort());
    assert_eq!(kind_of(lock.try_lock()), ErrorKind::NotDurable, "a late replica is no missing command");
}

/// The two locks share a wait, and nobody asks for the disk of the replica, which has none.
#[test]
fn a_disk_for_one_lock_is_no_disk_for_another() {
    at_each_version(|version| {
        let copied = Copied::of(&version.builder(), 1);
        copied.master.run(&["CONFIG", "SET", "appendonly", "yes"]);
        let client = Client::connect(&copied.master.url()).unwrap();
        let lock = |needs: Durability| client.get_lock(fresh("mixed")).with_durability(needs.within(SOON));
        let taken = Lock::multi([lock(Durability::replicas(0).with_fsync()), lock(one())]).try_lock();
        if matches!(version.label.as_str(), "Redis 6.2" | "Redis 7.0") {
            return assert_eq!(kind_of(taken), ErrorKind::Unsupported);
        }
        taken.unwrap().expect("they are free").unlock().unwrap();
    });
}

/// `WAITAOF` came with Redis 7.2; Valkey has it from the start.
#[test]
fn a_disk_counts_where_the_server_has_one() {
    let disk = Durability::replicas(0).with_fsync().within(WITHIN);
    let waited = AtomicUsize::new(0);
    at_each_version(|version| {
        let copied = Copied::of(&version.builder().config("appendonly yes"), 1);
        let client = Client::connect(&copied.master.url()).unwrap();
        let lock = client.get_lock(fresh("disk"));
        if matches!(version.label.as_str(), "Redis 6.2" | "Redis 7.0") {
            let error = lock.with_durability(disk).try_lock().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("WAITAOF since version 7.2"), "{error}");
            return;
        }
        waited.fetch_add(1, Ordering::Relaxed);
        let patient = disk.within(WITHIN * 20);
        // By default a server writes to its disk once a second.
        lock.with_durability(patient).lock().unwrap().unlock().unwrap();
        let both = Durability::replicas(1).with_fsync().within(WITHIN * 20);
        lock.with_durability(both).lock().unwrap().unlock().unwrap();
        copied.replicas[0].pause();
        lock.with_durability(patient).lock().unwrap().unlock().unwrap();
        let error = lock.with_durability(both.within(WITHIN * 10)).try_lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotDurable, "{error}");
        assert!(error.to_string().contains("0 of 1 replicas") && error.to_string().contains("disks"), "{error}");
        copied.replicas[0].resume();
        copied.master.run(&["CONFIG", "SET", "appendonly", "no"]);
        let error = lock.with_durability(disk).try_lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("appendonly"), "{error}");
        assert_eq!(copied.master.keys(), Vec::<String>::new());
    });
    if waited.into_inner() == 0 {
        eprintln!("left out: no server here has WAITAOF; `sh .ci/servers redis-8.0` fetches one");
    }
}

/// A planned fail-over ends the waits of the former master with `UNBLOCKED`: the lock is taken at the next one.
#[test]
fn a_fail_over_during_the_wait_is_outlived() {
    let copied = Copied::start(1);
    let client = Client::connect(&copied.master.url()).unwrap();
    copied.replicas[0].pause();
    let lock = client.get_lock(fresh("demoted")).with_durability(one().within(SOON));
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| lock.try_lock_for(SOON)?.expect("nobody else wants it").unlock());
        eventually(SOON, "it waits for the replica", || copied.master.info("blocked_clients").as_deref() == Some("1"));
        copied.master.run(&["REPLICAOF", "127.0.0.1", &copied.replicas[0].port().to_string()]);
        copied.replicas[0].resume();
        copied.master.run(&["REPLICAOF", "NO", "ONE"]);
        taking.join().unwrap().unwrap();
    });
}
