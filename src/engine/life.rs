//! The life of a client: whether an operation may begin, the operations under way, and the end by a fork.

use crate::bell::{Bell, Bells};
use crate::owner::Home;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering};
use crate::time::{Instant, wait_until};

/// The running operations of one client, and whether new operations may begin.
#[derive(Default)]
pub(crate) struct Life {
    home: Home,
    closed: AtomicBool,
    /// Whether no caller may wait any more.
    stopped: AtomicBool,
    /// The bells of pausing callers; `close()` and `stop_waiting()` ring them.
    pausing: Bells,
    operations: AtomicUsize,
    /// Whether `close()` waits for the end of operations.
    awaited: AtomicBool,
    ending: Mutex<()>,
    ended: Condvar,
}

impl Life {
    /// Whether this client is a copy in a forked child, which must not use the holds of the parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.home.is_elsewhere()
    }

    /// Refuses new operations from here on, and wakes pausing callers. Returns `false` if this was done before.
    pub(crate) fn close(&self) -> bool {
        let is_first = !self.closed.swap(true, Ordering::SeqCst);
        if is_first {
            self.pausing.ring_all();
        }
        is_first
    }

    /// Ends the waits of callers, now and later.
    pub(crate) fn stop_waiting(&self) {
        self.stopped.store(true, Ordering::Release);
        self.pausing.ring_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Rings the bell when the client is closed, and when waits end.
    pub(crate) fn hang(&self, bell: &Bell) {
        self.pausing.hang(bell);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Begins an operation, unless the client is closed.
    pub(crate) fn begin(&self) -> bool {
        // The operation is counted before the check, because `close()` first refuses new operations and then waits
        // for counted ones.
        self.begin_to_end();
        let is_open = !self.is_closed();
        if !is_open {
            self.end();
        }
        is_open
    }

    /// Begins an operation that a closing client still runs.
    pub(crate) fn begin_to_end(&self) {
        self.operations.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.operations.fetch_sub(1, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) {
            // Whoever has seen the operation sleeps by now, or looks again.
            drop(self.ending.lock());
            self.ended.notify_all();
        }
    }

    /// Waits until only the `own` operations of the calling thread are left, or until `until`.
    pub(crate) fn wait_for_others(&self, own: usize, until: Instant) {
        self.awaited.store(true, Ordering::SeqCst);
        let is_over = |(): &()| self.operations.load(Ordering::SeqCst) <= own;
        drop(wait_until(&self.ended, self.ending.lock(), until, is_over));
    }
}
