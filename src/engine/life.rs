//! The running operations: `close()` waits until those of other threads have ended.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::{Condvar, Mutex};
use crate::time::Instant;

/// The running operations of one client, and whether new operations may begin.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    closed: AtomicBool,
    operations: Mutex<Operations>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Operations {
    count: usize,
    /// Whether `close()` waits for the end of operations.
    awaited: bool,
}

impl UnderWay {
    /// Refuses new operations from here on. Returns `false` if they were refused before.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
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
        self.operations.lock().count += 1;
    }

    pub(crate) fn end(&self) {
        let mut operations = self.operations.lock();
        operations.count -= 1;
        if operations.awaited {
            self.ended.notify_all();
        }
    }

    /// Waits until only the `own` operations of the calling thread are left, or until `until`.
    pub(crate) fn wait_for_others(&self, own: usize, until: Instant) {
        let mut operations = self.operations.lock();
        operations.awaited = true;
        while operations.count > own {
            let now = Instant::now();
            if now >= until {
                return;
            }
            self.ended.wait_for(&mut operations, now.nap_until(until));
        }
    }
}
