//! The registry of holds: finds the hold for a re-entry, and the holds to watch.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::{ptr, slice};

use crate::system::HashSet;

use crate::engine::hold::HoldState;
use crate::name::LockName;
use crate::owner::ThreadNumber;
use crate::sync::Mutex;
use crate::time::Instant;

/// All holds that were not released.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Holds>);

#[derive(Default)]
struct Holds {
    /// By the key in Redis: a message and a report of a changed key concern every hold under the key.
    by_key: HashSet<SameKey>,
    count: usize,
    closed: bool,
    /// The number of holds at which the next search for dead holds starts.
    sweep_at: usize,
}

/// The holds under one key, nearly always one. The first one knows the key: a key beside them would cost each hold 24
/// bytes.
enum SameKey {
    One(Arc<HoldState>),
    /// At least two.
    #[expect(clippy::box_collection, reason = "a list in its place would cost each name eight bytes")]
    Several(Box<Vec<Arc<HoldState>>>),
}

impl SameKey {
    fn holds(&self) -> &[Arc<HoldState>] {
        match self {
            Self::One(hold) => slice::from_ref(hold),
            Self::Several(holds) => holds,
        }
    }

    fn with(self, hold: Arc<HoldState>) -> Self {
        Self::Several(match self {
            Self::One(first) => Box::new(vec![first, hold]),
            Self::Several(mut holds) => {
                holds.push(hold);
                holds
            }
        })
    }

    /// Returns the hold, if the list has the hold, and the others.
    fn without(self, hold: &HoldState) -> (Option<Arc<HoldState>>, Option<Self>) {
        match self {
            Self::One(one) if ptr::eq(&*one, hold) => (Some(one), None),
            Self::One(_) => (None, Some(self)),
            Self::Several(mut holds) => {
                // The newest is given back first where sections are nested.
                let place = holds.iter().rposition(|other| ptr::eq(&**other, hold));
                let removed = place.map(|place| holds.remove(place));
                let rest = if holds.len() > 1 { Some(Self::Several(holds)) } else { holds.pop().map(Self::One) };
                (removed, rest)
            }
        }
    }
}

impl Borrow<str> for SameKey {
    fn borrow(&self) -> &str {
        self.holds()[0].name.shared_key()
    }
}

impl Hash for SameKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<str>::borrow(self).hash(state);
    }
}

impl PartialEq for SameKey {
    fn eq(&self, other: &Self) -> bool {
        Borrow::<str>::borrow(self) == Borrow::<str>::borrow(other)
    }
}

impl Eq for SameKey {}

/// What was found when a hold was added.
pub(crate) struct Added {
    /// Dead holds, which only the registry knew.
    pub(crate) dead: Vec<Arc<HoldState>>,
    /// Whether other holds are under the key.
    pub(crate) has_others: bool,
}

impl Registry {
    /// Adds a hold; `None` when the registry is closed and the hold was not added.
    pub(crate) fn add(&self, hold: Arc<HoldState>) -> Option<Added> {
        let mut holds = self.0.lock();
        if holds.closed {
            return None;
        }
        let dead = if holds.count >= holds.sweep_at { holds.sweep() } else { vec![] };
        holds.count += 1;
        let others = holds.by_key.replace(SameKey::One(Arc::clone(&hold)));
        let has_others = others.is_some();
        if let Some(others) = others {
            holds.by_key.replace(others.with(hold));
        }
        // The caller drops the dead holds without the mutex, because their callbacks may own this very registry.
        Some(Added { dead, has_others })
    }

    /// Returns all holds and closes the registry.
    pub(crate) fn close(&self) -> Vec<Arc<HoldState>> {
        self.0.lock().closed = true;
        self.all()
    }

    /// Removes a hold. Returns whether the hold was registered.
    pub(crate) fn remove(&self, hold: &HoldState) -> bool {
        self.0.lock().remove(hold).is_some()
    }

    pub(crate) fn contains(&self, hold: &HoldState) -> bool {
        self.0.lock().under(&hold.name).iter().any(|other| ptr::eq(&**other, hold))
    }

    /// Returns the hold that `thread` would re-enter under `name`.
    pub(crate) fn find(&self, name: &LockName, thread: ThreadNumber) -> Option<Arc<HoldState>> {
        let holds = self.0.lock();
        let of_thread = |hold: &Arc<HoldState>| hold.thread.as_ref().is_some_and(|id| id.number() == thread);
        holds.under(name).iter().find(|hold| hold.name == *name && of_thread(hold)).cloned()
    }

    /// Returns the holds that a change of this lock concerns: of a name of a whole key, all holds under the key.
    pub(crate) fn under(&self, name: &LockName) -> Vec<Arc<HoldState>> {
        self.under_where(name, |_| true)
    }

    /// The holds that [`under`](Self::under) finds, as far as they are older than `time`.
    pub(crate) fn older(&self, name: &LockName, time: Instant) -> Vec<Arc<HoldState>> {
        self.under_where(name, |hold| hold.since < time)
    }

    fn under_where(&self, name: &LockName, is_meant: impl Fn(&HoldState) -> bool) -> Vec<Arc<HoldState>> {
        let holds = self.0.lock();
        holds.under(name).iter().filter(|hold| hold.name.overlaps(name) && is_meant(hold)).cloned().collect()
    }

    /// Returns those of the keys that have watched holds, as names of whole keys.
    pub(crate) fn watched(&self, keys: &[String]) -> Vec<LockName> {
        let holds = self.0.lock();
        let under = |key: &str| holds.by_key.get(key)?.holds().iter().find(|hold| hold.is_watched());
        // Each take and each release of a client changes the set of a semaphore, so a look at many holds each time
        // would cost too much. Renewals tell of those.
        let few = |name: &&str| holds.by_key.get(*name).is_some_and(|same| same.holds().len() <= MOST_TO_LOOK_AT);
        let of_permits = |key: &str| LockName::semaphores_of(key).into_iter().flatten().filter(few).find_map(under);
        let watched = |key: &String| under(key).or_else(|| of_permits(key));
        keys.iter().filter_map(watched).map(|hold| hold.name.whole()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().count == 0
    }

    pub(crate) fn all(&self) -> Vec<Arc<HoldState>> {
        self.0.lock().by_key.iter().flat_map(SameKey::holds).cloned().collect()
    }
}

impl Holds {
    /// The holds under the key of this name.
    fn under(&self, name: &LockName) -> &[Arc<HoldState>] {
        self.by_key.get(name.shared_key().as_ref()).map_or(&[], SameKey::holds)
    }

    fn remove(&mut self, hold: &HoldState) -> Option<Arc<HoldState>> {
        let (removed, rest) = self.by_key.take(hold.name.shared_key().as_ref())?.without(hold);
        if let Some(rest) = rest {
            self.by_key.insert(rest);
        }
        self.count -= usize::from(removed.is_some());
        removed
    }

    /// Removes dead holds: lost by a thread that has ended, so that no thread can release or re-enter them.
    fn sweep(&mut self) -> Vec<Arc<HoldState>> {
        let holds = self.by_key.iter().flat_map(SameKey::holds);
        let dead: Vec<_> = holds.filter(|hold| hold.is_dead()).cloned().collect();
        dead.iter().for_each(|hold| _ = self.remove(hold));
        self.sweep_at = 2 * self.count.max(FEWEST_TO_SWEEP);
        dead
    }
}

const FEWEST_TO_SWEEP: usize = 64;
/// The most holds of one semaphore that are looked at when another client takes or returns permits.
const MOST_TO_LOOK_AT: usize = 100;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Loss;
    use crate::name::GivenName;
    use crate::owner::{Owners, ThreadId};
    use crate::script::Side;
    use crate::state::ledger::{Ledger, Phase, Promise};
    use crate::time::Lease;
    use crate::transport::ServerNumber;

    fn hold(owners: &Owners, name: usize) -> Arc<HoldState> {
        hold_of(owners, &LockName::new(&format!("name:{name}")).unwrap())
    }

    fn hold_of(owners: &Owners, name: &LockName) -> Arc<HoldState> {
        let thread = ThreadId::current();
        let owner = owners.draw(thread.number());
        let lease = Lease::new(Duration::from_secs(30)).unwrap();
        let promise = Promise::Renewed { until: None };
        let (ledger, _) = Ledger::granted(lease, Instant::now(), lease, Side::Exclusive, promise);
        HoldState::for_test(name, owner, Some(thread), Instant::now(), ledger)
    }

    #[test]
    fn a_hold_is_taken_out_from_among_others_of_its_name() {
        let (registry, owners) = (Registry::default(), Owners::new());
        let numbers = || registry.under(&LockName::new("name:1").unwrap()).iter().map(|hold| hold.number).collect();
        let holds: Vec<_> = (0..3).map(|_| hold(&owners, 1)).collect();
        holds.iter().for_each(|hold| assert!(registry.add(Arc::clone(hold)).is_some()));
        registry.remove(&holds[1]);
        let left: Vec<_> = numbers();
        assert_eq!(left, [holds[0].number, holds[2].number], "the others are to be renewed on");
        registry.remove(&holds[2]);
        registry.remove(&holds[2]);
        let left: Vec<_> = numbers();
        assert_eq!(left, [holds[0].number]);
        assert!(!registry.is_empty());
        registry.remove(&holds[0]);
        assert!(registry.is_empty());
    }

    #[test]
    fn one_watched_hold_of_a_name_brings_its_key_into_question() {
        let (registry, owners) = (Registry::default(), Owners::new());
        let (watched, young) = (hold(&owners, 1), hold(&owners, 1));
        for hold in [&young, &watched, &hold(&owners, 2)] {
            assert!(registry.add(Arc::clone(hold)).is_some());
        }
        let keys = ["name:1", "name:2", "name:3"].map(str::to_owned);
        assert!(registry.watched(&keys).is_empty());
        watched.watch(ServerNumber(0));
        assert_eq!(
            registry.watched(&keys),
            std::slice::from_ref(&watched.name),
            "the young one beside it does not hide it"
        );
    }

    #[test]
    fn holds_of_two_values_of_a_group_are_apart_but_share_their_key() {
        let (registry, owners) = (Registry::default(), Owners::new());
        let name = |value| GivenName::of_value(&"group".into(), value).checked().unwrap().clone();
        let (one, other) = (hold_of(&owners, &name("1")), hold_of(&owners, &name("2")));
        registry.add(Arc::clone(&one)).unwrap();
        let thread = ThreadId::current().number();
        assert!(registry.find(&name("2"), thread).is_none(), "a hold of another value is not re-entered");
        registry.add(Arc::clone(&other)).unwrap();
        let numbers = |holds: Vec<Arc<HoldState>>| holds.iter().map(|hold| hold.number).collect::<Vec<_>>();
        assert_eq!(registry.find(&name("2"), thread).unwrap().number, other.number);
        assert_eq!(numbers(registry.under(&name("1"))), [one.number]);
        let whole = name("1").whole();
        assert_eq!(numbers(registry.under(&whole)), [one.number, other.number]);
        assert!(registry.find(&whole, thread).is_none());
        other.watch(ServerNumber(0));
        assert_eq!(registry.watched(&["group".to_owned()]), [whole]);
        assert!(registry.remove(&one) && registry.contains(&other) && !registry.contains(&one));
    }

    #[test]
    fn losses_of_ended_threads_do_not_pile_up() {
        let (registry, owners) = (Registry::default(), Owners::new());
        let live: Vec<_> = (0..10).map(|name| hold(&owners, name)).collect();
        live.iter().for_each(|hold| assert!(registry.add(Arc::clone(hold)).unwrap().dead.is_empty()));
        for name in 0..10_000 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let hold = hold(&owners, name);
                    hold.update(|ledger, _| ledger.step(Phase::Live, Phase::Lost(Loss::Gone)));
                    registry.add(hold).unwrap();
                });
            });
        }
        assert!(registry.all().len() <= 2 * FEWEST_TO_SWEEP + 1, "{} are left", registry.all().len());
        for hold in &live {
            assert!(registry.under(&hold.name).iter().any(|other| other.number == hold.number));
            assert!(registry.remove(hold));
            assert!(!registry.remove(hold), "once is enough");
        }
    }
}
