//! Expiring permits: the handle of a semaphore whose permits return by themselves, and the permits of a holder.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::durability::Durability;
use crate::engine::{Named, Numbered};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::guard::{Guard, OwnedGuard};
use crate::kinds::permits::{self, PermitLock};
use crate::kinds::semaphore;
use crate::lock::{Lock, OwnedLock};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::once::Once;
use crate::script::{Call, Side, query};
use crate::time::Lease;

/// A semaphore whose permits expire: a crashed holder's permits return by themselves. Redisson's
/// `RPermitExpirableSemaphore`.
///
/// Taken permits are renewed until they are given back, or are taken for a [lease](Self::with_lease). They can end
/// earlier than their holder expects, as a lock can; their [`Hold`](crate::Hold) tells. The number of permits is set
/// once, by whichever client comes first:
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let calls = client.get_permit_expirable_semaphore("paid-api");
/// calls.set_permits_once(5)?;
/// let permit = calls.acquire(1)?;
/// // ... at most five calls at a time, over all machines ...
/// permit.release()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until permits are taken"]
pub struct PermitExpirableSemaphore(pub(crate) Named);

/// Expiring permits that were taken together; dropping them gives them back.
///
/// They belong to no thread and may move to another one. They are lost together: when one of them is gone, the others
/// are given back with the drop. A drop takes at most [`drop_timeout`](crate::ClientBuilder::drop_timeout). They answer as
/// their [`Hold`](crate::Hold), which is held while all of them are.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let permits = client.get_permit_expirable_semaphore("paid-api").acquire(2)?;
/// std::thread::spawn(move || {
///     // ... two calls ...
///     permits.release()
/// });
/// # Ok::<(), lockson::Error>(())
/// ```
pub type ExpiringPermits = OwnedGuard<ExpiringPermit>;

/// Marks the guard of [expiring permits](ExpiringPermits).
///
/// ```no_run
/// fn watch<On>(permits: &lockson::Guard<lockson::ExpiringPermit, On>) {
///     permits.on_lost(|loss| eprintln!("stop the calls: {loss}"));
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ExpiringPermit(());

/// The id of one permit, as Redisson shows it: 32 hexadecimal digits.
///
/// ```
/// let id: lockson::PermitId = "0102030405060708090a0b0c0d0e0f10".parse()?;
/// assert_eq!(id.to_string(), "0102030405060708090a0b0c0d0e0f10");
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId(Arc<[u8]>);

impl PermitExpirableSemaphore {
    /// Returns a handle that takes permits for `lease` and never renews them. 1 ms to 365 days.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let calls = client.get_permit_expirable_semaphore("paid-api").with_lease(Duration::from_secs(30));
    /// let permit = calls.acquire(1)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self(self.0.with(|modifiers| modifiers.lease = Some(lease)))
    }

    /// Returns a handle whose permits are renewed for at most `most`; see
    /// [`Lock::with_max_hold`](crate::Lock::with_max_hold).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let calls = client.get_permit_expirable_semaphore("paid-api").with_max_hold(Duration::from_secs(600));
    /// let permit = calls.acquire(1)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_max_hold(&self, most: Duration) -> Self {
        Self(self.0.with(|modifiers| modifiers.max_hold = Some(most)))
    }

    /// Returns a handle whose permits count as taken when replicas, or a disk, have them; see
    /// [`Lock::with_durability`](crate::Lock::with_durability).
    ///
    /// ```no_run
    /// # use lockson::Durability;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let calls = client.get_permit_expirable_semaphore("paid-api").with_durability(Durability::replicas(1));
    /// let permit = calls.acquire(1)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self(self.0.with(|modifiers| modifiers.durability = Some(durability)))
    }

    /// Returns a handle whose waits end when `cancel` is used.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let stop = lockson::Cancel::new();
    /// let permit = client.get_permit_expirable_semaphore("paid-api").with_cancel(&stop).acquire(1)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_cancel(&self, cancel: &Cancel) -> Self {
        Self(self.0.with(|modifiers| modifiers.cancel = Some(cancel.clone())))
    }

    /// Returns the name of the semaphore, with the prefix of the client.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// assert_eq!(client.get_permit_expirable_semaphore("paid-api").name(), "paid-api");
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Takes this many permits, all or none; waits without limit. 1 to 1,000 permits.
    ///
    /// A wish for many permits may wait for ever beside busy wishes for few: what is free is never saved up.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let permit = client.get_permit_expirable_semaphore("paid-api").acquire(1)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`](crate::Lock::lock). `BadInput` for another number of permits.
    pub fn acquire(&self, permits: u32) -> Result<ExpiringPermits> {
        self.taking(permits)?.lock()
    }

    /// Takes this many permits if they are free, without waiting; `None` if too few are free.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if let Some(permit) = client.get_permit_expirable_semaphore("paid-api").try_acquire(1)? {
    ///     // ... one call ...
    ///     permit.release()?;
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock`](crate::Lock::try_lock). `BadInput` for another number of permits than 1 to 1,000.
    pub fn try_acquire(&self, permits: u32) -> Result<Option<ExpiringPermits>> {
        self.taking(permits)?.try_lock()
    }

    /// Takes this many permits, all or none; waits for at most `wait`. `None` when the time is up.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let calls = client.get_permit_expirable_semaphore("paid-api");
    /// let permit = calls.try_acquire_for(1, Duration::from_secs(2))?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock_for`](crate::Lock::try_lock_for). `BadInput` for another number of permits than 1 to 1,000.
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<ExpiringPermits>> {
        self.taking(permits)?.try_lock_for(wait)
    }

    /// Gives permits of whatever holder back by their ids, all or none. A holder with this crate is told of its loss.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // An id from the log of a program that hangs.
    /// let id = "0102030405060708090a0b0c0d0e0f10".parse()?;
    /// client.get_permit_expirable_semaphore("paid-api").release_by_id(&[id])?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotHeld` where one of the ids is unknown or has expired; then nothing was given back. `Unknown` when Redis did
    /// not reply: the request may have run, or may still run until the background has closed it.
    pub fn release_by_id(&self, ids: &[PermitId]) -> Result<()> {
        let name = self.0.name.checked()?;
        let bytes: Vec<&[u8]> = ids.iter().map(|id| &*id.0).collect();
        let released = self.0.once(&|name, once| permits::release_by_id(name, once, &bytes));
        if let Some(engine) = self.0.handle.look() {
            if released.is_err() {
                engine.keeper.verify_holds(name);
            }
            for hold in engine.cells.registry.under(name) {
                if matches!(released, Ok(true)) && ids_of(&hold.owner).iter().any(|id| ids.contains(id)) {
                    engine.keeper.lose(&hold, Loss::Gone);
                }
            }
        }
        let unknown = || Error::new(ErrorKind::NotHeld, "a permit is unknown or has expired; none was given back");
        if released? { Ok(()) } else { self.0.about(Err(unknown())) }
    }

    /// Sets the lease of a permit of another holder, counted from now. Returns whether the permit is still taken.
    ///
    /// A holder of this crate does not learn of a shorter lease, and renews a permit taken without a lease at its next
    /// tick: end such a permit by [`release_by_id`](Self::release_by_id). For permits of this process use
    /// [`Hold::extend`](crate::Hold::extend).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let id = "0102030405060708090a0b0c0d0e0f10".parse()?;
    /// client.get_permit_expirable_semaphore("paid-api").update_lease(&id, Duration::from_secs(60))?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible lease, and for a permit that this client holds; otherwise as
    /// [`release_by_id`](Self::release_by_id).
    pub fn update_lease(&self, id: &PermitId, lease: Duration) -> Result<bool> {
        let name = self.0.name.checked()?;
        let lease = self.0.about(Lease::new(lease))?;
        let holds = self.0.handle.look().map_or_else(Vec::new, |engine| engine.cells.registry.under(name));
        if holds.iter().any(|hold| ids_of(&hold.owner).contains(id)) {
            return self.0.about(Err(Error::new(ErrorKind::BadInput, "this client holds the permit; extend that one")));
        }
        self.0.once(&|name, once| permits::update_lease(name, once, &id.0, lease))
    }

    /// Asks Redis how long a permit stays taken: `None` for a permit that is unknown or has expired,
    /// [`Duration::MAX`] for a permit without an end, as Redisson can take it.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let id = "0102030405060708090a0b0c0d0e0f10".parse()?;
    /// let left = client.get_permit_expirable_semaphore("paid-api").remaining_time_to_live(&id)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refusals and outages of the server.
    pub fn remaining_time_to_live(&self, id: &PermitId) -> Result<Option<Duration>> {
        self.ask(|name| permits::time_to_live(name, &id.0))
    }

    /// Asks Redis for the number of free permits; negative after permits were taken away from a semaphore in use.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// println!("{} calls may begin now", client.get_permit_expirable_semaphore("paid-api").available()?);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `OtherKind` when the key is no counter; refusals and outages of the server.
    pub fn available(&self) -> Result<i64> {
        self.ask(permits::count).map(|(free, _)| free)
    }

    /// Asks Redis for the number of taken permits.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// println!("{} calls are under way", client.get_permit_expirable_semaphore("paid-api").acquired()?);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    pub fn acquired(&self) -> Result<i64> {
        self.ask(permits::count).map(|(_, taken)| taken)
    }

    /// Asks Redis for the number of all permits, free and taken.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// println!("{} calls at a time", client.get_permit_expirable_semaphore("paid-api").permits()?);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    pub fn permits(&self) -> Result<i64> {
        self.ask(permits::count).map(|(free, taken)| free.saturating_add(taken))
    }

    /// Sets the number of all permits, free and taken. With more taken than that, none is free until enough returned.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_permit_expirable_semaphore("paid-api").set_permits(10)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name or more than 2,147,483,647 permits. `Unknown` when Redis did not reply: the
    /// request may have run, or may still run until the background has closed it. `OtherKind` for a name of another
    /// kind, but for the name of a semaphore or a latch, which are counters, too: use each name for one kind.
    pub fn set_permits(&self, permits: u32) -> Result<()> {
        self.set(permits, false).map(drop)
    }

    /// Sets the number of all permits if there is no semaphore of this name. Returns whether it was set. At most
    /// 2,147,483,647.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let calls = client.get_permit_expirable_semaphore("paid-api");
    /// calls.set_permits_once(5)?; // each process may say so; one is first
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_permits`](Self::set_permits).
    pub fn set_permits_once(&self, permits: u32) -> Result<bool> {
        self.set(permits, true)
    }

    /// Adds free permits; a negative number takes permits away, also more than are free.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_permit_expirable_semaphore("paid-api").add_permits(-2)?; // the contract got smaller
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_permits`](Self::set_permits). `BadInput` also where more than 2,147,483,647 permits would be free.
    pub fn add_permits(&self, permits: i64) -> Result<()> {
        self.0.about(query::check_permits(permits.unsigned_abs()))?;
        self.0.once(&|name, once| semaphore::release(name, once, permits, semaphore::Returning::ToAny)).map(drop)
    }

    /// Deletes the semaphore with all permits, taken ones too. Returns whether there was one. A holder with this crate
    /// is told of its loss.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_permit_expirable_semaphore("paid-api").delete()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_permits`](Self::set_permits).
    pub fn delete(&self) -> Result<bool> {
        self.0.ask(|engine, name| {
            let call = |once: &Once| permits::delete(name, once);
            engine.force_release(name, Side::Shared, || engine.sender.once_within(&Numbered::new(name, &call)))
        })
    }

    /// The lock whose holders have this many permits.
    fn taking(&self, permits: u32) -> Result<OwnedLock<ExpiringPermit>> {
        self.0.about(query::check_taking(permits, MOST_PERMITS))?;
        let kind = Arc::new(PermitLock { permits, skew_ms: self.0.handle.peer_clock_skew_ms() });
        let lock = Lock::carrying(|_| Some(ExpiringPermit(())), &self.0.handle, kind, self.0.name.clone());
        Ok(lock.with(self.0.modifiers.clone()).owned())
    }

    fn ask<A: Send>(&self, call: impl FnOnce(&LockName) -> Call<A>) -> Result<A> {
        self.0.ask(|engine, name| engine.sender.ask(&call(name)).map_err(|error| engine.sender.of_counter(name, error)))
    }

    fn set(&self, permits: u32, if_none: bool) -> Result<bool> {
        self.0.about(query::check_permits(permits.into()))?;
        self.0.once(&|name, once| permits::set(name, once, permits, if_none))
    }
}

impl<On> Guard<ExpiringPermit, On> {
    /// Returns the ids of the permits, by which other programs can give the permits back.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let permits = client.get_permit_expirable_semaphore("paid-api").acquire(2)?;
    /// println!("{:?}", permits.ids());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn ids(&self) -> Vec<PermitId> {
        ids_of(&OwnerId::encoded(self.owner()))
    }

    /// Gives the permits back, and returns the outcome.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let permit = client.get_permit_expirable_semaphore("paid-api").acquire(1)?;
    /// // ... one call ...
    /// permit.release()?; // `Lost` if more calls than allowed may have been under way
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`](crate::Guard::unlock). Where some of the permits were lost, the background gives back the
    /// others, a moment after the call.
    pub fn release(self) -> Result<()> {
        self.unlock()
    }
}

/// Any even number of hexadecimal digits, as Redisson reads ids.
impl FromStr for PermitId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let is_hex = !text.is_empty() && text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
        let bytes = is_hex.then(|| text.as_bytes().chunks(2).map(byte).collect::<Option<Arc<[u8]>>>()).flatten();
        let wrong = || Error::new(ErrorKind::BadInput, format!("{text:?} is no permit id: 32 hexadecimal digits"));
        bytes.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({self})")
    }
}

/// The ids of the permits of an owner; those of an owner of another kind are nobody's.
fn ids_of(owner: &OwnerId) -> Vec<PermitId> {
    permits::ids_of(owner).map(|id| PermitId(id.into())).collect()
}

/// The most permits that one hold has: their ids are arguments of one request, and of each renewal of many holds.
const MOST_PERMITS: u32 = 1_000;
