//! The read-write lock: many readers or one writer, with a handle for each side.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::engine::{AcquireArgs, Handle, Kind, Queueing};
use crate::error::Loss;
use crate::listing::LockKind;
use crate::lock::Lock;
use crate::name::{GivenName, LockName};
use crate::owner::OwnerId;
use crate::script::look::Claim;
use crate::script::{
    Attempt, Call, Counts, IfLock, Publication, Raise, Released, Renewal, RenewalAnswer, Side, query, read_write,
};
use crate::time::Lease;

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
/// let writing = prices.get_write_lock().lock()?;
/// let reading = prices.get_read_lock().lock()?;
/// writing.unlock()?;
/// // Other readers may take the lock now; this read hold goes on.
/// assert!(reading.is_held());
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until one of its sides is locked"]
pub struct ReadWriteLock {
    handle: Handle,
    name: GivenName,
}

impl ReadWriteLock {
    pub(crate) fn new(handle: &Handle, name: GivenName) -> Self {
        Self { handle: handle.clone(), name }
    }

    /// Returns the name that both sides share.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let prices = client.get_read_write_lock("prices");
    /// assert_eq!(prices.name(), prices.get_read_lock().name());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the read side, which many threads may hold.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let reading = client.get_read_write_lock("prices").get_read_lock().lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_read_lock(&self) -> Lock {
        self.side(Side::Shared)
    }

    /// Returns the write side, which one thread may hold.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let writing = client.get_read_write_lock("prices").get_write_lock().lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_write_lock(&self) -> Lock {
        self.side(Side::Exclusive)
    }

    fn side(&self, side: Side) -> Lock {
        let kind = ReadWrite { side, on_cluster: self.handle.has_slots() };
        Lock::new(&self.handle, Arc::new(kind), self.name.clone())
    }
}

/// As for each of its sides.
impl UnwindSafe for ReadWriteLock {}
impl RefUnwindSafe for ReadWriteLock {}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWriteLock").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One side of Redisson's read-write lock.
#[derive(Debug)]
struct ReadWrite {
    side: Side,
    /// Whether the keys of the lock move between servers one by one.
    on_cluster: bool,
}

impl Kind for ReadWrite {
    fn label(&self, side: Side) -> LockKind {
        match side {
            Side::Exclusive => LockKind::Write,
            Side::Shared => LockKind::Read,
        }
    }

    fn family(&self) -> &'static str {
        "read-write"
    }

    fn queueing(&self) -> Queueing {
        match self.side {
            Side::Exclusive => Queueing::Line,
            Side::Shared => Queueing::Together,
        }
    }

    fn side(&self) -> Side {
        self.side
    }

    fn check_reentry(&self, held: Counts) -> Result<(), &'static str> {
        if self.side == Side::Exclusive && held.exclusive == 0 {
            return Err("this thread holds the read side and would wait for itself; release the read side first");
        }
        Ok(())
    }

    fn channel(&self, name: &LockName, _: &OwnerId) -> String {
        name.read_write_channel()
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        match self.side {
            Side::Exclusive => read_write::acquire_write(args.name, args.owner, args.lease),
            Side::Shared => read_write::acquire_read(args.name, args.owner, args.lease),
        }
    }

    fn reenter(&self, name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
        read_write::reenter(name, owner, raise, counts)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let channel = name.read_write_channel();
        if self.on_cluster {
            return read_write::release_on_cluster(name, owner, remaining, &channel);
        }
        read_write::release(name, owner, remaining, &channel)
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        read_write::renew(locks)
    }

    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        read_write::look(claims)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        let message = match self.side {
            Side::Exclusive => "1",
            Side::Shared => "0",
        };
        let channel = name.read_write_channel();
        read_write::force_release(name, self.mode(), Publication { channel: &channel, message })
    }

    fn is_locked(&self, name: &LockName) -> Call<IfLock<bool>> {
        read_write::is_locked(name, self.mode()).map(Ok)
    }

    fn holder(&self, name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
        match self.side {
            Side::Exclusive => query::writer(name),
            Side::Shared => query::reader(name),
        }
    }
}

impl ReadWrite {
    fn mode(&self) -> &'static str {
        match self.side {
            Side::Exclusive => "write",
            Side::Shared => "read",
        }
    }
}
