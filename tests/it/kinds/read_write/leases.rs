//! The lease of each side: no release cuts another hold's lease, and a dead holder blocks nobody for long.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, ErrorKind, Guard, Lock, Loss};
use lockson_harness::proxy::{Proxy, Then, When};
use lockson_harness::{RedisServer, eventually};

use super::{hold_key, is_free, sides, state};
use crate::faults::other_process::OtherProcess;
use crate::support::{
    SCHEDULING, SOON, TICK, TTL, at_once, brisk, brisk_client, client, elsewhere, fresh, joined, kind_of, ms, ttl_ms,
};

#[test]
fn a_readers_shorter_lease_never_cuts_a_longer_one() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let read = sides(&client, "job").0;
    let write = sides(&Client::connect(&server.url()).unwrap(), "job").1;
    let mut doomed = OtherProcess::start(&server);
    let asked = Instant::now();
    let long = read.with_lease(ms(2_500)).lock().unwrap();
    let taken = Instant::now();
    // Another reader, with a time to live of one second, dies.
    assert!(doomed.ask(0, "lock read job").starts_with("holds "));
    doomed.kill();
    let short = elsewhere(|| read.with_lease(ms(300)).owned().lock().unwrap());
    assert!(ttl_ms(&server, "job") > 1_500);
    elsewhere(|| {
        let guard = write.try_lock_for(SOON).unwrap().expect("all readers are gone in the end");
        let (least, most) = (asked.elapsed(), taken.elapsed());
        assert!(least >= ms(2_500) && most <= ms(2_500) + SCHEDULING, "{least:?}, {most:?}");
        guard.unlock().unwrap();
    });
    assert_eq!(kind_of(short.unlock()), ErrorKind::Lost(Loss::Expired));
    assert_eq!(kind_of(long.unlock()), ErrorKind::Lost(Loss::Expired));
}

#[test]
fn a_leaving_reader_leaves_the_longest_ttl_of_the_others() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, _) = sides(&client(), &name);
    let between = |low: i64, high: i64| {
        let left = ttl_ms(server, &name);
        assert!((low - 500..=high).contains(&left), "{left} is not between {low} and {high}");
    };
    let short = read.with_lease(ms(10_000)).owned().lock().unwrap();
    let long = read.with_lease(ms(60_000)).owned().lock().unwrap();
    let middle = read.with_lease(ms(20_000)).owned().lock().unwrap();
    between(60_000, 60_000);
    long.unlock().unwrap();
    between(20_000, 20_000);
    short.unlock().unwrap();
    between(20_000, 20_000);
    let watched = read.owned().lock().unwrap();
    between(30_000, 30_000);
    middle.unlock().unwrap();
    between(30_000, 30_000);
    watched.unlock().unwrap();
    assert_eq!(ttl_ms(server, &name), -2);
}

#[test]
fn a_second_hold_that_was_given_back_prolongs_nothing() {
    let name = fresh("rw");
    let (read, write) = (sides(&client(), &name).0, sides(&client(), &name).1);
    let lock = read.with_lease(ms(2_500));
    let asked = Instant::now();
    let first = lock.lock().unwrap();
    let taken = Instant::now();
    assert_eq!(first.wait_lost(ms(700)), None);
    read.with_lease(ms(6_000)).lock().unwrap().unlock().unwrap();
    let guard = write.try_lock_for(SOON).unwrap().expect("the first hold ends");
    let (least, most) = (asked.elapsed(), taken.elapsed());
    assert!(least >= ms(2_500) && most <= ms(2_500) + SCHEDULING, "{least:?}, {most:?}");
    guard.unlock().unwrap();
    drop(first);
}

#[test]
fn readers_that_wait_are_in_as_soon_as_a_writers_lease_ends() {
    let name = fresh("rw");
    sides(&client(), &name).1.with_lease(ms(800)).lock().unwrap().keep_until_expiry();
    let taken = Instant::now();
    thread::scope(|scope| {
        for client in [client(), client()] {
            let read = sides(&client, &name).0;
            scope.spawn(move || {
                let guard = read.lock().unwrap();
                assert!(taken.elapsed() <= ms(800) + SCHEDULING, "{:?}", taken.elapsed());
                guard.unlock().unwrap();
            });
        }
    });
}

#[test]
fn giving_a_read_hold_back_neither_ends_nor_shortens_writing() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&brisk_client(), &name);
    let others = sides(&client(), &name);
    // Renewed.
    let writing = write.lock().unwrap();
    read.lock().unwrap().unlock().unwrap();
    let until = Instant::now() + TTL * 3 / 2;
    while Instant::now() < until {
        assert!(!is_free(&others.0) && !is_free(&others.1));
        assert!(ttl_ms(server, &name) > 0 && writing.is_held());
    }
    writing.unlock().unwrap();

    // With leases, the write hold the longest.
    let writing = write.with_lease(ms(5_000)).lock().unwrap();
    let short = [read.with_lease(ms(500)).lock().unwrap(), read.with_lease(ms(500)).lock().unwrap()];
    let [first, second] = short;
    first.unlock().unwrap();
    assert!(ttl_ms(server, &name) > 4_000);
    assert!(others.0.try_lock_for(ms(800)).unwrap().is_none(), "the read holds' time is over, writing goes on");
    assert!(writing.is_held() && second.is_held(), "both guards are one hold");
    second.unlock().unwrap();
    assert!(ttl_ms(server, &name) > 3_000);
    writing.unlock().unwrap();
    assert!(is_free(&others.1));
}

#[test]
fn expired_read_hold_is_restored_when_the_writer_steps_down() {
    let (server, own) = (RedisServer::shared(), brisk_client());
    let others = client();
    let check = |what: &str, take: &dyn Fn(&Lock) -> Guard, prolong: &dyn Fn(&Guard)| {
        let name = fresh("rw");
        let (read, write) = sides(&own, &name);
        let writing = write.with_lease(ms(60_000)).lock().unwrap();
        let reading = take(&read);
        let key = hold_key(&name, reading.owner(), 1);
        eventually(SOON, "the read hold's own time is over", || ttl_ms(server, &key) == -2);
        prolong(&reading);
        writing.unlock().unwrap();
        assert!(ttl_ms(server, &key) > 20_000, "{what}");
        // A reader that releases checks whether any hold is left.
        let (other_read, other_write) = sides(&others, &name);
        other_read.lock().unwrap().unlock().unwrap();
        assert!(reading.is_held() && !is_free(&other_write), "{what}: a writer beside a reader");
        reading.unlock().unwrap();
        assert!(is_free(&other_write), "{what}");
    };
    let leased = |read: &Lock| read.with_lease(ms(300)).lock().unwrap();
    check("extended", &leased, &|reading| reading.extend(ms(50_000)).unwrap());
    check("with a limit", &|read| read.with_max_hold(ms(500)).lock().unwrap(), &|_| {});
}

#[test]
fn an_unanswered_step_down_admits_readers_after_the_outage() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let away = Client::builder(&proxy.url()).command_timeout(ms(1_000)).drop_timeout(ms(100)).connect().unwrap();
    let others = sides(&Client::connect(&server.url()).unwrap(), "job");
    for drops in [false, true] {
        let (read, write) = sides(&away, "job");
        let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
        let lost = proxy.rule(When::script().always(), Then::SwallowRequest);
        if drops {
            drop(writing);
        } else {
            assert!(writing.unlock().is_err());
        }
        lost.remove();
        assert!(!is_free(&others.1), "the reader still holds");
        assert!(others.0.try_lock_for(SOON).unwrap().is_some(), "others may read, too");
        assert!(reading.is_held());
        reading.unlock().unwrap();
        assert!(is_free(&others.1));
    }
}

#[test]
fn reading_goes_on_and_is_renewed_after_writing_ended() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&brisk_client(), &name);
    let others = sides(&client(), &name);
    let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
    writing.unlock().unwrap();
    let until = Instant::now() + TTL * 3 / 2;
    while Instant::now() < until {
        assert!(!is_free(&others.1) && reading.is_held());
        assert!(ttl_ms(server, &hold_key(&name, reading.owner(), 1)) > 0);
    }
    reading.unlock().unwrap();
    assert!(is_free(&others.1));
}

#[test]
fn nested_leases_are_never_added_up() {
    let check = |side: usize| {
        let (server, name) = (RedisServer::shared(), fresh("rw"));
        let client = client();
        let lock = [sides(&client, &name).0, sides(&client, &name).1][side].with_lease(ms(2_500));
        let guards: Vec<_> = (0..5).map(|_| lock.lock().unwrap()).collect();
        let left = ttl_ms(server, &name);
        assert!((1_500..=2_500).contains(&left), "{left}");
        let taken = Instant::now();
        assert_eq!(guards[0].wait_lost(ms(700)), None);
        // Another hold raises the time to live to its own lease and no further.
        let asked = Instant::now();
        let last = lock.lock().unwrap();
        let others = sides(&crate::support::client(), &name).1;
        assert!(others.try_lock_for(ms(1_900)).unwrap().is_none(), "the last one's lease runs");
        guards.into_iter().for_each(|guard| guard.keep_until_expiry());
        last.keep_until_expiry();
        assert!(others.try_lock_for(SOON).unwrap().is_some());
        let (least, most) = (asked.elapsed(), taken.elapsed());
        assert!(least >= ms(2_500) && most <= ms(700 + 2_500) + SCHEDULING * 2, "{least:?}, {most:?}");
    };
    at_once([0, 1], check);
}

#[test]
fn an_expired_read_hold_blocks_no_other_owner() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (ours, theirs) = (client(), client());
    let ((read, _), (other_read, write)) = (sides(&ours, &name), sides(&theirs, &name));
    read.with_lease(ms(2_000)).lock().unwrap().keep_until_expiry();
    let dead = state(server, &name).into_keys().find(|field| field != "mode").unwrap();
    let beside = other_read.lock().unwrap();
    eventually(SOON, "the time to live is over", || ttl_ms(server, &hold_key(&name, &dead, 1)) == -2);
    assert!(state(server, &name).contains_key(&dead), "the field still exists");
    // The same thread reads again and gives back once.
    read.lock().unwrap().unlock().unwrap();
    beside.unlock().unwrap();
    assert!(is_free(&write), "no reader is left");
    assert_eq!(ttl_ms(server, &name), -2);
}

#[test]
fn a_reader_killed_without_leaving_ends_with_its_time_to_live() {
    let server = RedisServer::start();
    let client = brisk(&server).connect().unwrap();
    let (read, write) = sides(&client, "job");
    let mut doomed = OtherProcess::start(&server);
    let owner = doomed.ask(0, "lock read job").strip_prefix("holds ").unwrap().to_owned();
    let reading = read.lock().unwrap();
    doomed.kill();
    // The living reader is renewed; the dead reader is not.
    eventually(TTL + SCHEDULING, "the dead reader's hold ends", || ttl_ms(&server, &hold_key("job", &owner, 1)) == -2);
    elsewhere(|| assert!(write.try_lock_for(TTL + ms(200)).unwrap().is_none(), "the living reader still holds"));
    assert!(reading.is_held());
    let released = Instant::now();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let _guard = write.lock().unwrap();
            Instant::now()
        });
        reading.unlock().unwrap();
        let waited = joined(writer).saturating_duration_since(released);
        assert!(waited <= SCHEDULING, "{waited:?}");
    });
    assert!(server.keys().is_empty());

    // A writer that dies, and a single reader.
    for kind in ["write", "read"] {
        let mut doomed = OtherProcess::start(&server);
        assert!(doomed.ask(0, &format!("lock {kind} job")).starts_with("holds "));
        doomed.kill();
        let killed = Instant::now();
        assert!(write.try_lock_for(SOON).unwrap().is_some());
        assert!(killed.elapsed() <= TTL + SCHEDULING, "{:?}", killed.elapsed());
    }
}

#[test]
fn every_hold_of_twenty_readers_in_two_clients_is_renewed() {
    const READERS: usize = 20;
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let clients = [brisk_client(), brisk_client()];
    let write = sides(&client(), &name).1;
    let (all_in, done) = (Barrier::new(READERS + 1), Barrier::new(READERS + 1));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let read = sides(&clients[number % 2], &name).0;
                let (all_in, done) = (&all_in, &done);
                scope.spawn(move || {
                    let (outer, inner) = (read.lock().unwrap(), (number % 4 == 0).then(|| read.lock().unwrap()));
                    let owner = outer.owner().to_owned();
                    all_in.wait();
                    done.wait();
                    assert!(outer.is_held());
                    drop(inner);
                    outer.unlock().unwrap();
                    owner
                })
            })
            .collect();
        all_in.wait();
        let got = write.try_lock_for(TTL * 3 / 2).unwrap().is_some();
        let fields = state(server, &name);
        let ends = |(owner, count): (&String, &String)| -> Vec<i64> {
            (1..=count.parse().unwrap()).map(|number| ttl_ms(server, &hold_key(&name, owner, number))).collect()
        };
        let ends: Vec<i64> = fields.iter().filter(|(field, _)| *field != "mode").flat_map(ends).collect();
        done.wait();
        assert!(!got, "a writer got in");
        assert_eq!(fields.len(), READERS + 1);
        assert!(ends.len() == READERS + READERS / 4 && ends.iter().all(|left| *left > 0), "{ends:?}");
        let owners: HashSet<_> = readers.into_iter().map(joined).collect();
        assert_eq!(owners.len(), READERS);
    });
    assert!(is_free(&write));
}

#[test]
fn no_renewal_follows_the_last_release() {
    let server = RedisServer::start();
    let (read, write) = sides(&brisk(&server).connect().unwrap(), "job");
    for lock in [&read, &write] {
        let guards = [lock.lock().unwrap(), lock.lock().unwrap(), lock.lock().unwrap()];
        eventually(SOON, "the hold is renewed", || server.calls_of("pexpire") > 6);
        drop(guards);
    }
    let mixed = (write.lock().unwrap(), read.lock().unwrap(), write.lock().unwrap());
    drop(mixed);
    server.reset_counters();
    thread::sleep(TICK * 5); // five intervals: any renewal would have come
    // One renewal may have been under way during the last release.
    assert!(server.calls_of("evalsha") <= 1, "{}", server.calls_of("evalsha"));
    assert!(server.keys().is_empty());
}

#[test]
fn a_kept_side_stays_held_while_the_other_is_released() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&client(), &name);
    let others = sides(&client(), &name);
    let lease = Duration::from_secs(20);
    // The write side is kept; the two read holds are released one after the other.
    let (writing, reading) = (write.with_lease(lease).lock().unwrap(), [read.lock().unwrap(), read.lock().unwrap()]);
    writing.keep_until_expiry();
    for guard in reading {
        guard.unlock().unwrap();
        assert!(!is_free(&others.0) && !is_free(&others.1), "{:?}", state(server, &name));
    }
    assert!((15_000..=20_000).contains(&ttl_ms(server, &name)));
    assert!(others.1.force_unlock().unwrap());

    // Both sides are kept, the read side last; a third hold is given back.
    let (writing, kept, reading) = (write.lock().unwrap(), read.lock().unwrap(), read.lock().unwrap());
    writing.keep_until_expiry();
    kept.keep_until_expiry();
    reading.unlock().unwrap();
    assert!(!is_free(&others.0) && !is_free(&others.1), "{:?}", state(server, &name));
    assert!(others.1.force_unlock().unwrap());

    // The read side is kept, writing ends: others may read, but not write.
    let (writing, kept) = (write.lock().unwrap(), read.lock().unwrap());
    kept.keep_until_expiry();
    writing.unlock().unwrap();
    assert!(is_free(&others.0) && !is_free(&others.1), "{:?}", state(server, &name));
    assert!(others.0.force_unlock().unwrap());
}
