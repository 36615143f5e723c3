//! Beside a client that runs Redisson's scripts, by the wire document: one queue, one order.

use super::java_client::{Java, heard};
use super::silent::{ask, give_up, release};
use super::{PATIENCE, Queue, hasty_client, now_ms};
use crate::support::prelude::*;

#[test]
fn a_waiter_behind_an_old_one_of_java_keeps_its_place() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let [before, behind] = [1, 2].map(|thread| Java::new(&server, "job", thread));
    let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
    assert!(before.ask_as_of(250_000).is_some());
    thread::scope(|scope| {
        let ours = queue.waiter(scope, hasty_client(&server).get_fair_lock("job"), super::leave);
        assert!(behind.ask().is_some());
        let order = queue.owners();
        guard.unlock().unwrap();
        assert_eq!(before.ask(), None);
        // The grant took 300 s from every waiter behind, more than lay between them; the next request of the second
        // Java waiter purges.
        assert!(behind.ask().is_some());
        assert_eq!(queue.owners(), order[1..], "a waiter behind one of Java has 300 s to give away");
        assert_eq!(before.unlock(), Some(1));
        joined(ours);
        assert_eq!(behind.ask(), None);
        assert_eq!(behind.unlock(), Some(1));
    });
    queue.assert_gone();
}

#[test]
fn a_waiter_that_java_dropped_hides_none_of_java() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let [before, behind] = [1, 2].map(|thread| Java::new(&server, "job", thread));
    let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
    assert!(before.ask().is_some());
    // Java drops a waiter from list and deadlines, and knows of no third key.
    let silent_since = (now_ms(&server) - 1_000).to_string();
    let _: i64 = server.query(&["ZADD", &queue.alive(), &silent_since, "dropped:1.1"]);
    thread::scope(|scope| {
        let ours = queue.waiter(scope, hasty_client(&server).get_fair_lock("job"), super::leave);
        let order = queue.owners();
        guard.unlock().unwrap();
        assert_eq!(before.ask(), None);
        // The grant took 300 s from the waiter behind, and this request purges.
        assert!(behind.ask().is_some());
        assert_eq!(queue.owners()[..1], order[1..], "ours knows that one of Java is in front of it");
        assert_eq!(before.unlock(), Some(1));
        joined(ours);
        assert_eq!(behind.ask(), None);
        assert_eq!(behind.unlock(), Some(1));
    });
    queue.assert_gone();
}

#[test]
fn java_behind_us_is_promised_our_patience_and_its_own_time() {
    for gives_up in [false, true] {
        let server = RedisServer::start();
        let queue = Queue { server: &server, name: "job" };
        let behind = Java::new(&server, "job", 2);
        let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
        let stop = lockson::Cancel::new();
        thread::scope(|scope| {
            let (go, told) = crossbeam_channel::bounded::<()>(1);
            let lock = hasty_client(&server).get_fair_lock("job").with_cancel(&stop);
            let ours = scope.spawn(move || {
                let Ok(guard) = lock.lock() else { return };
                told.recv_timeout(SOON).unwrap();
                guard.unlock().unwrap();
            });
            queue.await_length(1);
            eventually(SOON, "the waiter is first", || queue.left_ms().values().all(|left| *left <= 2_000));
            let told_ms = behind.ask().expect("the lock is held");
            let left = queue.left_ms();
            let (before_us, after_us) = (left[&queue.owners()[0]], left[&behind.owner]);
            // The deadline of Lockson's waiter is read a little later than the Java waiter's answer, and may have moved
            // in between; the lock lives for 30 s.
            let between = told_ms - before_us;
            assert!((0..=2_000).contains(&before_us) && (-1_000..=1_000).contains(&between), "{told_ms}, {left:?}");
            assert!((after_us - before_us - 300_000).abs() <= 1_000, "{left:?}");
            if gives_up {
                stop.cancel();
            } else {
                guard.unlock().unwrap();
            }
            queue.await_length(1);
            let now = queue.left_ms()[&behind.owner];
            // Nothing is taken from the waiter behind, but time has passed.
            assert!((after_us - 1_500..=after_us).contains(&now), "{after_us} became {now}");
            if !gives_up {
                go.send(()).unwrap();
            }
            joined(ours);
        });
        if gives_up {
            assert!(queue.owners() == [behind.owner.clone()]);
        } else {
            assert_eq!(behind.ask(), None);
            assert_eq!(behind.unlock(), Some(1));
            queue.assert_gone();
        }
    }
}

#[test]
fn a_dead_waiter_of_java_costs_our_patience_not_300_seconds() {
    for forced in [false, true] {
        let server = RedisServer::start();
        let queue = Queue { server: &server, name: "job" };
        let dead = [1, 2].map(|thread| Java::new(&server, "job", thread));
        let client = hasty_client(&server);
        let guard = client.get_fair_lock("job").lock().unwrap();
        assert!(dead.iter().all(|java| java.ask().is_some()));
        thread::scope(|scope| {
            let ours = queue.waiter(scope, hasty_client(&server).get_fair_lock("job"), super::leave);
            if forced {
                assert!(client.get_fair_lock("job").force_unlock().unwrap());
            } else {
                guard.unlock().unwrap();
            }
            let released = std::time::Instant::now();
            let waited = joined(ours).0.saturating_duration_since(released);
            assert!(waited <= 2 * PATIENCE + ms(1_000) + SCHEDULING, "{waited:?}, forced: {forced}");
        });
        queue.assert_gone();
    }
}

#[test]
fn a_waiter_of_java_with_little_time_hears_of_a_deleted_lock() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    server.run(&["RPUSH", &queue.list(), "java:1"]);
    let soon = now_ms(server) + i64::try_from(PATIENCE.as_millis()).unwrap() * 3 / 4;
    server.run(&["ZADD", &queue.deadlines(), &soon.to_string(), "java:1"]);
    let mut listening = server.connection();
    let () = redis::cmd("SUBSCRIBE").arg(queue.channel_of("java:1")).query(&mut listening).unwrap();
    let cancel = Cancel::new();
    let lock = hasty_client(server).get_fair_lock(&name).with_cancel(&cancel);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        // Whoever leaves tells the next one, too.
        let is_told = heard(&mut listening);
        cancel.cancel();
        assert!(joined(waiter).is_err() && is_told);
    });
}

/// Puts a dead waiter in front: dead by the deadline that Java checks, or by silence.
fn put_dead(queue: Queue<'_>, owner: &str, is_ours: bool) {
    let later = (now_ms(queue.server) + 300_000).to_string();
    queue.server.run(&["LPUSH", &queue.list(), owner]);
    queue.server.run(&["ZADD", &queue.deadlines(), if is_ours { &later } else { "1" }, owner]);
    if is_ours {
        queue.server.run(&["ZADD", &queue.alive(), "1", owner]);
    }
}

#[test]
fn a_waiter_of_java_hears_of_its_turn_after_a_dead_one() {
    type Act = fn(&Client, &str, &Queue<'_>, bool);
    let acts: [(&str, bool, Act); 4] = [
        ("a try", true, |client, name, _, _| assert!(client.get_fair_lock(name).try_lock().unwrap().is_none())),
        ("a waiter", true, |client, name, queue, _| {
            // Without a message, as Java does.
            queue.server.run(&["LPOP", &queue.list()]);
            queue.server.run(&["ZREM", &queue.deadlines(), "dead:1"]);
            assert!(client.get_fair_lock(name).try_lock_for(ms(100)).unwrap().is_none());
            assert!(queue.left_ms()["java:1"] <= i64::try_from(PATIENCE.as_millis()).unwrap());
        }),
        ("a force unlock", false, |client, name, _, _| assert!(client.get_fair_lock(name).force_unlock().unwrap())),
        ("one that leaves", false, |client, name, queue, dead_is_ours| {
            let cancel = Cancel::new();
            let lock = client.get_fair_lock(name).with_cancel(&cancel);
            thread::scope(|scope| {
                let waiter = scope.spawn(|| lock.lock().map(drop));
                eventually(SOON, "the waiter has joined", || {
                    queue.owners().last().is_some_and(|last| last != "java:1")
                });
                put_dead(*queue, "dead:2", dead_is_ours);
                queue.server.run(&["DEL", name]);
                cancel.cancel();
                assert!(joined(waiter).is_err());
            });
        }),
    ];
    for ((what, free, act), dead_is_ours) in acts.iter().flat_map(|act| [(act, true), (act, false)]) {
        let (server, name) = (RedisServer::shared(), fresh("fair"));
        let queue = Queue { server, name: &name };
        let client = hasty_client(server);
        let held = (!*free).then(|| hasty_client(server).get_fair_lock(&name).lock().unwrap());
        server.run(&["RPUSH", &queue.list(), "java:1"]);
        server.run(&["ZADD", &queue.deadlines(), &(now_ms(server) + 300_000).to_string(), "java:1"]);
        put_dead(queue, "dead:1", dead_is_ours);
        let mut listening = server.connection();
        let () = redis::cmd("SUBSCRIBE").arg(queue.channel_of("java:1")).query(&mut listening).unwrap();
        act(&client, &name, &queue, dead_is_ours);
        assert!(heard(&mut listening), "{what}");
        assert_eq!(queue.owners(), ["java:1"], "{what}");
        drop(held);
        server.run(&["DEL", &name, &queue.list(), &queue.deadlines(), &queue.alive()]);
    }
}

/// The second one sleeps for minutes, so a first one that is dropped would leave the lock free all that time.
#[test]
fn a_late_waiter_of_java_keeps_its_place_before_those_of_java() {
    for leaves in [false, true] {
        let server = RedisServer::start();
        let queue = Queue { server: &server, name: "job" };
        let [first, second] = [1, 2].map(|thread| Java::new(&server, "job", thread));
        assert!(ask(queue, "holder:1.1"));
        if leaves {
            assert!(!ask(queue, "head:1.1"));
        }
        assert!(first.ask().is_some() && second.ask().is_some());
        let before = queue.left_ms()[&first.owner];
        server.run(&["ZADD", &queue.alive(), "1000", "dead:1.1"]);
        release(queue, "holder:1.1");
        if leaves {
            give_up(queue, "head:1.1");
        }
        let left = queue.left_ms()[&first.owner];
        assert!(before > 100_000 && left > before - 10_000, "{leaves}: {before}, {left}");
        assert!(first.ask().is_none(), "its turn is not over");
    }
}
