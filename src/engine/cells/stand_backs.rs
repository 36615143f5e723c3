//! The turns of this process at locks that other processes want, too.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::name::LockName;
use crate::owner::{ThreadId, ThreadNumber};
use crate::state::stand_back::{Pause, Rivals, Turn, Turns};
use crate::sync::Mutex;
use crate::time::Instant;

/// The turns of one client, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct StandBacks {
    turns: Mutex<Turns>,
    /// The number of turns; read without the mutex, so that locks without other clients cost nothing.
    count: AtomicUsize,
}

impl StandBacks {
    /// Records that the calling thread wants the lock.
    pub(crate) fn wanted(&self, name: &LockName) {
        self.with(name, Turn::wanted);
    }

    /// Records a grant to the calling thread.
    pub(crate) fn granted(&self, name: &LockName) {
        self.with(name, Turn::granted);
    }

    /// Records a release by this process; see [`Turns::released`].
    pub(crate) fn released(&self, name: &LockName, rivals: Rivals) -> bool {
        if matches!(rivals, Rivals::Listen(0) | Rivals::Unknown) && self.is_empty() {
            return true;
        }
        let mut turns = self.turns.lock();
        let goes_on = turns.released(&name.whole(), rivals, Instant::now());
        self.count.store(turns.len(), Ordering::Release);
        goes_on
    }

    /// Records a release by another process.
    pub(crate) fn heard(&self, name: &LockName) {
        self.with(name, |turn, _, now| turn.heard(now));
    }

    pub(crate) fn pause(&self, name: &LockName) -> Option<Pause> {
        self.with(name, Turn::pause).flatten()
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The values of a group have one turn, because a message does not tell which value was released.
    pub(crate) fn with<T>(
        &self,
        name: &LockName,
        work: impl FnOnce(&mut Turn, ThreadNumber, Instant) -> T,
    ) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let (thread, now) = (ThreadId::current().number(), Instant::now());
        self.turns.lock().with(&name.whole(), |turn| work(turn, thread, now))
    }
}
