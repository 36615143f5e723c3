//! The group lock through the whole client: holds of values beside each other, waits, renewal, losses.
#![cfg(test)]

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
    assert_eq!(one.wait_lost(2 * TTL), None);
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
    assert!(scene.client.get_lock("group").try_lock().unwrap().is_none());
    value.unlock().unwrap();
}

#[test]
fn threads_of_one_client_take_a_value_one_by_one() {
    let scene = Scene::start();
    let inside = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..8 {
            let (scene, inside) = (&scene, &inside);
            scope.spawn(move || {
                for _ in 0..20 {
                    let own = scene.value(&number.to_string()).lock().unwrap();
                    let shared = scene.value("shared").lock().unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    shared.unlock().unwrap();
                    own.unlock().unwrap();
                }
            });
        }
    });
    assert!(scene.server.keys().is_empty());
}
