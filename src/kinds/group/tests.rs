//! The group lock through the whole client: holds of values beside each other, waits, renewal, losses.
#![cfg(test)]

mod java;
mod scripts;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockson_harness::{RedisServer, eventually};

use crate::{Client, ErrorKind, Lock, LockKind, Loss};

const SOON: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(2);

struct Scene {
    server: RedisServer,
    client: Client,
}

impl Scene {
    fn start() -> Self {
        let server = RedisServer::start();
        let client = Self::client_of(&server);
        Self { server, client }
    }

    fn client_of(server: &RedisServer) -> Client {
        Client::builder(&server.url()).watchdog(TTL, Duration::from_millis(100)).connect().unwrap()
    }

    fn value(&self, value: &str) -> Lock {
        self.client.value_of_group("group", value)
    }

    fn field(&self, value: &str) -> String {
        crate::name::GivenName::of_value(&"group".into(), value).checked().unwrap().field().to_owned()
    }
}

/// The values of the group as one lock.
fn values(client: &Client, values: &[&str]) -> Lock {
    Lock::multi(values.iter().map(|value| client.value_of_group("group", value)))
}

fn other_client_of(scene: &Scene, value: &str) -> (Client, Lock) {
    let client = Scene::client_of(&scene.server);
    let lock = client.value_of_group("group", value);
    (client, lock)
}

#[test]
fn values_are_locks_of_their_own() {
    let scene = Scene::start();
    let (one, two) = (scene.value("1"), scene.value("2"));
    let (first, second) = (one.lock().unwrap(), two.lock().unwrap());
    let again = one.lock().unwrap();
    assert_eq!((one.hold_count(), two.hold_count(), scene.value("3").hold_count()), (2, 1, 0));
    assert!(first.owner() == again.owner() && first.owner() != second.owner());
    let holder = one.holder().unwrap().unwrap();
    assert_eq!((holder.owner(), holder.hold_count()), (first.owner(), 2));
    assert!(first.is_held() && again.is_held(), "the grant of another value takes nothing away");
    let held = scene.client.held();
    assert_eq!(
        held.iter().map(|held| (held.name(), held.kind())).collect::<Vec<_>>(),
        [("group[1]", LockKind::Group), ("group[2]", LockKind::Group)]
    );
    let (_other, locked) = other_client_of(&scene, "1");
    assert!(locked.is_locked().unwrap() && locked.try_lock().unwrap().is_none());
    drop(first);
    assert!(locked.try_lock().unwrap().is_none());
    again.unlock().unwrap();
    assert!(locked.try_lock().unwrap().is_some(), "the other value is held on");
    assert!(second.is_held());
    second.unlock().unwrap();
    assert!(!two.is_locked().unwrap() && two.remaining_time_to_live().unwrap().is_none());
    assert!(scene.server.keys().is_empty());
}

#[test]
fn a_release_wakes_a_waiter_of_another_client() {
    let scene = Scene::start();
    let (_other, lock) = other_client_of(&scene, "1");
    let mut delays: Vec<Duration> = (0..5)
        .map(|_| {
            let guard = lock.lock().unwrap();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let guard = scene.value("1").lock().unwrap();
                    (Instant::now(), guard.unlock())
                });
                eventually(SOON, "the waiter listens", || {
                    scene.server.subscribers("redisson_lock__channel:{group}") > 0 && !scene.client.waiting().is_empty()
                });
                thread::sleep(Duration::from_millis(50));
                let released = Instant::now();
                guard.unlock().unwrap();
                let (taken, unlocked) = waiter.join().unwrap();
                unlocked.unwrap();
                taken - released
            })
        })
        .collect();
    delays.sort();
    assert!(delays[2] < Duration::from_millis(300), "{delays:?}");
}

#[test]
fn held_values_are_renewed_and_leases_end() {
    let scene = Scene::start();
    let (one, two) = (scene.value("1").lock().unwrap(), scene.value("2").lock().unwrap());
    let leased = scene.value("3").with_lease(Duration::from_millis(500)).lock().unwrap();
    assert_eq!(leased.wait_lost(SOON), Some(Loss::Expired));
    assert_eq!(one.wait_lost(TTL * 5 / 4), None);
    assert!(two.is_held());
    let (_other, lock) = other_client_of(&scene, "3");
    let guard = lock.try_lock_for(SOON).unwrap().expect("the lease is over");
    assert!(guard.extend(SOON).is_ok() && lock.remaining_time_to_live().unwrap().unwrap() > TTL);
    [one, two, guard].into_iter().for_each(|guard| guard.unlock().unwrap());
    drop(leased);
    eventually(SOON, "nothing is left", || scene.server.keys().is_empty());
}

#[test]
fn a_loss_of_one_value_is_told_and_concerns_no_other() {
    let scene = Scene::start();
    let guards = ["forced", "deleted", "taken", "kept"].map(|value| scene.value(value).lock().unwrap());
    let (_other, lock) = other_client_of(&scene, "forced");
    assert!(lock.force_unlock().unwrap());
    scene.server.run(&["HDEL", "group", &scene.field("deleted")]);
    scene.server.run(&["HSET", "group", &scene.field("taken"), "someone"]);
    let losses = guards[..3].iter().map(|guard| guard.wait_lost(SOON)).collect::<Vec<_>>();
    assert_eq!(losses, [Loss::Gone, Loss::Gone, Loss::Taken].map(Some));
    assert_eq!(guards[3].wait_lost(Duration::from_millis(300)), None);
    assert!(scene.value("kept").force_unlock().unwrap());
    assert_eq!(guards[3].lost(), Some(Loss::Gone));
}

#[test]
fn a_lock_of_the_whole_key_is_another_kind() {
    let scene = Scene::start();
    let plain = scene.client.get_lock("group").lock().unwrap();
    let error = scene.value("1").lock().unwrap_err();
    assert_eq!((error.kind(), error.lock_name()), (ErrorKind::OtherKind, Some("group[1]")));
    plain.unlock().unwrap();
    let value = scene.value("1").lock().unwrap();
    assert_eq!(scene.client.get_lock("group").try_lock().unwrap_err().kind(), ErrorKind::OtherKind);
    value.unlock().unwrap();
}

#[test]
fn threads_of_one_client_take_a_value_one_by_one() {
    let scene = Scene::start();
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..8 {
            let (scene, inside) = (&scene, &inside);
            scope.spawn(move || {
                for _ in 0..20 {
                    let own = scene.value(&number.to_string()).lock().unwrap();
                    let shared = scene.value("shared").lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    shared.unlock().unwrap();
                    own.unlock().unwrap();
                }
            });
        }
    });
    assert!(scene.server.keys().is_empty());
}

#[test]
fn several_values_are_taken_and_released_in_one_request_each() {
    let scene = Scene::start();
    let lock = values(&scene.client, &["1", "2", "3"]);
    lock.lock().unwrap().unlock().unwrap(); // from here on the scripts are known
    let mut connection = scene.server.connection();
    let mut messages = connection.as_pubsub();
    messages.subscribe(&["redisson_lock__channel:{group}", "end"]).unwrap();
    scene.server.reset_counters();
    let guard = lock.lock().unwrap();
    let fields: usize = scene.server.query(&["HLEN", "group"]);
    guard.unlock().unwrap();
    assert_eq!((fields, scene.server.calls_of("evalsha"), scene.server.calls_of("eval")), (9, 2, 0));
    assert_eq!(messages.get_message().unwrap().get_payload_bytes(), b"0");
    scene.server.run(&["PUBLISH", "end", "of test"]);
    assert_eq!(messages.get_message().unwrap().get_channel_name(), "end", "one message for all values");
    assert!(scene.server.keys().is_empty());
}

#[test]
fn a_thread_re_enters_the_values_that_it_holds() {
    let scene = Scene::start();
    let (outer, inner) = (values(&scene.client, &["1", "2"]), values(&scene.client, &["2", "3"]));
    let counts = || ["1", "2", "3"].map(|value| scene.value(value).hold_count());
    let outer = outer.lock().unwrap();
    let inner = inner.lock().unwrap();
    assert_eq!(counts(), [1, 2, 1]);
    inner.unlock().unwrap();
    assert_eq!(counts(), [1, 1, 0]);
    assert!(outer.is_held());
    let (_other, lock) = other_client_of(&scene, "2");
    assert!(lock.try_lock().unwrap().is_none());
    outer.unlock().unwrap();
    assert!(lock.try_lock().unwrap().is_some());
}

#[test]
fn a_busy_value_keeps_all_out_and_wakes_nobody() {
    let scene = Scene::start();
    let (_other, lock) = other_client_of(&scene, "2");
    let guard = lock.lock().unwrap();
    let fields = || scene.server.query::<std::collections::BTreeMap<String, String>>(&["HGETALL", "group"]);
    let before: Vec<_> = fields().into_keys().collect();
    let mut connection = scene.server.connection();
    let mut messages = connection.as_pubsub();
    messages.subscribe(&["redisson_lock__channel:{group}", "end"]).unwrap();
    let group = values(&scene.client, &["1", "2", "3"]);
    assert!(group.try_lock().unwrap().is_none());
    assert_eq!(fields().into_keys().collect::<Vec<_>>(), before);
    scene.server.run(&["PUBLISH", "end", "of test"]);
    assert_eq!(messages.get_message().unwrap().get_channel_name(), "end", "nothing was published");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| group.lock().unwrap().unlock().unwrap());
        eventually(SOON, "it waits", || !scene.client.waiting().is_empty());
        guard.unlock().unwrap();
        waiter.join().unwrap();
    });
    assert!(scene.server.keys().is_empty());
}

#[test]
fn clients_with_overlapping_groups_all_get_their_turn() {
    let scene = Scene::start();
    let clients = [(); 3].map(|()| Scene::client_of(&scene.server));
    let sets = [["1", "2"], ["2", "3"], ["3", "1"]];
    let inside = ["1", "2", "3"].map(|_| AtomicUsize::new(0));
    thread::scope(|scope| {
        for (client, set) in clients.iter().zip(sets) {
            let inside = &inside;
            scope.spawn(move || {
                let lock = values(client, &set);
                for _ in 0..30 {
                    let guard = lock.lock().unwrap();
                    let own = set.map(|value| &inside[value.parse::<usize>().unwrap() - 1]);
                    own.iter().for_each(|own| assert_eq!(own.fetch_add(1, Ordering::SeqCst), 0));
                    for own in own {
                        own.fetch_sub(1, Ordering::SeqCst);
                    }
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert!(scene.server.keys().is_empty());
}
