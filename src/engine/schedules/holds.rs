//! Holds that are taken, re-entered, renewed, lost and released at once: each hold ends once and is reported once.
#![cfg(all(test, shuttle))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shuttle::thread;

use super::{START, check};
use crate::engine::cells::registry::Registry;
use crate::engine::hold::HoldState;
use crate::engine::keeper::watchdog::renewer::{Asked, Detour, Due, RenewalHost, Renewer, RequestOutcome};
use crate::error::{Error, Loss, Refusal};
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::script::{RenewalAnswer, Side};
use crate::state::ledger::{Ledger, Phase, Promise, Release};
use crate::state::watch::All;
use crate::sync::Mutex;
use crate::time::{Instant, Lease};
use crate::transport::Slot;

const INTERVAL: Duration = Duration::from_secs(10);
const PROMISE: Promise = Promise::Renewed { until: None };

fn lease() -> Lease {
    Lease::new(3 * INTERVAL).unwrap()
}

/// The lock in Redis: its owner, and earlier owners.
#[derive(Default)]
struct Redis {
    owner: Option<OwnerId>,
    next: u64,
    gone: Vec<OwnerId>,
}

impl Redis {
    fn acquire(&mut self) -> Option<(HoldNumber, OwnerId)> {
        if self.owner.is_some() {
            return None;
        }
        self.next += 1;
        self.owner = Some(OwnerId::encoded(&self.next.to_string()));
        self.owner.clone().map(|owner| (HoldNumber(self.next), owner))
    }

    fn about(&self, owner: &OwnerId) -> RenewalAnswer {
        match &self.owner {
            Some(present) if present == owner => {
                assert!(!self.gone.contains(owner), "an owner came back");
                RenewalAnswer::Renewed
            }
            Some(_) => RenewalAnswer::Lost(Loss::Taken),
            None => RenewalAnswer::Lost(Loss::Gone),
        }
    }

    fn remove(&mut self, owner: &OwnerId) -> bool {
        let found = self.owner.as_ref() == Some(owner);
        if found {
            self.gone.extend(self.owner.take());
        }
        found
    }
}

#[derive(Default)]
struct Scene {
    registry: Registry,
    redis: Mutex<Redis>,
    /// All holds, with the number of calls of their callbacks.
    holds: Mutex<Vec<(Arc<HoldState>, Arc<AtomicUsize>)>>,
    /// The holds whose loss was reported.
    reported: Mutex<Vec<HoldNumber>>,
}

impl Scene {
    fn with_ledger<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        let (answer, aftermath) = hold.update(use_ledger);
        if let Some(loss) = aftermath.new_loss {
            self.reported.lock().push(hold.number);
            aftermath.on_lost.into_iter().for_each(|callback| callback(&loss));
        }
        answer
    }

    fn phase(&self, hold: &HoldState) -> Phase {
        self.with_ledger(hold, |ledger, now| ledger.look(now))
    }

    /// A hold of a thread, from its grant to its end.
    fn hold(&self, name: &LockName) {
        let thread = ThreadId::for_test();
        let Some((number, owner)) = self.redis.lock().acquire() else { return };
        let (ledger, outer) = Ledger::granted(lease(), Instant::now(), lease(), Side::Exclusive, PROMISE);
        let hold = HoldState::for_test(name, (number, owner), Some(thread.clone()), START, ledger);
        for older in self.registry.under(name).into_iter().filter(|older| older.number < number) {
            self.with_ledger(&older, |ledger, _| ledger.lose(Loss::Taken));
        }
        assert!(self.registry.add(Arc::clone(&hold)).unwrap().dead.is_empty());
        let told = Arc::new(AtomicUsize::new(0));
        self.holds.lock().push((Arc::clone(&hold), Arc::clone(&told)));
        let waiter = Arc::clone(&hold);
        let waiter = thread::spawn(move || waiter.wait_for_own_end(START.after(10_000 * INTERVAL)));
        self.listen(&hold, told);

        let found = self.registry.find(name, thread.number()).expect("a thread finds its own hold");
        assert_eq!(found.number, hold.number);
        let reentered = self.reenter(&hold);
        for guard in reentered.into_iter().chain([outer]) {
            self.release(&hold, guard);
        }
        assert!(self.registry.find(name, thread.number()).is_none(), "what was given back is not re-entered");
        waiter.join().unwrap();
    }

    fn listen(&self, hold: &Arc<HoldState>, told: Arc<AtomicUsize>) {
        let callback = Box::new(move |_: &Loss| {
            told.fetch_add(1, Ordering::Relaxed);
        });
        if let Err((loss, callback)) = hold.on_lost(callback) {
            callback(&loss);
        }
        self.phase(hold);
    }

    fn reenter(&self, hold: &HoldState) -> Option<crate::state::ledger::GuardNumber> {
        let counts = |ledger: &mut Ledger, now| ledger.counts_after_reentry(now, Side::Exclusive);
        self.with_ledger(hold, counts).ok()?;
        let sent = Instant::now();
        let answer = self.redis.lock().about(&hold.owner);
        match answer {
            RenewalAnswer::Renewed => {
                let reentered =
                    |ledger: &mut Ledger, now| ledger.reentered(now, sent, lease(), Side::Exclusive, PROMISE);
                self.with_ledger(hold, reentered).ok()
            }
            RenewalAnswer::Lost(loss) => {
                self.with_ledger(hold, |ledger, _| ledger.lose(loss));
                None
            }
            RenewalAnswer::Refused(_) => None,
        }
    }

    fn release(&self, hold: &Arc<HoldState>, guard: crate::state::ledger::GuardNumber) {
        match self.with_ledger(hold, |ledger, now| ledger.release(guard, now)) {
            Release::Partial(remaining) => {
                let answer = self.redis.lock().about(&hold.owner);
                self.with_ledger(hold, |ledger, now| ledger.cut_is_over(remaining.cut, now));
                if let RenewalAnswer::Lost(loss) = answer {
                    self.with_ledger(hold, |ledger, _| ledger.lose(loss));
                }
            }
            Release::Last => {
                self.registry.remove(hold);
                if !self.redis.lock().remove(&hold.owner) {
                    self.with_ledger(hold, |ledger, _| ledger.release_found_lost(Loss::Gone));
                }
                self.with_ledger(hold, |ledger, _| ledger.settled());
            }
            Release::Lost(_) => {
                if self.with_ledger(hold, |ledger, _| ledger.is_empty()) {
                    self.registry.remove(hold);
                }
            }
            Release::Unknown => panic!("a guard that is there is known"),
        }
    }
}

/// The part of the watchdog.
struct SceneHost(Arc<Scene>);

impl RenewalHost for SceneHost {
    fn holds(&mut self) -> Vec<Arc<HoldState>> {
        self.0.registry.all()
    }

    fn with_ledger<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        self.0.with_ledger(hold, use_ledger)
    }

    fn abandon(&self, hold: &Arc<HoldState>) {
        self.0.registry.remove(hold);
    }

    fn urgent(&mut self) -> Vec<Arc<HoldState>> {
        self.0.registry.all()
    }

    fn ask(&mut self, requests: &[Vec<&Due>], _: Instant) -> Result<Vec<RequestOutcome>, Error> {
        let answers = |request: &Vec<&Due>| {
            let redis = self.0.redis.lock();
            Ok(request.iter().map(|due| redis.about(&due.hold.owner)).collect())
        };
        Ok(requests.iter().map(answers).collect())
    }

    fn ask_by_route(&mut self, due: &Due, _: Instant) -> Result<RenewalAnswer, Error> {
        Ok(self.0.redis.lock().about(&due.hold.owner))
    }

    fn detour(&self, _: &Refusal) -> Detour {
        Detour::None
    }

    fn hand_over(&self, _: &Arc<HoldState>) -> bool {
        false
    }

    fn slot(&self, _: &HoldState) -> Slot {
        Slot::default()
    }

    fn renewed(&self, _: &Arc<HoldState>) {}

    fn failed(&self, _: usize, _: Duration, error: Error) {
        panic!("{error}");
    }

    fn renewed_in_round(&self, _: usize) {}

    fn recovered(&self, _: Duration) {}
}

fn holds_come_and_go(thieves: usize) {
    let _pretence = START.pretend();
    let scene = Arc::new(Scene::default());
    let name = LockName::new("n").unwrap();
    let mut threads = vec![];
    for _ in 0..3 {
        let (scene, name) = (Arc::clone(&scene), name.clone());
        threads.push(thread::spawn(move || scene.hold(&name)));
    }
    for _ in 0..thieves {
        let scene = Arc::clone(&scene);
        threads.push(thread::spawn(move || {
            let mut redis = scene.redis.lock();
            let owner = redis.owner.clone();
            if let Some(owner) = owner {
                redis.remove(&owner);
            }
        }));
    }
    let visited = Arc::clone(&scene);
    threads.push(thread::spawn(move || {
        let mut rounds = Renewer::new(START, INTERVAL, 100, INTERVAL);
        // No deadline passes in this time, however long a thread does not run.
        for tick in 1..3 {
            START.after(tick * INTERVAL).comes();
            rounds.round(&mut SceneHost(Arc::clone(&visited)), &Asked::default());
            rounds.round(&mut SceneHost(Arc::clone(&visited)), &Asked { all: Some(All::Look), ..Asked::default() });
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    assert!(scene.registry.all().is_empty(), "a hold stays");
    let holds = std::mem::take(&mut *scene.holds.lock());
    assert!(!holds.is_empty());
    for (hold, told) in holds {
        let told = told.load(Ordering::Relaxed);
        assert_eq!(scene.reported.lock().iter().filter(|number| **number == hold.number).count(), told);
        match scene.phase(&hold) {
            Phase::Done => assert_eq!(told, 0, "nobody is told of a loss after a release"),
            Phase::Lost(_) => assert_eq!(told, 1, "a loss is told once"),
            phase => panic!("{phase:?} is no end"),
        }
        assert!(thieves > 0 || scene.phase(&hold) == Phase::Done, "lost without a reason");
        assert_ne!(scene.redis.lock().owner.as_ref(), Some(&hold.owner));
    }
}

#[test]
fn a_renewal_during_the_release_does_not_undo_the_release() {
    check(2_000, || holds_come_and_go(0));
}

#[test]
fn a_lock_stolen_meanwhile_is_reported_once() {
    check(2_000, || holds_come_and_go(2));
}
