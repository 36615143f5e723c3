//! Messages are hints: the permitted and the forbidden effects of a message on a waiter.

use crate::support::listeners;
use crate::support::prelude::*;

#[test]
fn stray_messages_grant_nothing_and_end_no_wait() {
    let (server, name) = (RedisServer::shared(), fresh("stray"));
    let guard = client().get_lock(&name).lock().unwrap();
    let others = client().get_lock(&name);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| others.try_lock_for(SOON).unwrap().is_some());
        eventually(SOON, "it listens", || listeners(server, &name) == 1);
        for message in ["0", "0", "1", "-1", "", "unlocked", "\0\r\n"] {
            for _ in 0..20 {
                server.run(&["PUBLISH", &channel(&name), message]);
            }
        }
        assert!(!waiter.is_finished() && guard.is_held());
        assert_eq!(others.holder().unwrap().unwrap().owner(), guard.owner());
        guard.unlock().unwrap();
        assert!(joined(waiter));
    });
}

#[test]
fn one_release_sends_one_waiter_of_a_client_to_redis() {
    let server = RedisServer::start();
    let (holder, waiting) = (Client::connect(&server.url()).unwrap(), Client::connect(&server.url()).unwrap());
    let guard = holder.get_lock("herd").lock().unwrap();
    let lock = waiting.get_lock("herd");
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..30).map(|_| scope.spawn(|| drop(lock.lock().unwrap()))).collect();
        eventually(SOON, "the first waiter listens", || server.subscribers(&channel("herd")) == 1);
        server.reset_counters();
        guard.unlock().unwrap();
        waiters.into_iter().for_each(joined);
    });
    // One take, then one request for each thread, and few more: no waiter asks out of turn.
    let asked = server.calls_of("evalsha");
    assert!((31..=70).contains(&asked), "{asked} requests for 30 pairs");
}

#[test]
fn a_waiter_costs_little_while_it_waits() {
    let server = RedisServer::start();
    let (holder, waiting) = (Client::connect(&server.url()).unwrap(), Client::connect(&server.url()).unwrap());
    let _guard = holder.get_lock("idle").lock().unwrap();
    let lock = waiting.get_lock("idle");
    thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..10).map(|_| scope.spawn(|| lock.try_lock_for(ms(2_500)).unwrap().is_none())).collect();
        eventually(SOON, "the first waiter listens", || server.subscribers(&channel("idle")) == 1);
        server.reset_counters();
        assert!(waiters.into_iter().all(joined));
    });
    // The first waiter in the local queue asks each second; at the end of its wait each waiter asks once more, or twice
    // if the waiter reached the front right before. If every waiter asked each second, the count would be 30 or more.
    let asked = server.calls_of("evalsha");
    assert!(asked <= 25, "{asked} requests of ten waiters in 2.5 s");
}
