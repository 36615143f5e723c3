//! A thread that waits for a lock which another thread of this process holds: the release can hand the lock to it.

use std::mem;
use std::sync::Arc;

use crate::bell::Bell;
use crate::owner::OwnerId;
use crate::state::exchange::InDoubt;
use crate::state::stand_back::Chain;
use crate::sync::Mutex;
use crate::time::{Instant, Lease};

/// What a release must know of a thread that can hold the lock next.
pub(crate) struct Successor {
    pub(crate) owner: OwnerId,
    pub(crate) lease: Lease,
    pub(super) bell: Bell,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    /// The thread asks, stands back, or does something else.
    #[default]
    Awake,
    /// The thread sleeps, and has no request under way or in doubt.
    Asleep,
    /// A release hands the lock to the thread.
    Chosen,
    Handed(Handed),
    /// The thread waits no longer.
    Gone,
}

/// The end of a release that was to hand the lock on.
#[derive(Debug)]
pub(crate) struct Handed {
    /// The copies of the request that may still hand the lock on.
    pub(crate) in_doubt: InDoubt,
    /// The sending time of the request that handed the lock on for certain.
    pub(crate) granted: Option<(Instant, Chain)>,
}

/// A thread that a release has chosen. Dropped without an outcome, the lock may have been handed on.
pub(crate) struct Chosen {
    pub(crate) successor: Arc<Successor>,
    is_settled: bool,
}

impl Successor {
    pub(crate) fn new(owner: OwnerId, lease: Lease, bell: Bell) -> Self {
        Self { owner, lease, bell, state: Mutex::default() }
    }

    /// Records that the thread is about to sleep.
    pub(crate) fn falls_asleep(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Awake) {
            *state = State::Asleep;
        }
    }

    /// Records that the thread wakes. Returns `false` if a release has chosen it: then it neither asks nor stands back,
    /// but leaves, to take what the release has handed to it.
    pub(crate) fn wakes(&self) -> bool {
        let mut state = self.state.lock();
        if matches!(*state, State::Asleep) {
            *state = State::Awake;
        }
        matches!(*state, State::Awake)
    }

    /// Ends the wait of this owner. Returns what was handed to it. A release without a lock to hand on clears the owner
    /// away.
    pub(crate) fn leaves(&self) -> Option<Handed> {
        match mem::replace(&mut *self.state.lock(), State::Gone) {
            State::Handed(handed) => Some(handed),
            _ => None,
        }
    }
}

impl Chosen {
    /// Chooses a thread that sleeps.
    pub(crate) fn of(successor: Arc<Successor>) -> Option<Self> {
        let mut state = successor.state.lock();
        let sleeps = matches!(*state, State::Asleep);
        if sleeps {
            *state = State::Chosen;
        }
        drop(state);
        sleeps.then_some(Self { successor, is_settled: false })
    }

    /// Hands the lock on. Returns `false` if the thread waits no longer.
    pub(crate) fn hand(mut self, handed: Handed) -> bool {
        self.end(State::Handed(handed))
    }

    /// Nothing was handed on: the thread is to ask.
    pub(crate) fn give_up(mut self) {
        self.end(State::Awake);
    }

    fn end(&mut self, next: State) -> bool {
        if mem::replace(&mut self.is_settled, true) {
            return false;
        }
        let mut state = self.successor.state.lock();
        let waits = matches!(*state, State::Chosen);
        if waits {
            *state = next;
            drop(state);
            self.successor.bell.ring();
        }
        waits
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        let in_doubt = InDoubt { fenceable: vec![], unfenceable: true };
        self.end(State::Handed(Handed { in_doubt, granted: None }));
    }
}
