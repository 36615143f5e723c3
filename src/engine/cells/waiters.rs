//! The waiting threads of this client; a thread is listed when its first sleep begins.

use std::collections::BTreeMap;

use crate::listing::LockWaiter;
use crate::owner::HoldNumber;
use crate::sync::Mutex;
use crate::time::Instant;

/// The waiting threads of one client.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<BTreeMap<HoldNumber, (Instant, LockWaiter)>>);

/// An entry in the list; dropping it removes the thread.
pub(crate) struct Listed<'a> {
    waiters: &'a Waiters,
    number: HoldNumber,
}

impl Waiters {
    /// Lists a thread that waits since `started`.
    pub(crate) fn list(&self, number: HoldNumber, started: Instant, waiter: LockWaiter) -> Listed<'_> {
        self.0.lock().insert(number, (started, waiter));
        Listed { waiters: self, number }
    }

    /// All waiting threads, the longest wait first.
    pub(crate) fn all(&self, now: Instant) -> Vec<LockWaiter> {
        let at =
            |(started, waiter): &(Instant, LockWaiter)| LockWaiter { waited: started.until(now), ..waiter.clone() };
        let mut all: Vec<_> = self.0.lock().values().map(at).collect();
        all.sort_by_key(|waiter| std::cmp::Reverse(waiter.waited));
        all
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let waiter = self.waiters.0.lock().remove(&self.number);
        drop(waiter);
    }
}
