//! The read-write lock: many readers or one writer, with a handle for each side.

use std::sync::Arc;

use super::Lock;
use crate::engine::Named;
use crate::kinds::ReadWrite;
use crate::script::Side;

/// A lock with two sides: many threads may hold the read side, or one thread the write side.
///
/// A writer may also take the read side, and keeps the read side after the release of the write side; waiting
/// readers are granted the lock then. A reader cannot become a writer, because the thread would wait for its own
/// read hold: the call fails with [`AlreadyHeld`](crate::ErrorKind::AlreadyHeld). A waiting writer does not stop new
/// readers, so readers that overlap without end keep writers out.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let prices = client.get_read_write_lock("prices");
/// let writing = prices.write().lock()?;
/// let reading = prices.read().lock()?;
/// writing.unlock()?;
/// // Other readers may take the lock now; this read hold goes on.
/// assert!(reading.is_held());
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its sides is locked"]
pub struct ReadWriteLock(pub(crate) Named);

impl ReadWriteLock {
    /// Returns the name that both sides share.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let prices = client.get_read_write_lock("prices");
    /// assert_eq!(prices.name(), prices.read().name());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Returns the read side, which many threads may hold.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let reading = client.get_read_write_lock("prices").read().lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn read(&self) -> Lock {
        self.side(Side::Shared)
    }

    /// Returns the write side, which one thread may hold.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let writing = client.get_read_write_lock("prices").write().lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn write(&self) -> Lock {
        self.side(Side::Exclusive)
    }

    fn side(&self, side: Side) -> Lock {
        let kind = ReadWrite { side, on_cluster: self.0.handle.has_slots() };
        Lock::new(&self.0.handle, Arc::new(kind), self.0.name.clone())
    }
}
