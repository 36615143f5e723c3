//! Threads that hand one lock on, or leave while a release has chosen them: one holds, none sleeps on, nothing is left.
#![cfg(all(test, shuttle))]

use std::sync::Arc;

use shuttle::thread;

use super::{NEVER, START, all_call, check};
use crate::bell::Bell;
use crate::cancel::Cancel;
use crate::engine::cells::queues::Queues;
use crate::engine::cells::successor::{Chosen, Handed, Successor};
use crate::name::LockName;
use crate::owner::{OwnerId, Owners, ThreadNumber};
use crate::state::exchange::InDoubt;
use crate::state::stand_back::Chain;
use crate::sync::Mutex;
use crate::time::Lease;

struct Scene {
    queues: Queues,
    name: LockName,
    owners: Owners,
    /// The owner in Redis.
    redis: Mutex<Option<OwnerId>>,
    inside: Mutex<usize>,
    /// Whether the first answer to a release that hands the lock on is lost.
    loses_an_answer: Mutex<bool>,
    /// Whether somebody forces the lock open, so that two may be inside.
    is_forced_open: bool,
}

impl Scene {
    /// Takes the lock for this owner, if it is free or the owner's.
    fn ask(&self, owner: &OwnerId) -> bool {
        let mut redis = self.redis.lock();
        redis.get_or_insert_with(|| owner.clone()) == owner
    }

    fn free(&self, owner: &OwnerId) {
        let mut redis = self.redis.lock();
        if redis.as_ref() == Some(owner) {
            *redis = None;
            drop(redis);
            self.queues.hint(&self.name);
        }
    }

    fn give_back(&self, owner: &OwnerId) {
        let first = self.queues.first(&self.name);
        let Some(chosen) = first.and_then(|(successor, _)| Chosen::of(successor)) else { return self.free(owner) };
        let next = chosen.successor.owner.clone();
        let mut redis = self.redis.lock();
        if redis.as_ref() != Some(owner) {
            drop(redis);
            return chosen.give_up();
        }
        *redis = Some(next.clone());
        drop(redis);
        let is_lost = std::mem::take(&mut *self.loses_an_answer.lock());
        let chain = Chain::next(None, 1, START).unwrap();
        let granted = (!is_lost).then_some((START, chain));
        if !chosen.hand(Handed { in_doubt: InDoubt::default(), granted }) {
            self.free(&next);
        }
    }

    fn successor(&self, bell: &Bell) -> Arc<Successor> {
        let lease = Lease::new(std::time::Duration::from_secs(30)).unwrap();
        Arc::new(Successor::new(self.owners.draw(ThreadNumber(1)).1, lease, bell.clone()))
    }

    /// Waits as a caller that gives up only on request. Returns whether it held the lock.
    fn take(&self, cancel: &Cancel) -> bool {
        let bell = Bell::new();
        let mut line = self.queues.join(self.name.clone(), 1, &bell, false);
        let mut successor = self.successor(&bell);
        line.succeeds_as(&successor);
        cancel.hang(&bell);
        let granted = loop {
            let is_chosen = !successor.wakes();
            let handed = if is_chosen { successor.leaves() } else { None };
            if is_chosen && handed.is_none() {
                successor = self.successor(&bell);
                line.succeeds_as(&successor);
            }
            let is_handed = handed.is_some_and(|handed| handed.granted.is_some());
            let is_granted = is_handed
                || line.may_ask() && {
                    line.asks();
                    self.ask(&successor.owner)
                };
            if is_granted {
                line.granted(0, true);
                break true;
            }
            if cancel.is_cancelled() {
                break false;
            }
            successor.falls_asleep();
            bell.wait(NEVER);
        };
        drop(line);
        if !granted {
            // What was handed to a thread that gave up is cleared away, be it a grant or a doubt.
            if successor.leaves().is_some() {
                self.free(&successor.owner);
            }
            return false;
        }
        if self.is_forced_open {
            // A lost hold wakes nobody for as long as it is believed in.
            if self.redis.lock().as_ref() == Some(&successor.owner) {
                self.give_back(&successor.owner);
            }
            return true;
        }
        *self.inside.lock() += 1;
        assert_eq!(*self.inside.lock(), 1, "two are inside");
        assert_eq!(self.redis.lock().as_ref(), Some(&successor.owner));
        *self.inside.lock() -= 1;
        self.give_back(&successor.owner);
        true
    }
}

fn in_succession(impatient: usize, patient: usize, loses_an_answer: bool, is_forced_open: bool) {
    let scene = Arc::new(Scene {
        queues: Queues::default(),
        name: LockName::new("n").unwrap(),
        owners: Owners::new(),
        redis: Mutex::default(),
        inside: Mutex::default(),
        loses_an_answer: Mutex::new(loses_an_answer),
        is_forced_open,
    });
    let forced = Arc::clone(&scene);
    let user = is_forced_open.then(|| {
        thread::spawn(move || {
            *forced.redis.lock() = None;
            forced.queues.hint(&forced.name);
        })
    });
    all_call(&scene, impatient, patient, Scene::take);
    user.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!(*scene.redis.lock(), None, "a hold is left");
    assert!(scene.queues.is_empty());
}

#[test]
fn a_lock_goes_from_thread_to_thread() {
    check(2_000, || in_succession(0, 4, false, false));
}

#[test]
fn a_chosen_thread_that_gives_up_leaves_nothing() {
    check(4_000, || in_succession(2, 2, false, false));
}

#[test]
fn a_lost_answer_leaves_one_holder() {
    check(4_000, || in_succession(1, 3, true, false));
}

#[test]
fn a_lock_that_is_forced_open_is_taken_at_once() {
    check(4_000, || in_succession(0, 3, false, true));
}
