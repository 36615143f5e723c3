//! The handle of a lock whose guards may move between threads.

use std::fmt;
use std::time::Duration;

use super::Lock;
use crate::cancel::Cancel;
use crate::durability::Durability;
use crate::engine::Wait;
use crate::error::Result;
use crate::guard::OwnedGuard;

/// The lock with guards that may move between threads; every take has an owner of its own.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let guard = client.get_lock("import").owned().lock()?;
/// std::thread::spawn(move || {
///     // ... the work, on another thread ...
///     guard.unlock()
/// });
/// # Ok::<(), lockson::Error>(())
/// ```
#[must_use = "a handle does nothing until it is locked"]
pub struct OwnedLock<T = ()>(Lock<T>);

impl<T> Clone for OwnedLock<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for OwnedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedLock").field(&self.0).finish()
    }
}

impl<T> OwnedLock<T> {
    pub(super) fn new(lock: Lock<T>) -> Self {
        Self(lock)
    }

    /// Returns a handle that takes the lock for `lease` and never renews it; see [`Lock::with_lease`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("import").owned();
    /// let guard = lock.with_lease(Duration::from_secs(5)).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self(self.0.with_lease(lease))
    }

    /// Returns a handle whose locks are renewed for at most `most`; see [`Lock::with_max_hold`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("import").owned();
    /// let guard = lock.with_max_hold(Duration::from_secs(3_600)).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_max_hold(&self, most: Duration) -> Self {
        Self(self.0.with_max_hold(most))
    }

    /// Returns a handle whose locks count as taken when replicas, or a disk, have them; see
    /// [`Lock::with_durability`].
    ///
    /// ```no_run
    /// # use lockson::Durability;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("import").owned();
    /// let guard = lock.with_durability(Durability::replicas(1)).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self(self.0.with_durability(durability))
    }

    /// Returns a handle whose waits end when `cancel` is used; see [`Lock::with_cancel`].
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let stop = lockson::Cancel::new();
    /// let guard = client.get_lock("import").owned().with_cancel(&stop).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_cancel(&self, cancel: &Cancel) -> Self {
        Self(self.0.with_cancel(cancel))
    }

    /// Returns the name of the lock.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("import").owned();
    /// assert_eq!(lock.name(), "import");
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Takes the lock, waiting for it without limit; see [`Lock::lock`].
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("import").owned().lock()?;
    /// std::thread::spawn(move || guard.unlock());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`].
    pub fn lock(&self) -> Result<OwnedGuard<T>> {
        self.0.take_for_ever().and_then(|grant| OwnedGuard::new(grant, self.0.carried))
    }

    /// Takes the lock if it is free, without waiting; see [`Lock::try_lock`].
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if let Some(guard) = client.get_lock("import").owned().try_lock()? {
    ///     std::thread::spawn(move || guard.unlock());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock`].
    pub fn try_lock(&self) -> Result<Option<OwnedGuard<T>>> {
        self.0.take(Wait::Not)?.map(|grant| OwnedGuard::new(grant, self.0.carried)).transpose()
    }

    /// Takes the lock; waits for at most `wait`. [`Duration::MAX`] waits as [`lock`](Self::lock) does.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if let Some(guard) = client.get_lock("import").owned().try_lock_for(Duration::from_secs(2))? {
    ///     std::thread::spawn(move || guard.unlock());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock_for`].
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<OwnedGuard<T>>> {
        self.0.take(Wait::within(wait))?.map(|grant| OwnedGuard::new(grant, self.0.carried)).transpose()
    }
}
