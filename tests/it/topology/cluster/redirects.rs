//! Requests while a slot moves, and after it has moved.

use std::sync::OnceLock;

use crate::support::prelude::*;

/// Two masters whose slots move; each test moves a slot of its own.
fn moving() -> &'static RedisCluster {
    static MOVING: OnceLock<RedisCluster> = OnceLock::new();
    MOVING.get_or_init(|| RedisCluster::start(2, 0))
}

fn client() -> Client {
    Client::connect(&moving().url()).unwrap()
}

/// A fresh name, its slot, and the master that does not have the slot.
fn name_to_move() -> (String, u16, usize) {
    let name = fresh("moving");
    let slot = slot_of(&name);
    (name, slot, 1 - moving().owner_of(slot))
}

fn has(node: usize, name: &str) -> bool {
    moving().node(node).try_query::<bool>(&["EXISTS", name]).unwrap_or(false)
}

fn refusals(word: &str) -> u64 {
    let count = |stat: String| stat.split('=').nth(1).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    let of = |node: &lockson_harness::RedisServer| node.info(&format!("errorstat_{word}")).map_or(0, count);
    moving().nodes().iter().map(of).sum()
}

#[test]
fn a_held_lock_is_released_where_its_slot_went() {
    let (name, slot, to) = name_to_move();
    let client = client();
    let guard = client.get_lock(&name).try_lock().unwrap().expect("nobody else wants it");
    moving().move_slot(slot, to);
    assert!(has(to, &name));
    assert!(client.get_lock(&name).is_locked().unwrap());
    assert!(client.get_lock(&name).try_lock().unwrap().is_some(), "this thread enters again");
    guard.unlock().unwrap();
    assert!(!has(to, &name));
}

#[test]
fn a_free_lock_of_a_moving_slot_is_taken_at_the_new_place() {
    let (name, slot, to) = name_to_move();
    moving().begin_move(slot, to);
    let client = client();
    // The new place has not run the scripts before: their source needs `ASKING` as well.
    moving().node(to).run(&["SCRIPT", "FLUSH"]);
    let guard = client.get_lock(&name).try_lock().unwrap().expect("nobody else wants it");
    guard.unlock().unwrap();
    let guard = client.get_lock(&name).try_lock().unwrap().expect("nobody else wants it");
    moving().finish_move(slot, to);
    assert!(has(to, &name));
    guard.unlock().unwrap();
}

#[test]
fn moving_locks_are_taken_together_where_no_script_is() {
    let (first, slot, to) = name_to_move();
    let (second, other, _) = std::iter::repeat_with(name_to_move).find(|(_, _, there)| *there == to).unwrap();
    let client = client();
    [slot, other].into_iter().for_each(|slot| moving().begin_move(slot, to));
    moving().node(to).run(&["SCRIPT", "FLUSH"]);
    let locks = Lock::multi([first, second].map(|name| client.get_lock(name)));
    locks.try_lock_for(SOON).unwrap().expect("nobody else wants them").unlock().unwrap();
    [slot, other].into_iter().for_each(|slot| moving().finish_move(slot, to));
}

#[test]
fn a_held_lock_of_a_moving_slot_stays_held() {
    let (name, slot, to) = name_to_move();
    let (client, other) = (client(), client());
    let guard = client.get_lock(&name).try_lock().unwrap().expect("nobody else wants it");
    moving().begin_move(slot, to);
    let refused = || assert!(other.get_lock(&name).try_lock().unwrap().is_none());
    refused();
    moving().move_keys(slot, to, |_| true);
    refused();
    guard.unlock().unwrap();
    assert!(other.get_lock(&name).try_lock().unwrap().is_some());
    moving().finish_move(slot, to);
}

#[test]
fn a_lock_of_several_keys_waits_until_its_slot_has_moved() {
    let (name, slot, to) = name_to_move();
    moving().begin_move(slot, to);
    let lock = client().get_fair_lock(&name);
    let before = refusals("TRYAGAIN");
    let waiter = {
        let lock: Lock = lock.clone();
        thread::spawn(move || lock.try_lock_for(SOON).unwrap().expect("the slot has moved").unlock().unwrap())
    };
    eventually(SOON, "it is put off", || refusals("TRYAGAIN") > before);
    moving().finish_move(slot, to);
    waiter.join().unwrap();
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn locks_whose_slots_part_are_given_back_together() {
    let names: Vec<(String, u16, usize)> = (0..4).map(|_| name_to_move()).collect();
    let client = client();
    let multi = Lock::multi(names.iter().map(|(name, ..)| client.get_lock(name)));
    let guard = multi.try_lock().unwrap().expect("nobody else wants them");
    let (_, slot, to) = &names[0];
    moving().move_slot(*slot, *to);
    guard.unlock().unwrap();
    multi.try_lock().unwrap().expect("all are free").unlock().unwrap();
}
