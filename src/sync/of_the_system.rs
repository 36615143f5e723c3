//! Mutex and condition variable of the standard library, in which a panic poisons nothing.
//!
//! They share no memory. A forked child would find the sleepers of its parent in the table of `parking_lot`, whose stacks
//! it lacks, and crash when it opens a client of its own.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) use std::sync::MutexGuard;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

/// With the number of its sleepers: a call of the system would wake nobody where there is none. It changes under the
/// mutex of what they wait for, so a thread that changes the data knows of each sleeper.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    inner: std::sync::Condvar,
    sleepers: AtomicU32,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self { inner: std::sync::Condvar::new(), sleepers: AtomicU32::new(0) }
    }

    pub(crate) fn notify_one(&self) {
        if self.has_sleepers() {
            self.inner.notify_one();
        }
    }

    pub(crate) fn notify_all(&self) {
        if self.has_sleepers() {
            self.inner.notify_all();
        }
    }

    /// Sleeps for at most `longest`, or a shorter time for no reason.
    pub(crate) fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, longest: Duration) -> MutexGuard<'a, T> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let guard = self.inner.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner).0;
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0
    }
}
