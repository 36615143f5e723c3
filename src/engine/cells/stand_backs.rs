//! The turns of this process at locks that other processes want, too.

use crate::name::LockName;
use crate::owner::{ThreadId, ThreadNumber};
use crate::state::stand_back::{Rivals, Turn, Turns};
use crate::sync::{AtomicUsize, Mutex, Ordering};
use crate::time::Instant;

/// The turns of one client, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct StandBacks {
    turns: Mutex<Turns>,
    /// The number of turns; read without the mutex, so that locks without other clients cost nothing.
    count: AtomicUsize,
}

impl StandBacks {
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

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Uses the turn of the calling thread at this lock, if there is one. The values of a group have one turn, because a
    /// message does not tell which value was released.
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
