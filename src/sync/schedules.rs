//! Mutex and condition variable of the checker, which decides which thread runs.
#![cfg(all(test, shuttle))]

use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

pub(crate) use shuttle::sync::MutexGuard;

#[derive(Debug, Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Never times out: a thread that is not woken sleeps for ever, and the checker reports a deadlock.
    pub(crate) fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, _longest: Duration) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap()
    }
}
