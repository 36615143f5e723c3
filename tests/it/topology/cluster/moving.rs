//! Holds whose slot moves to another master: they are renewed on the way and afterwards, and nobody else is let in.

use super::kinds::{brisk, names, outlive_a_lease};
use crate::support::prelude::*;

/// A cluster of two masters, and the slot of a tag that goes from one to the other.
struct Scene {
    cluster: RedisCluster,
    tag: String,
    slot: u16,
    to: usize,
}

impl Scene {
    fn new() -> Self {
        let cluster = RedisCluster::start(2, 0);
        let tag = fresh("moving");
        Self { slot: slot_of(&tag), to: 1 - cluster.node_of(&tag), tag, cluster }
    }

    /// A hold at the target, so that its watchdog runs; the key is watched.
    fn neighbour(&self, client: &Client) -> Guard {
        let mut names = (0..).map(|number| format!("{}-{number}", self.tag));
        let name = names.find(|name| self.cluster.node_of(name) == self.to);
        let guard = client.get_lock(name.unwrap()).lock().unwrap();
        eventually(SOON, "the other key is watched", || self.cluster.node(self.to).tracked_keys() == 1);
        guard
    }

    /// Checks that the holder is told of the loss of its key at the target.
    fn assert_watched(&self, guard: &Guard, keys: usize) {
        let target = self.cluster.node(self.to);
        eventually(SOON, "the key is watched at the target", || target.tracked_keys() == keys);
        target.run(&["DEL", &self.tag]);
        let (took, lost) = timed(|| guard.wait_lost(SOON));
        assert!(lost.is_some() && took < ms(1_000) + STANDSTILLS, "told after {took:?}");
    }
}

#[test]
fn holds_of_every_kind_are_renewed_where_their_slot_goes() {
    let scene = Scene::new();
    let (client, other) = (brisk(&scene.cluster).connect().unwrap(), Client::connect(&scene.cluster.url()).unwrap());
    let guards: Vec<Guard> =
        names(&scene.tag).iter().map(|(kind, name)| (kind.lock)(&client, name).lock().unwrap()).collect();
    let all_held = |when: &str| {
        for ((kind, name), guard) in names(&scene.tag).iter().zip(&guards) {
            assert!(guard.is_held(), "{} was lost {when}: {:?}", kind.label, guard.lost());
            let free = elsewhere(|| (kind.lock)(&other.clone(), name).try_lock_for(ms(1)).unwrap_or(None).is_some());
            assert!(!free, "{} was granted {when}", kind.label);
        }
    };
    scene.cluster.begin_move(scene.slot, scene.to);
    // Every second key goes first, and the migration pauses.
    assert!(scene.cluster.move_keys(scene.slot, scene.to, |key| key.len() % 2 == 0) > 0);
    outlive_a_lease();
    all_held("while the slot migrated");
    scene.cluster.finish_move(scene.slot, scene.to);
    outlive_a_lease();
    all_held("after the slot had moved");
    scene.cluster.move_slot(scene.slot, 1 - scene.to);
    outlive_a_lease();
    all_held("after the slot had come back");
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    for (kind, name) in names(&scene.tag) {
        let guard = (kind.lock)(&other, &name).try_lock_for(SOON).unwrap();
        guard.unwrap_or_else(|| panic!("{} was not given back", kind.label)).unlock().unwrap();
    }
}

#[test]
fn a_hold_is_renewed_by_a_watchdog_that_never_had_one() {
    let scene = Scene::new();
    let client = brisk(&scene.cluster).connect().unwrap();
    let guard = client.get_lock(&scene.tag).lock().unwrap();
    scene.cluster.move_slot(scene.slot, scene.to);
    outlive_a_lease();
    assert!(guard.is_held(), "{:?}", guard.lost());
    assert!(scene.cluster.node(scene.to).clients_named("lockson") > 0);
    scene.assert_watched(&guard, 1);
}

#[test]
fn a_leased_hold_is_watched_where_a_watchdog_runs() {
    let scene = Scene::new();
    let client = brisk(&scene.cluster).connect().unwrap();
    let other = scene.neighbour(&client);
    let guard = client.get_lock(&scene.tag).with_lease(ms(60_000)).lock().unwrap();
    eventually(SOON, "the key is watched", || scene.cluster.node(1 - scene.to).tracked_keys() == 1);
    scene.cluster.move_slot(scene.slot, scene.to);
    scene.assert_watched(&guard, 2);
    other.unlock().unwrap();
}

#[test]
fn a_leased_lock_granted_over_a_redirection_is_watched() {
    let scene = Scene::new();
    // No tick of a watchdog helps.
    let client = Client::builder(&scene.cluster.url()).watchdog(SOON * 9, SOON * 3).connect().unwrap();
    let other = scene.neighbour(&client);
    scene.cluster.move_slot(scene.slot, scene.to);
    // The map of the client still names the former master.
    let guard = client.get_lock(&scene.tag).with_lease(ms(60_000)).lock().unwrap();
    scene.assert_watched(&guard, 2);
    other.unlock().unwrap();
}

#[test]
fn a_hold_follows_its_slot_without_the_right_to_track() {
    let scene = Scene::new();
    for node in scene.cluster.nodes() {
        node.run(&["ACL", "SETUSER", "default", "-client|tracking"]);
    }
    let lease = ms(4_000);
    let client = Client::builder(&scene.cluster.url()).watchdog(lease, lease / 2).connect().unwrap();
    let lock = client.get_lock(&scene.tag);
    let guard = lock.lock().unwrap();
    scene.cluster.move_slot(scene.slot, scene.to);
    assert!(lock.is_locked().unwrap(), "the map is right again");
    std::thread::sleep(lease + ms(500));
    assert!(guard.is_held(), "{:?}", guard.lost());
}

#[test]
fn a_reader_keeps_writers_out_while_its_slot_migrates() {
    let scene = Scene::new();
    let [one, two, writer] = [(); 3].map(|()| brisk(&scene.cluster).command_timeout(ms(500)).connect().unwrap());
    let read = |client: &Client| client.get_read_write_lock(&scene.tag).read().lock().unwrap();
    let write = || writer.get_read_write_lock(&scene.tag).write();
    let (first, second) = (read(&one), read(&two));
    scene.cluster.begin_move(scene.slot, scene.to);
    // The hash goes, and the keys of the read holds stay.
    assert_eq!(scene.cluster.move_keys(scene.slot, scene.to, |key| key == scene.tag.as_bytes()), 1);
    // The release is finished in the background when the slot has moved.
    kind_of(first.unlock());
    assert!(!write().try_lock_for(ms(300)).is_ok_and(|guard| guard.is_some()), "the second reader holds");
    assert!(second.is_held());
    scene.cluster.finish_move(scene.slot, scene.to);
    outlive_a_lease();
    assert!(second.is_held(), "{:?}", second.lost());
    assert!(write().try_lock_for(ms(300)).unwrap().is_none(), "the second reader holds");
    second.unlock().unwrap();
    write().try_lock_for(SOON).unwrap().expect("both readers are gone").unlock().unwrap();
}

#[test]
fn a_lock_without_scripts_is_released_where_its_slot_goes() {
    let scene = Scene::new();
    let client = Client::connect(&scene.cluster.url()).unwrap();
    let options = TokenOptions::new().with_release_by(ReleaseBy::Transaction);
    let lock = client.get_token_lock_with(&scene.tag, options).with_lease(SOON);
    let there = |word: &str| scene.cluster.node(scene.to).calls_of(word);
    let held = lock.lock().unwrap();
    scene.cluster.begin_move(scene.slot, scene.to);
    assert_eq!(scene.cluster.move_keys(scene.slot, scene.to, |_| true), 1);
    held.unlock().unwrap();
    assert!(lock.holder().unwrap().is_none());
    let held = lock.lock().unwrap();
    assert!(lock.force_unlock().unwrap());
    assert_eq!(kind_of(held.unlock()), ErrorKind::Lost(Loss::Gone));
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!((there("exec"), there("del")), (2, 2), "nothing was asked twice");
    scene.cluster.finish_move(scene.slot, scene.to);
}

/// The last permit of the set deletes the key, which is at the target then: the script ends at the next touch.
#[test]
fn a_release_beside_a_moving_slot_keeps_the_sum_of_permits() {
    let scene = Scene::new();
    let (client, other) = (brisk(&scene.cluster).connect().unwrap(), Client::connect(&scene.cluster.url()).unwrap());
    let (calls, others) =
        (client.get_permit_expirable_semaphore(&scene.tag), other.get_permit_expirable_semaphore(&scene.tag));
    calls.set_permits(3).unwrap();
    let two = calls.with_lease(ms(60_000)).acquire(2).unwrap();
    others.release_by_id(&two.ids()[1..]).unwrap();
    assert_eq!(two.wait_lost(SOON), Some(Loss::Gone));
    scene.cluster.begin_move(scene.slot, scene.to);
    drop(two);
    std::thread::sleep(ms(700)); // the background has tried
    scene.cluster.finish_move(scene.slot, scene.to);
    eventually(SOON, "all permits are back", || others.acquired().is_ok_and(|acquired| acquired == 0));
    assert_eq!(others.available().unwrap(), 3);
}

#[test]
fn locks_of_one_key_go_on_while_their_slot_migrates() {
    let scene = Scene::new();
    let client = Client::connect(&scene.cluster.url()).unwrap();
    scene.cluster.begin_move(scene.slot, scene.to);
    for (kind, name) in names(&scene.tag) {
        let lock = (kind.lock)(&client, &name);
        for _ in 0..2 {
            let outcome = lock.try_lock_for(ms(300));
            if kind.goes_on {
                outcome.unwrap().unwrap_or_else(|| panic!("{} is free", kind.label)).unlock().unwrap();
            } else {
                let error = outcome.unwrap_err();
                assert_eq!(error.redis_word(), Some("TRYAGAIN"), "{}: {error}", kind.label);
            }
        }
    }
    scene.cluster.finish_move(scene.slot, scene.to);
    for (kind, name) in names(&scene.tag) {
        let guard = (kind.lock)(&client, &name).try_lock_for(SOON).unwrap();
        guard.unwrap_or_else(|| panic!("{} is free", kind.label)).unlock().unwrap();
    }
}
