//! The waiting threads of this client; a thread is listed when its first sleep begins.

use std::collections::BTreeMap;
use std::thread::Thread;

use crate::listing::{LockKind, LockWaiter};
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, ThreadNumber};
use crate::sync::Mutex;
use crate::time::Instant;

/// The waiting threads of one client.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<BTreeMap<HoldNumber, Waiter>>);

/// A waiting thread.
pub(crate) struct Waiter {
    pub(crate) name: LockName,
    pub(crate) kind: LockKind,
    pub(crate) owner: OwnerId,
    pub(crate) number: ThreadNumber,
    pub(crate) thread: Thread,
    /// The start of the call.
    pub(crate) since: Instant,
}

/// An entry in the list; dropping it removes the thread.
pub(crate) struct Listed<'a> {
    waiters: &'a Waiters,
    number: HoldNumber,
}

impl Waiters {
    pub(crate) fn list(&self, number: HoldNumber, waiter: Waiter) -> Listed<'_> {
        self.0.lock().insert(number, waiter);
        Listed { waiters: self, number }
    }

    /// All waiting threads, the longest wait first.
    pub(crate) fn all(&self, now: Instant) -> Vec<LockWaiter> {
        let mut all: Vec<_> = self.0.lock().values().map(|waiter| waiter.at(now)).collect();
        all.sort_by_key(|waiter| std::cmp::Reverse(waiter.waited));
        all
    }
}

impl Waiter {
    fn at(&self, now: Instant) -> LockWaiter {
        LockWaiter {
            name: self.name.to_string(),
            owner: self.owner.to_string(),
            kind: self.kind,
            thread: self.number.0,
            thread_name: self.thread.name().map(str::to_owned),
            waited: self.since.until(now),
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let waiter = self.waiters.0.lock().remove(&self.number);
        drop(waiter);
    }
}
