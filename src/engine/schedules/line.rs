//! Threads in the local queue of one lock: no thread sleeps on, none overtakes, one holds, no entry is left.
#![cfg(all(test, shuttle))]

use std::sync::Arc;

use super::{NEVER, all_call, check};
use crate::bell::Bell;
use crate::cancel::Cancel;
use crate::engine::cells::queues::Queues;
use crate::name::LockName;
use crate::sync::Mutex;

/// The lock in Redis, and the threads that got it.
#[derive(Default)]
struct Redis {
    taken: bool,
    inside: usize,
    served: Vec<u64>,
}

struct Scene {
    local_queues: Queues,
    name: LockName,
    redis: Mutex<Redis>,
}

/// Acts as a caller that gives up only on request. Returns whether it held the lock.
fn take(scene: &Scene, cancel: &Cancel) -> bool {
    let bell = Bell::new();
    let place = scene.local_queues.join(scene.name.clone(), 1, &bell, false);
    cancel.hang(&bell);
    loop {
        if place.may_ask() {
            let mut redis = scene.redis.lock();
            if !redis.taken {
                redis.taken = true;
                redis.served.push(place.number());
                break;
            }
        }
        if cancel.is_cancelled() {
            return false;
        }
        bell.wait(NEVER);
    }
    drop(place);
    scene.redis.lock().inside += 1;
    assert_eq!(scene.redis.lock().inside, 1, "two are inside");
    let mut redis = scene.redis.lock();
    (redis.inside, redis.taken) = (0, false);
    drop(redis);
    scene.local_queues.hint(&scene.name);
    true
}

fn in_line(impatient: usize, patient: usize) {
    let scene = Scene { local_queues: Queues::default(), name: LockName::new("n").unwrap(), redis: Mutex::default() };
    let scene = Arc::new(scene);
    all_call(&scene, impatient, patient, take);
    let redis = scene.redis.lock();
    assert!(redis.served.len() >= patient && redis.served.is_sorted(), "{:?}", redis.served);
    assert!(scene.local_queues.is_empty());
}

#[test]
fn waiters_in_the_local_queue_are_served_in_turn() {
    check(2_000, || in_line(0, 4));
}

#[test]
fn a_waiter_that_gives_up_its_place_delays_no_other() {
    check(2_000, || in_line(2, 2));
}
