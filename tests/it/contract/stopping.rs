//! The end of all waits of a client, which its holders outlive.

use std::any::Any;

use lockson::{RedLock, Result};

use super::{for_every_kind, key, three_waiters};
use crate::support::prelude::*;

#[test]
fn stop_waiting_ends_waits_now_and_later_but_no_hold() {
    for_every_kind(|kind| {
        let (theirs, ours) = (client(), client());
        let theirs = kind.get_lock(&theirs, &kind.fresh());
        let _guard = theirs.lock().unwrap();
        let (busy, own) = (kind.get_lock(&ours, key(theirs.name())), kind.get_lock(&ours, &kind.fresh()));
        let held = own.lock().unwrap();
        thread::scope(|scope| {
            let waiters = three_waiters(scope, &busy);
            kind.await_waiter(RedisServer::shared(), key(theirs.name()));
            ours.stop_waiting();
            assert_eq!(waiters.map(joined), [ErrorKind::Cancelled; 3]);
        });
        let free = kind.get_lock(&ours, &kind.fresh());
        assert_eq!([kind_of(free.lock()), kind_of(free.try_lock_for(SOON))], [ErrorKind::Cancelled; 2]);
        assert!(is_free(&free) && !is_free(&busy), "a call that does not wait is answered");
        if kind.reenters {
            let inner = [own.lock().unwrap(), own.try_lock_for(SOON).unwrap().unwrap()];
            inner.into_iter().for_each(|guard| guard.unlock().unwrap());
        }
        held.extend(ms(40_000)).unwrap();
        held.unlock().unwrap();
        assert!(ours.held().is_empty() && ours.waiting().is_empty());
        ours.close();
        assert_eq!(kind_of(free.lock()), ErrorKind::Closed);
    });
}

/// Takes the only place under a name, or waits for it.
type TakeOne = fn(&Client, &str) -> Result<Box<dyn Any>>;

const TAKES: [TakeOne; 6] = [
    |client, name| Ok(Box::new(client.get_read_write_lock(name).write().lock()?)),
    |client, name| Ok(Box::new(client.get_group_lock(name, ["1", "2"]).lock()?)),
    |client, name| Ok(Box::new(red(client, name).lock()?)),
    |client, name| Ok(Box::new(client.get_election(name).candidate("one").campaign()?)),
    |client, name| {
        let permits = client.get_semaphore(name);
        permits.set_permits_once(1)?;
        Ok(Box::new(permits.acquire(1)?))
    },
    |client, name| {
        let permits = client.get_permit_expirable_semaphore(name);
        permits.set_permits_once(1)?;
        Ok(Box::new(permits.acquire(1)?))
    },
];

fn red(client: &Client, name: &str) -> RedLock {
    RedLock::new([client.get_lock(name)]).with_rejoin_after(Duration::ZERO).with_node_timeout(ms(1_000))
}

#[test]
fn stop_waiting_ends_waits_for_permits_latches_and_leaders() {
    let (theirs, ours) = (client(), client());
    let takes = TAKES.map(|take| (take, fresh("stopped")));
    let _held: Vec<_> = takes.iter().map(|(take, name)| take(&theirs, name).unwrap()).collect();
    let own = red(&ours, &fresh("stopped"));
    let outer = own.lock().unwrap();
    let latch = ours.get_count_down_latch(fresh("stopped"));
    latch.set_count_once(1).unwrap();
    let election = ours.get_election(fresh("stopped"));
    thread::scope(|scope| {
        let ours = &ours;
        let mut waits: Vec<_> =
            takes.iter().map(|(take, name)| scope.spawn(move || kind_of(take(ours, name).map(drop)))).collect();
        waits.push(scope.spawn(|| kind_of(latch.wait())));
        waits.push(scope.spawn(|| kind_of(election.wait_change(None, Duration::MAX))));
        eventually(SOON, "all of them wait", || ours.waiting().len() == takes.len());
        ours.stop_waiting();
        waits.into_iter().for_each(|wait| assert_eq!(joined(wait), ErrorKind::Cancelled));
    });
    let told = latch.wait().unwrap_err().to_string();
    assert!(!told.contains("lock"), "{told}");
    assert!(!latch.wait_for(Duration::ZERO).unwrap(), "a question is no wait");
    assert_eq!(election.wait_change(None, Duration::ZERO).unwrap(), None);
    own.lock().unwrap().unlock().unwrap();
    outer.unlock().unwrap();
}

#[test]
fn a_hold_is_renewed_after_stop_waiting() {
    let server = RedisServer::shared();
    let client = Client::builder(&server.url()).watchdog(Duration::from_secs(30), ms(100)).connect().unwrap();
    let guard = client.get_lock(fresh("stopped")).lock().unwrap();
    client.stop_waiting();
    server.run(&["PEXPIRE", guard.name(), "15000"]);
    eventually(SOON, "a renewal raises the time to live", || ttl_ms(server, guard.name()) > 15_000);
    guard.unlock().unwrap();
}
