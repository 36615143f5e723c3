//! One hold as several threads see it: its ledger, who waits for its loss, who is told.

use std::fmt;
use std::sync::Arc;

use super::background::Ticket;
use super::kind::Kind;
use super::ledger::{Ledger, Phase};
use super::wire::Loose;
use crate::error::Loss;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::sync::{Condvar, Mutex};
use crate::time::Instant;

/// Who the hold belongs to, and its state.
pub(crate) struct HoldState {
    pub(crate) name: LockName,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) number: HoldNumber,
    pub(crate) owner: OwnerId,
    /// The thread that may re-enter; an owned hold has none.
    pub(crate) thread: Option<ThreadId>,
    pub(crate) since: Instant,
    /// Its fencing token, where the kind has them.
    pub(crate) token: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
    /// Its requests that were neither answered nor fenced: they may still come.
    loose: Mutex<Loose>,
}

/// Called once when the hold is lost.
pub(crate) type OnLost = Box<dyn FnOnce(&Loss) + Send>;

struct State {
    ledger: Ledger,
    on_lost: Vec<OnLost>,
    told: bool,
    /// The timer's next look at it.
    minded: Option<Ticket>,
}

/// A loss that was noticed just now and is still to be told.
pub(crate) struct News {
    pub(crate) loss: Loss,
    pub(crate) on_lost: Vec<OnLost>,
}

/// What using a ledger leaves to do, without its mutex.
pub(super) struct Aftermath {
    pub(super) news: Option<News>,
    /// The timer's look that nobody needs any more.
    pub(super) unminded: Option<Ticket>,
}

/// What a new hold is made of.
pub(crate) struct Granted {
    pub(crate) name: LockName,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) number: HoldNumber,
    pub(crate) owner: OwnerId,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) since: Instant,
    pub(crate) token: Option<u64>,
    pub(crate) loose: Loose,
    pub(crate) ledger: Ledger,
}

impl HoldState {
    pub(crate) fn new(granted: Granted) -> Self {
        let Granted { name, kind, number, owner, thread, since, loose, token, ledger } = granted;
        let state = Mutex::new(State { ledger, on_lost: vec![], told: false, minded: None });
        Self {
            name,
            kind,
            number,
            owner,
            thread,
            since,
            token,
            state,
            loose: Mutex::new(loose),
            changed: Condvar::new(),
        }
    }

    /// Uses the ledger under its mutex; a loss noticed by that is handed out, once. Only
    /// [`Engine::with`](super::Engine::with) calls it: that one tells the news.
    pub(super) fn update<T>(&self, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> (T, Aftermath) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let answer = use_ledger(&mut state.ledger, now);
        let phase = state.ledger.look(now);
        if phase != Phase::Live {
            self.changed.notify_all();
        }
        let news = match phase {
            Phase::Lost(loss) if !state.told => {
                state.told = true;
                Some(News { loss, on_lost: std::mem::take(&mut state.on_lost) })
            }
            _ => None,
        };
        // Nobody will be told any more. What the callbacks keep alive may be this very client, so
        // they go, and not under the mutex.
        let useless = if phase == Phase::Done { std::mem::take(&mut state.on_lost) } else { vec![] };
        let unminded = if phase == Phase::Live { None } else { state.minded.take() };
        drop(state);
        drop(useless);
        (answer, Aftermath { news, unminded })
    }

    /// Remembers whom to tell of the loss; hands the callback back when it is lost already.
    pub(crate) fn on_lost(&self, callback: OnLost) -> Result<(), (Loss, OnLost)> {
        let mut state = self.state.lock();
        match state.ledger.look(Instant::now()) {
            Phase::Lost(loss) if state.told => Err((loss, callback)),
            Phase::Releasing | Phase::Done => Ok(()),
            // A loss nobody was told yet is told to this one together with the others.
            Phase::Live | Phase::Lost(_) => {
                state.on_lost.push(callback);
                Ok(())
            }
        }
    }

    /// Whether nobody can do anything with it any more: not live, and its thread has ended.
    pub(crate) fn is_dead(&self) -> bool {
        let ended = self.thread.as_ref().is_some_and(ThreadId::has_ended);
        ended && self.state.lock().ledger.look(Instant::now()) != Phase::Live
    }

    pub(super) fn take_loose(&self) -> Loose {
        std::mem::take(&mut self.loose.lock())
    }

    pub(super) fn keep_loose(&self, loose: Loose) {
        // Two requests of one hold can be under way, so what the other one left stays.
        let mut kept = self.loose.lock();
        kept.haunted |= loose.haunted;
        kept.open.extend(loose.open);
    }

    /// Whether somebody is to be told at the very moment of a loss.
    pub(super) fn has_listeners(&self) -> bool {
        !self.state.lock().on_lost.is_empty()
    }

    /// Has `set` set the timer to the deadline, unless the timer looks earlier anyway or nobody needs it.
    /// Answers with a later look that this one makes needless.
    pub(super) fn mind(&self, set: impl FnOnce(Instant) -> Ticket) -> Option<Ticket> {
        let mut state = self.state.lock();
        let deadline = state.ledger.good_until();
        // A loss that was seen just now and not told yet is for the timer to find, at once.
        let is_over = match state.ledger.phase() {
            Phase::Live => false,
            Phase::Lost(_) => state.told,
            Phase::Releasing | Phase::Done => true,
        };
        if is_over || state.minded.is_some_and(|minded| minded.at <= deadline) {
            return None;
        }
        state.minded.replace(set(deadline))
    }

    /// The timer has come for the look at this moment.
    pub(super) fn was_minded(&self, at: Instant) {
        let mut state = self.state.lock();
        if state.minded.is_some_and(|minded| minded.at == at) {
            state.minded = None;
        }
    }

    /// Waits until the hold is not live any more, or until `until`.
    pub(crate) fn wait_for_end(&self, until: Instant) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            if state.ledger.look(now) != Phase::Live || now >= until {
                return;
            }
            let next = until.min(state.ledger.good_until());
            self.changed.wait_for(&mut state, now.nap_until(next));
        }
    }
}

#[cfg(test)]
impl HoldState {
    /// A hold of the plain lock that nobody asked Redis for.
    pub(crate) fn for_test(
        name: &LockName,
        (number, owner): (HoldNumber, OwnerId),
        thread: Option<ThreadId>,
        since: Instant,
        ledger: Ledger,
    ) -> Arc<Self> {
        Arc::new(Self::new(Granted {
            name: name.clone(),
            kind: Arc::new(crate::kinds::Reentrant { once: false }),
            number,
            owner,
            thread,
            since,
            token: None,
            loose: Loose::default(),
            ledger,
        }))
    }
}

impl fmt::Debug for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Hold")
            .field("name", &self.name)
            .field("owner", &self.owner)
            .field("kind", &self.kind.family())
            .field("ledger", &state.ledger)
            .finish_non_exhaustive()
    }
}
