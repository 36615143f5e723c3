//! The operations under way: `close()` waits until those of other threads have ended.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::{Condvar, Mutex};
use crate::time::Instant;

/// The operations of one client that have begun and not ended, and whether more may begin.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    closed: AtomicBool,
    operations: Mutex<Operations>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Operations {
    count: usize,
    /// Whether `close()` waits for their end.
    awaited: bool,
}

impl UnderWay {
    /// Refuses new operations from here on; `false` when it did so before.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Begins an operation, unless the client was closed.
    pub(crate) fn begin(&self) -> bool {
        // Counted before the look: `close()` refuses first and waits for those that are counted afterwards.
        self.begin_to_end();
        let is_open = !self.is_closed();
        if !is_open {
            self.end();
        }
        is_open
    }

    /// Begins an operation that a closing client still carries out.
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

    /// Waits until only `own` operations are left, those of the calling thread; at most until `until`.
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
