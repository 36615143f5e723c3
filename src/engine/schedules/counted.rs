//! Threads that wait for a part of a count: no thread that fits sleeps beside free permits.
#![cfg(all(test, shuttle))]

use std::sync::Arc;

use shuttle::thread;

use super::{NEVER, check};
use crate::bell::Bell;
use crate::cancel::Cancel;
use crate::engine::cells::queues::Queues;
use crate::name::LockName;
use crate::sync::Mutex;

struct Scene {
    queues: Queues,
    name: LockName,
    /// The count in Redis.
    free: Mutex<i64>,
}

impl Scene {
    /// Adds to the count. Messages come in the order of the changes, as Redis sends them.
    fn release(&self, permits: u32) {
        let mut free = self.free.lock();
        *free += i64::from(permits);
        self.queues.message(&self.name, free.to_string().as_bytes());
    }

    /// Acts as a caller that gives up only on request. Returns whether it was granted its wish.
    fn take(&self, wish: u32, cancel: &Cancel) -> bool {
        let bell = Bell::new();
        let mut position = self.queues.join(self.name.clone(), wish, &bell, false);
        cancel.hang(&bell);
        loop {
            if position.may_ask() {
                position.asks();
                let mut free = self.free.lock();
                let left = *free - i64::from(wish);
                if left >= 0 {
                    *free = left;
                    drop(free);
                    position.granted(left, true);
                    return true;
                }
                let busy = *free;
                drop(free);
                position.answered(busy);
            }
            if cancel.is_cancelled() {
                return false;
            }
            bell.wait(NEVER);
        }
    }
}

/// The patient callers want `wishes`; cancelled callers want a permit each, and give the permit back.
fn at_a_count(wishes: &'static [u32], impatient: usize) {
    let name = LockName::new("n").unwrap();
    let scene = Arc::new(Scene { queues: Queues::default(), name, free: Mutex::default() });
    let mut callers = vec![];
    for wish in wishes {
        let scene = Arc::clone(&scene);
        callers.push(thread::spawn(move || assert!(scene.take(*wish, &Cancel::new()))));
    }
    for _ in 0..impatient {
        let cancel = Cancel::new();
        let canceller = cancel.clone();
        callers.push(thread::spawn(move || canceller.cancel()));
        let scene = Arc::clone(&scene);
        callers.push(thread::spawn(move || {
            if scene.take(1, &cancel) {
                scene.release(1);
            }
        }));
    }
    let total: u32 = wishes.iter().sum();
    let releaser = Arc::clone(&scene);
    callers.push(thread::spawn(move || (0..total).for_each(|_| releaser.release(1))));
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(*scene.free.lock(), 0);
}

#[test]
fn each_permit_reaches_a_waiter_that_it_suffices_for() {
    check(2_000, || at_a_count(&[1, 1, 1], 0));
    check(1_000, || at_a_count(&[2, 1], 0));
}

#[test]
fn a_waiter_that_gives_up_passes_its_wake_up_on() {
    check(2_000, || at_a_count(&[1], 1));
    check(1_000, || at_a_count(&[1, 2], 1));
}
