//! The mutex and the condition variable of a world, with the interface that the library uses.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::{What, World};

/// A mutex whose next owner is chosen by the seed.
#[derive(Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// Access to the data of a [`Mutex`].
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only during a wait.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

/// A condition variable whose sleepers wake in the order of the seed.
#[derive(Debug, Default)]
pub struct Condvar(Box<u8>);

impl<T> Mutex<T> {
    /// A mutex with this data.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits for the data.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, inner: Some(self.acquire()) }
    }

    /// Takes the data out.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// The data, without a lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    fn acquire(&self) -> parking_lot::MutexGuard<'_, T> {
        let Some((world, me)) = World::of_thread() else { return self.0.lock() };
        world.step(me);
        loop {
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            world.wait(me, What::Mutex(address(self)), None);
        }
    }

    fn released(&self) {
        if let Some((world, _)) = World::of_thread() {
            world.wake(What::Mutex(address(self)), true);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("locked")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.inner.take());
        self.mutex.released();
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Condvar {
    /// A condition variable without sleepers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one sleeper.
    pub fn notify_one(&self) {
        self.wake(false);
    }

    /// Wakes all sleepers.
    pub fn notify_all(&self) {
        self.wake(true);
    }

    /// Sleeps for at most `longest`.
    pub fn wait_for<'a, T>(&self, mut guard: MutexGuard<'a, T>, longest: Duration) -> MutexGuard<'a, T> {
        let (world, me) = World::of_thread().expect("a thread of a world");
        drop(guard.inner.take());
        guard.mutex.released();
        world.wait(me, What::Condvar(self.address()), Some(longest));
        guard.inner = Some(guard.mutex.acquire());
        guard
    }

    fn wake(&self, all: bool) {
        if let Some((world, _)) = World::of_thread() {
            world.wake(What::Condvar(self.address()), all);
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(&*self.0).addr()
    }
}

fn address<T>(mutex: &Mutex<T>) -> usize {
    std::ptr::from_ref(mutex).addr()
}
