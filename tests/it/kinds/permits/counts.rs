//! The numbers of permits, leases by id, releases by id, reclaims.

use lockson::PermitId;

use super::{free, semaphore, taken, taken_key};
use crate::support::prelude::*;

#[test]
fn a_semaphore_that_does_not_exist_has_no_permits() {
    let (server, calls) = (RedisServer::shared(), client().get_permit_expirable_semaphore(fresh("permits")));
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap(), calls.permits().unwrap()), (0, 0, 0));
    assert!(calls.try_acquire(1).unwrap().is_none());
    assert_eq!(kind_of(calls.release_by_id(&["1234".parse().unwrap()])), ErrorKind::NotHeld);
    assert!(!calls.delete().unwrap());
    assert_eq!(free(server, calls.name()), None, "no question makes a semaphore");
}

#[test]
fn expired_permits_count_as_free() {
    let calls = semaphore(2);
    let leased = calls.with_lease(ms(300));
    let all: Vec<_> = (0..3).map(|_| leased.try_acquire(1).unwrap()).collect();
    assert!(all[0].is_some() && all[1].is_some() && all[2].is_none());
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap()), (0, 2));
    thread::sleep(ms(350));
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap(), calls.permits().unwrap()), (2, 0, 2));
    let again = calls.try_acquire(1).unwrap().expect("both returned");
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap()), (1, 1));
    drop((again, all));
    assert_eq!(calls.available().unwrap(), 2);
}

#[test]
fn the_number_of_permits_can_be_set() {
    let calls = semaphore(10);
    let check = |total: i64, available: i64, acquired: i64| {
        let counts = (calls.permits().unwrap(), calls.available().unwrap(), calls.acquired().unwrap());
        assert_eq!(counts, (total, available, acquired));
    };
    check(10, 10, 0);
    assert!(!calls.set_permits_once(15).unwrap());
    check(10, 10, 0);
    for permits in [15, 15, 5] {
        calls.set_permits(permits).unwrap();
        check(permits.into(), permits.into(), 0);
    }
    let held = calls.acquire(3).unwrap();
    check(5, 2, 3);
    calls.set_permits(3).unwrap();
    check(3, 0, 3);
    calls.set_permits(2).unwrap();
    check(2, -1, 3);
    drop(held);
    check(2, 2, 0);
}

#[test]
fn a_change_of_the_number_wakes_a_waiter() {
    for add in [true, false] {
        let (server, calls) = (RedisServer::shared(), semaphore(0));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| calls.try_acquire_for(2, SOON).unwrap().is_some());
            let channel = prefixed("redisson_sc", calls.name());
            lockson_harness::eventually(SOON, "the waiter listens", || server.subscribers(&channel) == 1);
            if add {
                calls.add_permits(2).unwrap()
            } else {
                calls.set_permits(2).unwrap()
            }
            assert!(waiter.join().unwrap());
        });
    }
}

/// The counter was deleted while permits are out: the limit holds when it is set again.
#[test]
fn permits_that_are_out_count_after_the_counter_was_deleted() {
    let (server, calls) = (RedisServer::shared(), semaphore(3));
    let held = calls.acquire(2).unwrap();
    for once in [true, false] {
        server.run(&["DEL", calls.name()]);
        assert_eq!(calls.available().unwrap(), 0);
        if once {
            assert!(calls.set_permits_once(3).unwrap())
        } else {
            calls.set_permits(3).unwrap()
        }
        assert_eq!((calls.available().unwrap(), calls.permits().unwrap()), (1, 3));
    }
    held.release().unwrap();
    assert_eq!((calls.available().unwrap(), calls.permits().unwrap()), (3, 3));
}

/// The counter was deleted, and its name became a lock: the set of taken permits stays.
#[test]
fn a_lock_of_the_name_takes_no_permit_away() {
    let (client, name) = (client(), fresh("permits"));
    let calls = client.get_permit_expirable_semaphore(&name);
    calls.set_permits(1).unwrap();
    let held = calls.acquire(1).unwrap();
    RedisServer::shared().run(&["DEL", &name]);
    let guard = client.get_lock(&name).lock().unwrap();
    assert_eq!((held.lost(), taken(RedisServer::shared(), &name).len()), (None, 1));
    drop(guard);
    held.release().unwrap();
}

#[test]
fn an_expiry_that_java_took_away_ends_no_permit() {
    let (server, calls) = (RedisServer::shared(), semaphore(5));
    let (counter, set) = (calls.name(), taken_key(calls.name()));
    let first = calls.acquire(2).unwrap();
    [counter, &set].iter().for_each(|key| server.run(&["PEXPIRE", key, "2000"]));
    // Redisson's `addPermits(3)` writes the number anew, and leaves the set of taken permits as it is.
    server.run(&["SET", counter, "6"]);
    let second = calls.acquire(1).unwrap();
    thread::sleep(ms(2_300));
    assert!(first.is_held() && second.is_held());
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap()), (5, 3));
    drop((first, second));
    assert_eq!((free(server, counter), taken(server, counter)), (Some(8), vec![]));
}

#[test]
fn a_release_makes_no_semaphore_anew() {
    let (server, calls) = (RedisServer::shared(), semaphore(3));
    let held = calls.acquire(2).unwrap();
    let leased = calls.with_lease(ms(50)).acquire(1).unwrap();
    server.run(&["DEL", calls.name()]);
    drop(held);
    thread::sleep(ms(80));
    drop(leased);
    assert!(calls.try_acquire(1).unwrap().is_none());
    assert_eq!((free(server, calls.name()), taken(server, calls.name()).len()), (None, 0));
}

#[test]
fn releases_by_id_give_back_all_or_none() {
    let calls = semaphore(10);
    let two = calls.with_lease(ms(200)).acquire(2).unwrap();
    let eight: Vec<_> = (0..8).map(|_| calls.with_lease(ms(60_000)).acquire(1).unwrap()).collect();
    let id = |index: usize| eight[index].ids()[0].clone();
    let refused = |ids: &[PermitId], available: i64| {
        assert_eq!(kind_of(calls.release_by_id(ids)), ErrorKind::NotHeld);
        assert_eq!(calls.available().unwrap(), available);
    };
    calls.release_by_id(&[id(0), id(1)]).unwrap();
    assert_eq!(calls.available().unwrap(), 2);
    thread::sleep(ms(250));
    refused(&two.ids(), 4);
    refused(&[id(2), id(0)], 4);
    refused(&["1234".parse().unwrap()], 4);
    refused(&[id(2), "4567".parse().unwrap()], 4);
    assert!(eight[2].is_held(), "nothing was given back");
    assert_eq!(eight[0].lost(), Some(Loss::Gone), "its holder is told");
    calls.release_by_id(&[id(2)]).unwrap();
    assert_eq!(calls.available().unwrap(), 5);
}

#[test]
fn leases_are_read_and_updated_by_id() {
    let (server, calls) = (RedisServer::shared(), semaphore(3));
    let others = client().get_permit_expirable_semaphore(calls.name());
    let unknown: PermitId = "00".repeat(16).parse().unwrap();
    assert_eq!(calls.remaining_time_to_live(&unknown).unwrap(), None);
    assert!(!calls.update_lease(&unknown, ms(1_000)).unwrap());
    let permit = calls.with_lease(ms(1_000)).acquire(1).unwrap();
    let id = permit.ids()[0].clone();
    let left = calls.remaining_time_to_live(&id).unwrap().unwrap();
    assert!(left <= ms(1_000) && left > ms(500), "{left:?}");
    assert_eq!(kind_of(calls.update_lease(&id, ms(5_000))), ErrorKind::BadInput, "extend() is for own permits");
    assert!(others.update_lease(&id, ms(60_000)).unwrap());
    assert!(calls.remaining_time_to_live(&id).unwrap() > Some(ms(50_000)));
    permit.extend(ms(30_000)).unwrap();
    assert!(calls.remaining_time_to_live(&id).unwrap() > Some(ms(50_000)), "an extension only raises");
    assert!(others.update_lease(&id, ms(1)).unwrap());
    thread::sleep(ms(20));
    assert!(!others.update_lease(&id, ms(60_000)).unwrap(), "an expired permit is not revived");
    assert_eq!(calls.remaining_time_to_live(&id).unwrap(), None);
    // A permit of Redisson without a lease.
    server.run(&["ZADD", &taken_key(calls.name()), "922337203685477", "java"]);
    let java: PermitId = "6a617661".parse().unwrap();
    assert_eq!(calls.remaining_time_to_live(&java).unwrap(), Some(Duration::MAX));
}

/// A permit of Redisson without a lease never expires, and no waiter waits for its end.
#[test]
fn a_permit_without_an_end_stays_taken() {
    let (server, calls) = (RedisServer::shared(), semaphore(1));
    server.run(&["DECR", calls.name()]);
    server.run(&["ZADD", &taken_key(calls.name()), "922337203685477", "java"]);
    assert!(calls.try_acquire_for(1, ms(100)).unwrap().is_none());
    assert_eq!((calls.available().unwrap(), calls.acquired().unwrap()), (0, 1));
    // The time of one of ours that another client took the end from is not lowered by a renewal.
    let brisk = crate::support::brisk_client().get_permit_expirable_semaphore(fresh("permits"));
    brisk.set_permits(1).unwrap();
    let permit = brisk.acquire(1).unwrap();
    let key = taken_key(brisk.name());
    let set = redis::cmd("ZADD").arg(&key).arg("XX").arg("922337203685477").arg(id_bytes(&permit.ids()[0])).to_owned();
    set.exec(&mut server.connection()).unwrap();
    thread::sleep(ms(400)); // renewals happen meanwhile
    assert_eq!(taken(server, brisk.name())[0].1, 922_337_203_685_477.0);
    assert!(permit.is_held());
}

/// Eight thousand expired permits at once are too many for the scripts of Redisson.
#[test]
fn thousands_of_expired_permits_are_reclaimed_in_slices() {
    const EXPIRED: usize = 20_000;
    let (server, calls) = (RedisServer::start(), "calls");
    let client = lockson::Client::connect(&server.url()).unwrap();
    let semaphore = client.get_permit_expirable_semaphore(calls);
    semaphore.set_permits_once(0).unwrap();
    let mut add = redis::cmd("ZADD");
    add.arg(taken_key(calls));
    (0..EXPIRED).for_each(|number| {
        add.arg(1_000).arg(format!("expired:{number}"));
    });
    add.exec(&mut server.connection()).unwrap();
    assert_eq!((semaphore.available().unwrap(), semaphore.acquired().unwrap()), (20_000, 0));
    let one = semaphore.try_acquire(1).unwrap().expect("a slice is enough");
    assert_eq!(taken(&server, calls).len(), EXPIRED - 500 + 1, "one slice for each request");
    assert_eq!(free(&server, calls), Some(499));
    let take = |_| semaphore.try_acquire_for(1_000, SOON).unwrap().expect("slice after slice");
    let many: Vec<_> = (0..9).map(take).collect();
    assert_eq!((semaphore.available().unwrap(), semaphore.acquired().unwrap()), (10_999, 9_001));
    drop((one, many));
    assert_eq!(semaphore.acquired().unwrap(), 0);
    assert_eq!(semaphore.permits().unwrap(), 20_000, "none was lost, none was invented");
}

fn id_bytes(id: &PermitId) -> Vec<u8> {
    let digits = id.to_string();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Redisson publishes how many permits it added, or gave back by a list of ids, not how many are free.
#[test]
fn a_message_of_too_few_wakes_who_waits_for_many() {
    let (server, client, name) = (RedisServer::shared(), client(), fresh("permits"));
    let calls = client.get_permit_expirable_semaphore(&name);
    let took = median(5, |_| {
        calls.set_permits(3).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| (calls.acquire(5).unwrap(), Instant::now()));
            eventually(SOON, "it waits", || client.waiting().len() == 1);
            thread::sleep(ms(100));
            let added = Instant::now();
            server.run(&["INCRBY", &name, "2"]);
            server.run(&["PUBLISH", &prefixed("redisson_sc", &name), "2"]);
            let (permits, granted) = joined(waiter);
            permits.release().unwrap();
            granted - added
        })
    });
    assert!(took < ms(400), "{took:?} beside five free permits");
}
