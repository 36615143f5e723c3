//! Mutex and condition variable of the checker, which decides which thread runs.
#![cfg(all(test, shuttle))]

use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// `None` only during a wait, or while the mutex is unlocked for other threads.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a shuttle::sync::Mutex<T>,
    inner: Option<shuttle::sync::MutexGuard<'a, T>>,
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

pub(crate) struct Waited;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: &self.0, inner: Some(self.0.lock().unwrap()) }
    }
}

impl<T> MutexGuard<'_, T> {
    pub(crate) fn unlocked<U>(guard: &mut Self, work: impl FnOnce() -> U) -> U {
        drop(guard.inner.take());
        let answer = work();
        guard.inner = Some(guard.mutex.lock().unwrap());
        answer
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().unwrap()
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
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _longest: Duration) -> Waited {
        guard.inner = guard.inner.take().map(|inner| self.0.wait(inner).unwrap());
        Waited
    }
}

impl Waited {
    pub(crate) fn timed_out(&self) -> bool {
        false
    }
}
