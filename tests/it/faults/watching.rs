//! A holder of a long hold learns of a loss at once, even without a message about the loss.

mod broken;
mod costs;
mod rights;

use crate::support::kinds::{OfName, WATCHED};
use crate::support::prelude::*;

/// A time to live with a late first renewal: an earlier report of a loss cannot come from a renewal.
const LEASE: Duration = Duration::from_secs(150);

/// The time that a busy machine may take for an immediate event; a renewal would reveal the loss after 50 s.
const AT_ONCE: Duration = Duration::from_secs(5);

fn patient(url: &str) -> ClientBuilder {
    Client::builder(url).watchdog(LEASE, LEASE / 3)
}

fn patient_client(server: &RedisServer) -> Client {
    patient(&server.url()).connect().expect("the server answers")
}

fn patient_scene() -> (RedisServer, Client) {
    let server = RedisServer::start();
    let client = patient_client(&server);
    (server, client)
}

fn urls(server: &RedisServer) -> [String; 2] {
    [server.url(), format!("{}?protocol=resp3", server.url())]
}

/// A hold of each kind, with and without a lease, returned when all holds are watched.
fn watched(server: &RedisServer, client: &Client) -> Vec<OwnedGuard> {
    let before = server.tracked_keys();
    let name = fresh("name");
    let take = |leased: bool| {
        let name = if leased { format!("leased {name}") } else { name.clone() };
        WATCHED.iter().map(move |(label, lock)| {
            let lock = lock(client, &format!("{label} {name}"));
            if leased { lock.with_lease(LEASE).owned().lock().unwrap() } else { lock.owned().lock().unwrap() }
        })
    };
    let guards: Vec<_> = take(false).chain(take(true)).collect();
    eventually(SOON, "all are watched", || server.tracked_keys() >= before + guards.len());
    guards
}

/// Checks that all holders learn of the loss soon after `since`.
#[track_caller]
fn all_are_told(guards: &[OwnedGuard], since: Instant, loss: Loss, why: &str) {
    for guard in guards {
        let told = guard.wait_lost(AT_ONCE);
        assert_eq!(told, Some(loss), "{why}: {} after {:?}", guard.name(), since.elapsed());
    }
    assert!(since.elapsed() < AT_ONCE, "{why}: {:?}", since.elapsed());
}

#[test]
fn whatever_others_do_to_a_lock_is_told_at_once() {
    let gone = ["DEL", "UNLINK", "FLUSHALL", "FLUSHDB", "force_unlock"].map(|way| (way, Loss::Gone));
    let taken = ["SET", "another type", "another owner"].map(|way| (way, Loss::Taken));
    at_once(gone.into_iter().chain(taken), |(way, loss)| {
        let (server, others) = alone();
        for url in urls(&server) {
            let client = patient(&url).connect().unwrap();
            let guards = watched(&server, &client);
            let since = Instant::now();
            match way {
                "FLUSHALL" | "FLUSHDB" => server.run(&[way]),
                _ => guards.iter().zip(WATCHED.iter().cycle()).for_each(|(guard, kind)| {
                    take_away(way, &server, &others, guard.name(), *kind);
                }),
            }
            all_are_told(&guards, since, loss, way);
        }
    });
}

fn take_away(way: &str, server: &RedisServer, others: &Client, name: &str, (label, lock): (&str, OfName)) {
    let list = "redis.call('del', KEYS[1]) redis.call('rpush', KEYS[1], 'precious')";
    match way {
        "force_unlock" => assert!(lock(others, name).force_unlock().unwrap()),
        "SET" => server.run(&["SET", name, "another's"]),
        "another type" => server.run(&["EVAL", list, "1", name]),
        "another owner" => {
            let theirs = lock(others, &format!("{label} theirs")).with_lease(LEASE).lock().unwrap();
            server.run(&["RENAME", theirs.name(), name]);
            assert!(theirs.unlock().is_err());
        }
        _ => server.run(&[way, name]),
    }
}

#[test]
fn a_lock_that_the_server_evicts_is_told_at_once() {
    let server = RedisServer::builder().config("maxmemory-policy allkeys-random").start();
    let client = patient_client(&server);
    let guards = watched(&server, &client);
    let since = Instant::now();
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    // A write makes the server evict keys.
    let _: redis::RedisResult<()> = server.try_query(&["SET", "x", "y"]);
    eventually(SOON, "all are evicted", || server.keys().is_empty());
    all_are_told(&guards, since, Loss::Gone, "eviction");
}

#[test]
fn a_shortened_lock_is_told_when_the_server_removes_it() {
    let (server, client) = patient_scene();
    let mut guards = watched(&server, &client);
    // A reader restores what readers of Redisson may have shortened.
    guards.retain(|guard| !guard.name().starts_with("read"));
    let since = Instant::now();
    guards.iter().for_each(|guard| server.run(&["PEXPIRE", guard.name(), "100"]));
    all_are_told(&guards, since, Loss::Gone, "expiry");
}

#[test]
fn a_reader_is_told_though_other_readers_stay() {
    let server = RedisServer::start();
    let (client, others) = (patient_client(&server), Client::connect(&server.url()).unwrap());
    let theirs = others.get_read_write_lock("shared").read().lock().unwrap();
    let ours = client.get_read_write_lock("shared").read().owned().lock().unwrap();
    eventually(SOON, "the hold is watched", || server.tracked_keys() > 0);
    let since = Instant::now();
    server.run(&["HDEL", "shared", ours.owner()]);
    all_are_told(&[ours], since, Loss::Taken, "one reader's field");
    theirs.unlock().unwrap();
}

#[test]
fn a_hold_stays_watched_through_everything_that_its_owner_does() {
    let server = RedisServer::start();
    at_once(WATCHED.into_iter().filter(|(label, _)| *label != "non-reentrant"), |(label, lock)| {
        // Renewed very often, so a renewal comes between any two steps.
        let client = Client::builder(&server.url()).watchdog(ms(60_000), ms(100)).connect().unwrap();
        let deeds: [fn(&Lock); 3] = [
            |_| (),
            |lock| drop(lock.with_lease(LEASE).lock().unwrap()),
            |lock| lock.with_lease(LEASE).lock().unwrap().extend(LEASE).unwrap(),
        ];
        for deed in deeds {
            let lock = lock(&client, label);
            let guard = lock.with_lease(LEASE).lock().unwrap();
            thread::sleep(ms(300)); // the hold is watched by then
            deed(&lock);
            thread::sleep(ms(300)); // the written key has been read again by then
            let since = Instant::now();
            server.run(&["DEL", lock.name()]);
            let told = guard.wait_lost(AT_ONCE);
            assert_eq!(told, Some(Loss::Gone), "{} after {:?}", lock.name(), since.elapsed());
            assert!(guard.unlock().is_err());
        }
    });
}

#[test]
fn a_renewal_leaves_every_kind_watched() {
    let server = RedisServer::start();
    // Only the server reveals the losses: after the renewals, the next renewal is too far away. Each hold has its own
    // client, because a few losses put the other holds of a client in question.
    let client = || Client::builder(&server.url()).watchdog(ms(60_000), ms(4_000)).connect().unwrap();
    let take = |(label, lock): (&str, OfName)| lock(&client(), label).owned().lock().unwrap();
    let guards = WATCHED.map(take);
    let left = |guard: &OwnedGuard| server.query::<i64>(&["PTTL", guard.name()]);
    eventually(SOON, "all fall", || guards.iter().all(|guard| left(guard) < 58_000));
    eventually(SOON, "all are renewed", || guards.iter().all(|guard| left(guard) > 58_000));
    let since = Instant::now();
    guards.iter().for_each(|guard| server.run(&["DEL", guard.name()]));
    for guard in &guards {
        assert_eq!(guard.wait_lost(ms(3_000)), Some(Loss::Gone), "{} after {:?}", guard.name(), since.elapsed());
    }
}
