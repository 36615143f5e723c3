//! The shared state of one hold: its ledger, the waiters for its loss, the callbacks.

pub(crate) mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::bell::{Bell, Bells};
use crate::durability::Durability;
use crate::engine::background::JobTicket;
use crate::error::Loss;
use crate::kinds::Kind;
use crate::listing::{InEvents, LockKind};
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::state::exchange::InDoubt;
use crate::state::ledger::{Ledger, Phase};
use crate::state::stand_back::Chain;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::time::Instant;
use crate::transport::{Confirmation, ServerNumber};

/// The identity of a hold, and its state.
pub(crate) struct HoldState {
    pub(crate) name: LockName,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) number: HoldNumber,
    pub(crate) owner: OwnerId,
    /// The thread that may re-enter; `None` for an owned hold.
    pub(crate) thread: Option<ThreadId>,
    pub(crate) since: Instant,
    pub(crate) extras: Option<Box<Extras>>,
    pub(crate) progress: Progress,
}

/// What most holds are granted without.
pub(crate) struct Extras {
    /// The group that the lock was taken with.
    pub(crate) group: Option<Arc<str>>,
    /// The fencing token, where the kind has tokens.
    pub(crate) token: Option<u64>,
}

/// What becomes of a hold.
pub(crate) struct Progress {
    state: Mutex<State>,
    /// Notified when the turn of a request ends.
    turn_ended: Condvar,
    /// The number of the server that was asked last to report changes of the key.
    watched_at: AtomicUsize,
}

/// A callback that runs once, at the loss of the hold.
pub(crate) type OnLost = Box<dyn FnOnce(&Loss) + Send>;

struct State {
    ledger: Ledger,
    /// Whether a request has its turn.
    under_way: bool,
    rare: Option<Box<RareProgress>>,
}

/// What most holds do without.
#[derive(Default)]
struct RareProgress {
    on_lost: Vec<OnLost>,
    /// Rung when the hold is not live any more, and when its deadline came nearer. One thread may wait for several
    /// holds with one bell.
    ended: Option<Bells>,
    /// The next check by the timer.
    pending_check: Option<JobTicket>,
    /// What a request must have reached before it prolongs the hold.
    needs: Option<Durability>,
    /// The holds of this process before this one, which were handed on.
    chain: Option<Chain>,
    /// The time of the last move to another server.
    moved_on: Option<Instant>,
    /// Copies of requests that were neither answered nor fenced, and may still run.
    in_doubt: InDoubt,
    /// Whether a partial release failed, so that the background must write the counts.
    unwritten: bool,
}

/// Work after the use of a ledger, to do without its mutex.
pub(crate) struct Aftermath {
    /// The loss, if this use detected it: it must be reported.
    pub(crate) new_loss: Option<Loss>,
    /// The callbacks that run at the new loss. Those of a hold that is over run never, and may own this very client.
    pub(crate) on_lost: Vec<OnLost>,
    /// The check by the timer that is not needed any more.
    pub(crate) needless_check: Option<JobTicket>,
}

impl Progress {
    pub(crate) fn new(ledger: Ledger, needs: Option<Durability>, chain: Option<Chain>, in_doubt: InDoubt) -> Self {
        let is_rare = needs.is_some() || chain.is_some() || !in_doubt.is_empty();
        let rare = is_rare.then(|| Box::new(RareProgress { needs, chain, in_doubt, ..RareProgress::default() }));
        let state = Mutex::new(State { ledger, under_way: false, rare });
        Self { state, turn_ended: Condvar::new(), watched_at: AtomicUsize::new(NOWHERE) }
    }
}

impl State {
    fn rare(&mut self) -> &mut RareProgress {
        self.rare.get_or_insert_default()
    }

    fn pending_check(&self) -> Option<JobTicket> {
        self.rare.as_ref()?.pending_check
    }
}

impl HoldState {
    pub(crate) fn label(&self) -> LockKind {
        self.kind.label(self.kind.side())
    }

    pub(crate) fn in_events(&self) -> InEvents {
        let group = self.extras.as_ref().and_then(|extras| extras.group.as_ref());
        (self.name.to_string(), self.label(), group.map(ToString::to_string), self.owner.to_string())
    }

    /// The fencing token. No mutex, as a forked child may ask.
    pub(crate) fn token(&self) -> Option<u64> {
        self.extras.as_ref()?.token
    }

    /// The channel on which the release of the hold is published; empty for a kind without messages.
    pub(crate) fn channel(&self) -> String {
        self.kind.channel(&self.name, &self.owner).text()
    }

    /// What a request must have reached before it prolongs the hold.
    pub(crate) fn needs(&self) -> Option<Durability> {
        self.progress.state.lock().rare.as_ref()?.needs
    }

    /// The holds of this process before this one, which were handed on.
    pub(crate) fn chain(&self) -> Option<Chain> {
        self.progress.state.lock().rare.as_ref()?.chain
    }

    /// The step by which a request that prolongs the hold reaches what it must, and what an inner section needs.
    pub(crate) fn confirmation(&self, inner: Option<Durability>) -> Option<Confirmation> {
        let needs = Durability::all([self.needs(), inner])?;
        Some(self.kind.confirmation(&self.name, needs))
    }

    /// Raises what the hold needs to what an inner section needs.
    pub(crate) fn raise_needs(&self, needs: Durability) {
        self.progress.state.lock().rare().needs = Some(needs);
    }

    /// Uses the ledger under its mutex. Returns the work after it, if there is any: a new loss once. Only
    /// [`Keeper::with_ledger`](crate::engine::keeper::Keeper::with_ledger) calls this method, and reports the loss.
    pub(crate) fn update<T>(&self, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> (T, Option<Aftermath>) {
        let now = Instant::now();
        let mut state = self.progress.state.lock();
        let deadline = state.ledger.good_until;
        let answer = use_ledger(&mut state.ledger, now);
        (answer, Self::aftermath(state, now, deadline))
    }

    /// Ends a use of the ledger, before which this was its deadline.
    fn aftermath(mut state: MutexGuard<'_, State>, now: Instant, deadline: Instant) -> Option<Aftermath> {
        let phase = state.ledger.look(now);
        let new_loss = match phase {
            Phase::Lost(loss) if !std::mem::replace(&mut state.ledger.told, true) => Some(loss),
            _ => None,
        };
        let (is_over, is_live) = (new_loss.is_some() || phase == Phase::Done, phase == Phase::Live);
        if state.rare.is_none() && new_loss.is_none() {
            return None;
        }
        let is_sooner = state.ledger.good_until < deadline;
        let (mut on_lost, mut needless_check, mut ended) = (vec![], None, None);
        if let Some(rare) = &mut state.rare {
            if is_over {
                on_lost = std::mem::take(&mut rare.on_lost);
            }
            if !is_live {
                needless_check = rare.pending_check.take();
            }
            if !is_live || is_sooner {
                ended.clone_from(&rare.ended);
            }
        }
        drop(state);
        if let Some(ended) = ended {
            ended.ring_all();
        }
        Some(Aftermath { new_loss, on_lost, needless_check })
    }

    /// Stores a callback for the loss; returns the callback if the hold is lost already.
    pub(crate) fn on_lost(&self, callback: OnLost) -> Result<(), (Loss, OnLost)> {
        let mut state = self.progress.state.lock();
        match state.ledger.look(Instant::now()) {
            Phase::Lost(loss) if state.ledger.told => Err((loss, callback)),
            Phase::Releasing | Phase::Done => Ok(()),
            // An unreported loss will be reported to this callback, too.
            Phase::Live | Phase::Lost(_) => {
                state.rare().on_lost.push(callback);
                Ok(())
            }
        }
    }

    /// Records that this server is asked to report changes of the key.
    pub(crate) fn watch(&self, at: ServerNumber) {
        self.progress.watched_at.store(at.0, Ordering::Release);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.progress.watched_at.load(Ordering::Acquire) != NOWHERE
    }

    /// Whether this server was the last one that was asked to report changes of the key.
    pub(crate) fn is_watched_at(&self, server: ServerNumber) -> bool {
        self.progress.watched_at.load(Ordering::Acquire) == server.0
    }

    /// Records that another server has the key now. Returns `false` if that was recorded within the last `pause`: two
    /// servers that each name the other one would pass the hold to and fro without a rest.
    pub(crate) fn moves_on(&self, now: Instant, pause: Duration) -> bool {
        let mut state = self.progress.state.lock();
        let moved_on = &mut state.rare().moved_on;
        let may_move = moved_on.is_none_or(|at| at.after(pause) <= now);
        if may_move {
            *moved_on = Some(now);
        }
        may_move
    }

    /// Whether no thread can use the hold any more: it is not live, and its thread has ended.
    pub(crate) fn is_dead(&self) -> bool {
        let ended = self.thread.as_ref().is_some_and(ThreadId::has_ended);
        ended && self.progress.state.lock().ledger.look(Instant::now()) != Phase::Live
    }

    /// Whether a callback waits for the loss.
    pub(crate) fn has_listeners(&self) -> bool {
        self.progress.state.lock().rare.as_ref().is_some_and(|rare| !rare.on_lost.is_empty())
    }

    /// Schedules a check at the deadline, unless an earlier check is pending or the hold has ended. Returns the later
    /// check that it replaces.
    pub(crate) fn schedule_check(&self, set: impl FnOnce(Instant) -> JobTicket) -> Option<JobTicket> {
        let mut state = self.progress.state.lock();
        let deadline = state.ledger.good_until;
        // A new loss that is not reported so far is for the timer to find, at once.
        let is_over = match state.ledger.phase {
            Phase::Live => false,
            Phase::Lost(_) => state.ledger.told,
            Phase::Releasing | Phase::Done => true,
        };
        let pending = state.pending_check().filter(|pending_check| pending_check.at > Instant::now());
        if is_over || pending.is_some_and(|pending_check| pending_check.at <= deadline) {
            return None;
        }
        state.rare().pending_check.replace(set(deadline))
    }

    /// Waits until no time is left for these holds, or until `until`. The time left is asked for when a hold ends or its
    /// deadline comes nearer.
    pub(crate) fn wait_for_end<'a>(
        holds: impl Iterator<Item = &'a Self>,
        until: Instant,
        left: impl Fn(Instant) -> Duration,
    ) {
        let bell = Bell::new();
        holds.for_each(|hold| hold.progress.state.lock().rare().ended.get_or_insert_default().hang(&bell));
        loop {
            let now = Instant::now();
            let left = left(now);
            if now >= until || left.is_zero() {
                return;
            }
            bell.wait(now.after(now.nap_until(until.min(now.after(left)))));
        }
    }
}

/// No server has this number.
const NOWHERE: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::background::Background;
    use crate::script::Side;
    use crate::state::ledger::{GuardNumber, Promise};
    use crate::time::Lease;

    impl HoldState {
        pub(crate) fn wait_for_own_end(&self, until: Instant) {
            let left = |now: Instant| {
                let ledger = &mut self.progress.state.lock().ledger;
                if ledger.look(now) == Phase::Live { now.until(ledger.good_until) } else { Duration::ZERO }
            };
            Self::wait_for_end(std::iter::once(self), until, left);
        }

        /// A hold of the plain lock, made without a request to Redis.
        pub(crate) fn for_test(
            name: &LockName,
            owner: (HoldNumber, OwnerId),
            thread: Option<ThreadId>,
            since: Instant,
            ledger: Ledger,
        ) -> Arc<Self> {
            Self::of_kind(Arc::new(crate::kinds::Plain { reentrant: true }), name, owner, thread, since, ledger)
        }

        /// A hold of this kind, made without a request to Redis.
        pub(crate) fn of_kind(
            kind: Arc<dyn Kind>,
            name: &LockName,
            (number, owner): (HoldNumber, OwnerId),
            thread: Option<ThreadId>,
            since: Instant,
            ledger: Ledger,
        ) -> Arc<Self> {
            Arc::new(Self {
                name: name.clone(),
                kind,
                number,
                owner,
                thread,
                since,
                extras: None,
                progress: Progress::new(ledger, None, None, InDoubt::default()),
            })
        }
    }

    const HOUR: Duration = Duration::from_secs(3_600);
    const ROUNDS: usize = 5;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(1_000_000 + millis)
    }

    /// A hold of an hour, with its guard.
    fn hold(since: Instant) -> (Arc<HoldState>, GuardNumber) {
        let lease = Lease::new(HOUR).unwrap();
        let (ledger, guard) = Ledger::granted(lease, since, lease, Side::Exclusive, Promise::Renewed { until: None });
        let owner = (HoldNumber(1), OwnerId::encoded("me"));
        (HoldState::for_test(&LockName::new("n").unwrap(), owner, None, since, ledger), guard)
    }

    #[test]
    fn a_hold_moves_on_once_in_a_pause() {
        let (hold, _) = hold(at(0));
        let pause = Duration::from_millis(100);
        let moves = [0, 1, 99, 100, 150, 199, 200].map(|millis| hold.moves_on(at(millis), pause));
        assert_eq!(moves, [true, false, false, true, false, false, true]);
    }

    #[test]
    fn a_hold_is_watched_at_the_last_server() {
        let (hold, _) = hold(at(0));
        let [first, second] = [0, 1].map(ServerNumber);
        assert!(!hold.is_watched() && !hold.is_watched_at(first));
        hold.watch(first);
        hold.watch(second);
        assert!(hold.is_watched() && hold.is_watched_at(second) && !hold.is_watched_at(first));
    }

    #[test]
    fn the_end_wakes_its_waiters() {
        let ends: [fn(&mut Ledger, GuardNumber, Instant); 2] = [
            |ledger, _, _| ledger.step(Phase::Live, Phase::Lost(Loss::Gone)),
            |ledger, guard, now| {
                ledger.release(guard, now);
            },
        ];
        let start = Instant::now();
        for end in ends.iter().cycle().take(2 * ROUNDS) {
            let began = Instant::now();
            let (hold, guard) = hold(began);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| hold.wait_for_own_end(began.after(HOUR)));
                std::thread::sleep(Duration::from_millis(20)); // it sleeps by now, or sees the end at its first look
                hold.update(|ledger, now| end(ledger, guard, now));
                waiter.join().unwrap();
            });
        }
        // A waiter without a wake-up checks when its nap is over.
        let took = start.until(Instant::now());
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn a_waiter_follows_a_deadline_that_came_nearer() {
        let began = Instant::now();
        let (hold, guard) = hold(began);
        let lease = Lease::new(Duration::from_millis(200)).unwrap();
        let promise = Promise::Leased { until: began.after(lease.duration()) };
        hold.update(|ledger, now| ledger.reentered(now, now, lease, Side::Exclusive, promise)).0.unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| hold.wait_for_own_end(began.after(HOUR)));
            std::thread::sleep(Duration::from_millis(50)); // it sleeps by now, or sees the new deadline
            hold.update(|ledger, now| (ledger.release(guard, now), ledger.remaining(now).unwrap()));
            waiter.join().unwrap();
        });
        let took = began.until(Instant::now());
        assert!(took < Duration::from_millis(600), "a nap of a second ends after the time to live: {took:?}");
    }

    #[test]
    fn the_timer_follows_a_deadline_that_came_nearer() {
        let _pretence = at(0).pretend();
        let timer = Background::new("lockson-test", false);
        let (hold, guard) = hold(at(0));
        let set = |deadline| timer.run_at(deadline, || {});
        assert!(hold.schedule_check(set).is_none());
        let far = hold.progress.state.lock().pending_check().expect("it is set");
        assert!(hold.schedule_check(|_| panic!("it is set already")).is_none());
        let lease = Lease::new(Duration::from_secs(10)).unwrap();
        let promise = Promise::Leased { until: at(10_000) };
        hold.update(|ledger, now| ledger.reentered(now, now, lease, Side::Exclusive, promise)).0.unwrap();
        hold.update(|ledger, now| (ledger.release(guard, now), ledger.remaining(now).unwrap()));
        assert_eq!(hold.schedule_check(set), Some(far), "the later look is needless");
        let near = hold.progress.state.lock().pending_check().expect("it is set");
        assert!(near.at < far.at && near.at <= at(10_000), "{near:?}");
        hold.update(|ledger, now| ledger.extended(now, Lease::new(HOUR).unwrap(), None));
        assert!(hold.schedule_check(|_| panic!("it is set already")).is_none());
        near.at.comes();
        assert_eq!(hold.schedule_check(set), Some(near), "it is set again after it came");
    }
}
