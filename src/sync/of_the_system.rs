//! Mutex and condition variable of the standard library, in which a panic poisons nothing.
//!
//! They share no memory. A forked child would find the sleepers of its parent in the table of `parking_lot`, whose stacks
//! it lacks, and crash when it opens a client of its own.

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use std::sync::MutexGuard;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

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
        Self(std::sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Sleeps for at most `longest`, or a shorter time for no reason.
    pub(crate) fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, longest: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner).0
    }
}
