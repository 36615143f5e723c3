//! A lock that threads keep busy.

use std::sync::atomic::AtomicU32;
use std::thread::Scope;

use crate::support::prelude::*;

/// A lock that threads take, hold for a while, give back, and take again at once, until [`end`](Self::end).
pub(crate) struct Busy {
    lock: Lock,
    grants: AtomicU32,
    ended: AtomicBool,
}

impl Busy {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock, grants: AtomicU32::new(0), ended: AtomicBool::new(false) }
    }

    pub(crate) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, (threads, hold): (u32, Duration)) {
        for _ in 0..threads {
            scope.spawn(move || {
                while !self.ended.load(Ordering::Relaxed) {
                    let guard = self.lock.lock().unwrap();
                    self.grants.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(hold);
                    guard.unlock().unwrap();
                }
            });
        }
    }

    /// The grants to all threads until now.
    pub(crate) fn grants(&self) -> u32 {
        self.grants.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
