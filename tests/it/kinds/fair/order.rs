//! Waiters are served in the order of arrival, across threads, clients and processes.

use super::{Queue, hasty_client, leave, now_ms};
use crate::faults::other_process::OtherProcess;
use crate::support::prelude::*;

#[test]
fn waiters_of_several_processes_get_in_in_the_order_they_came() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let mut processes = [OtherProcess::start(&server), OtherProcess::start(&server)];
    // Both fair kinds stand in one queue.
    let ours = hasty_client(&server).get_non_reentrant_fair_lock("job");
    let guard = ours.lock().unwrap();
    // Two lanes in each process, and a thread of this process between the lanes.
    let turns = [Some((0, 0)), Some((1, 0)), None, Some((1, 1)), Some((0, 1))];
    let (go, told) = crossbeam_channel::bounded(1);
    thread::scope(|scope| {
        for (place, turn) in turns.iter().enumerate() {
            match turn {
                Some((process, lane)) => processes[*process].send(*lane, "lock fair job"),
                None => drop(scope.spawn(|| {
                    let guard = ours.lock().unwrap();
                    told.recv_timeout(SOON * 2).unwrap();
                    guard.unlock().unwrap();
                })),
            }
            queue.await_length(place + 1);
        }
        let order = queue.owners();
        guard.unlock().unwrap();
        for (place, (turn, owner)) in turns.iter().zip(&order).enumerate() {
            eventually(SOON, "the next waiter is granted", || {
                fields(&server, "job").first().is_some_and(|(holder, _)| holder == owner)
            });
            assert_eq!(queue.owners(), order[place + 1..], "nobody overtook");
            let Some((process, lane)) = *turn else {
                go.send(()).unwrap();
                continue;
            };
            assert!(owner.starts_with(processes[process].client_id()));
            assert_eq!(processes[process].answer(lane), format!("holds {owner}"));
            assert_eq!(processes[process].ask(lane, "unlock"), "unlocked");
        }
    });
    queue.assert_gone();
}

#[test]
fn a_try_neither_joins_the_queue_nor_passes_it_by() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let lock = client().get_fair_lock(&name);
    let guard = client().get_fair_lock(&name).lock().unwrap();
    for outcome in [lock.try_lock(), lock.try_lock_for(Duration::ZERO), lock.with_lease(ms(500)).try_lock()] {
        assert!(outcome.unwrap().is_none());
        assert!(queue.owners().is_empty() && queue.left_ms().is_empty());
    }
    assert!(lock.owned().try_lock().unwrap().is_none());
    assert!(queue.owners().is_empty() && queue.left_ms().is_empty());
    guard.unlock().unwrap();

    // The lock is free, but another waiter is next.
    let in_a_minute = (now_ms(server) + 60_000).to_string();
    server.run(&["RPUSH", &queue.list(), "somebody:1"]);
    server.run(&["ZADD", &queue.deadlines(), &in_a_minute, "somebody:1"]);
    for _ in 0..3 {
        assert!(lock.try_lock().unwrap().is_none());
    }
    assert_eq!(queue.owners(), ["somebody:1"]);
    server.run(&["DEL", &queue.list(), &queue.deadlines()]);
    assert!(lock.try_lock().unwrap().is_some());
}

#[test]
fn the_holder_re_enters_past_those_who_wait() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let lock = client().get_fair_lock(&name);
    let outer = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiter = queue.waiter(scope, lock.clone(), leave);
        let inner =
            [lock.lock().unwrap(), lock.try_lock().unwrap().unwrap(), lock.try_lock_for(SOON).unwrap().unwrap()];
        assert_eq!(lock.hold_count(), 4);
        assert_eq!(queue.owners().len(), 1);
        drop(inner);
        assert!(!waiter.is_finished());
        outer.unlock().unwrap();
        joined(waiter);
    });
    queue.assert_gone();
}
