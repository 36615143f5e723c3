//! A client that closes while threads take and release: no hold stays, no thread sleeps on, no request follows.
#![cfg(all(test, shuttle))]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use super::{START, check};
use crate::engine::cells::registry::Registry;
use crate::engine::hold::HoldState;
use crate::engine::life::Life;
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::{OwnerId, Owners, ThreadId};
use crate::script::Side;
use crate::state::ledger::{Ledger, Phase, Promise, Release};
use crate::sync::Mutex;
use crate::time::{Instant, Lease};

/// The state of Redis, and whether its connections are closed.
#[derive(Default)]
struct Redis {
    owners: HashSet<OwnerId>,
    is_closed: bool,
}

impl Redis {
    fn request(&mut self, use_owners: impl FnOnce(&mut HashSet<OwnerId>)) {
        assert!(!self.is_closed, "a request comes after the end");
        use_owners(&mut self.owners);
    }
}

struct Scene {
    under_way: Life,
    registry: Registry,
    owners: Owners,
    redis: Mutex<Redis>,
    /// All granted holds.
    holds: Mutex<Vec<Arc<HoldState>>>,
}

impl Scene {
    /// Takes and releases a lock a few times, until the client refuses; may close the client within an operation.
    fn work(&self, thread: &ThreadId, closes_inside: bool) {
        let name = LockName::new("n").unwrap();
        let lease = Lease::new(Duration::from_secs(30)).unwrap();
        for turn in 0..3 {
            if !self.under_way.begin() {
                return;
            }
            let (number, owner) = self.owners.draw(thread.number());
            self.redis.lock().request(|owners| _ = owners.insert(owner.clone()));
            let promise = Promise::Renewed { until: None };
            let (ledger, guard) = Ledger::granted(lease, Instant::now(), lease, Side::Exclusive, promise);
            let hold = HoldState::for_test(&name, (number, owner.clone()), Some(thread.clone()), START, ledger);
            let is_known = self.registry.add(Arc::clone(&hold)).is_some();
            if is_known {
                self.holds.lock().push(Arc::clone(&hold));
            } else {
                self.redis.lock().request(|owners| _ = owners.remove(&owner));
            }
            if closes_inside && turn == 1 {
                self.close(1);
            }
            self.under_way.end();
            if is_known {
                self.release(&hold, guard);
            }
        }
    }

    fn release(&self, hold: &HoldState, guard: crate::state::ledger::GuardNumber) {
        self.under_way.begin_to_end();
        if hold.update(|ledger, now| ledger.release(guard, now)).0 == Release::Last {
            self.registry.remove(hold);
            self.redis.lock().request(|owners| _ = owners.remove(&hold.owner));
            hold.update(|ledger, _| ledger.step(Phase::Releasing, Phase::Done));
        }
        self.under_way.end();
    }

    /// Closes as `Engine::close` does.
    fn close(&self, own_operations: usize) {
        if !self.under_way.close() {
            return;
        }
        let end = |ledger: &mut Ledger, now| {
            let was_live = ledger.look(now) == Phase::Live;
            ledger.step(Phase::Live, Phase::Lost(Loss::Closed));
            was_live
        };
        for hold in self.registry.close() {
            if hold.update(end).0 {
                self.redis.lock().request(|owners| _ = owners.remove(&hold.owner));
            }
        }
        self.under_way.wait_for_others(own_operations, START.after(LONG));
        let mut redis = self.redis.lock();
        redis.is_closed = true;
        assert!(redis.owners.is_empty(), "a lock stays: {:?}", redis.owners);
    }
}

/// Longer than any step here takes.
const LONG: Duration = Duration::from_secs(3_600);

fn a_client_closes(inside: bool) {
    let _pretence = START.pretend();
    let scene = Arc::new(Scene {
        under_way: Life::default(),
        registry: Registry::default(),
        owners: Owners::new(),
        redis: Mutex::default(),
        holds: Mutex::default(),
    });
    let mut threads = vec![];
    for worker in 0..2 {
        let scene = Arc::clone(&scene);
        threads.push(thread::spawn(move || scene.work(&ThreadId::for_test(), inside && worker == 0)));
    }
    if !inside {
        for _ in 0..2 {
            let scene = Arc::clone(&scene);
            threads.push(thread::spawn(move || scene.close(0)));
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let holds = std::mem::take(&mut *scene.holds.lock());
    for hold in holds {
        assert_ne!(hold.update(|ledger, now| ledger.look(now)).0, Phase::Live, "a hold of a closed client is live");
    }
}

#[test]
fn a_client_closed_during_work_leaves_nothing() {
    check(2_000, || a_client_closes(false));
}

#[test]
fn a_close_within_an_operation_waits_for_the_others_only() {
    check(2_000, || a_client_closes(true));
}
