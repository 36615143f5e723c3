//! The waiting threads of this client; a thread is listed when its first sleep begins.

use std::sync::{Arc, Weak};

use crate::listing::LockWaiter;
use crate::sync::{Mutex, remember};
use crate::time::Instant;

/// The waiting threads of one client.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<Weak<Listed>>>);

/// An entry in the list, with the beginning of the wait; dropping it removes the thread.
pub(crate) type Listed = (Instant, LockWaiter);

impl Waiters {
    /// Lists a thread that waits since `started`.
    pub(crate) fn list(&self, started: Instant, waiter: LockWaiter) -> Arc<Listed> {
        let listed = Arc::new((started, waiter));
        remember(&mut self.0.lock(), &listed);
        listed
    }

    /// All waiting threads, the longest wait first.
    pub(crate) fn all(&self, now: Instant) -> Vec<LockWaiter> {
        let at = |(started, waiter): &Listed| LockWaiter { waited: started.until(now), ..waiter.clone() };
        // Copied under the mutex, because an entry that lived longer here would list a wait that has ended.
        let mut all: Vec<_> = self.0.lock().iter().filter_map(|one| one.upgrade().map(|one| at(&one))).collect();
        all.sort_by_key(|waiter| std::cmp::Reverse(waiter.waited));
        all
    }
}
