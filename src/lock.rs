//! The handle of every lock except the read-write pair: takes, queries and force-releases a lock.

mod one;
mod read_write;
mod several;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::conn::{by_server, side_by_side};
use crate::durability::Durability;
use crate::engine::several::{Form, Members, Multi, SingleLock};
use crate::engine::{Handle, Modifiers, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{AnyThread, Guard, ItsThread, OwnedGuard};
use crate::hold::{Hold, Taken};
use crate::kinds::Kind;
use crate::listing::{LockKind, record};
use crate::name::GivenName;
use crate::owner::OwnerId;
use crate::script::Side;
use crate::time::Instant;
use crate::token::FencingToken;
pub use read_write::ReadWriteLock;

/// A lock by its name. Making a handle does no I/O and cannot fail.
///
/// The holder keeps the lock until the release or the end of the time to live. The time to live may end earlier than
/// the holder expects: the guarantees page says when, and [`Hold`] how to find out.
///
/// The lock belongs to a thread: the thread that holds the lock may take it again, through any handle of the same
/// client and name, and must release it as often. Beware of thread pools that run other jobs during a wait (rayon's
/// `join` and `scope` do): such a job runs on the same thread, so it *re-enters* the lock instead of waiting, and
/// with [`owned`](Self::owned) it would wait for its own thread. Do not call into such a pool while holding a lock
/// that its jobs take.
///
/// Modifiers like [`with_lease`](Self::with_lease) return a changed copy; a second use of the same modifier replaces
/// the first.
///
/// `T` is the part of each grant beside the lock: nothing, or the [`FencingToken`] of a [fenced
/// lock](crate::Client::get_fenced_lock), which its [`Guard<FencingToken>`](Guard::token) returns. A
/// `Lock<FencingToken>` becomes a plain `Lock` with [`Into`], for a list of locks of several kinds.
///
/// `On` tells where its guards may be: on [`ItsThread`], or for an [`OwnedLock`] on [`AnyThread`].
///
/// ```no_run
/// use std::time::Duration;
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let lock = client.get_lock("lock:orders:42");
/// match lock.try_lock_for(Duration::from_secs(2))? {
///     Some(_guard) => println!("held until the end of this block"),
///     None => println!("someone else has it"),
/// }
/// # Ok::<(), lockson::Error>(())
/// ```
#[must_use = "a handle does nothing until it is locked"]
pub struct Lock<T = (), On = ItsThread> {
    locks: Locks,
    modifiers: Modifiers,
    /// Reads the part of a grant for the guard.
    carried: fn(&Hold) -> Option<T>,
    on: PhantomData<fn() -> On>,
}

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
pub type OwnedLock<T = ()> = Lock<T, AnyThread>;

/// What a handle takes.
#[derive(Clone)]
enum Locks {
    One(SingleLock),
    Several(Arc<Members>),
    /// The name of what cannot be taken, and the reason.
    Impossible(Arc<str>, Error),
}

record! {
    /// An owner of a lock, as stored in Redis.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // `redis-cli HGETALL import` shows the same.
    /// let holder = client.get_lock("import").holder()?;
    /// println!("{:?}", holder.map(|holder| (holder.owner().to_owned(), holder.hold_count())));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    #[derive(PartialEq, Eq)]
    pub struct Holder {
        /// Returns the owner id: for this crate and for Redisson it begins with the client's uuid.
        owner: String => [&str],
        /// Returns how often the owner holds it.
        hold_count: u64 => [u64],
    }
}

impl Lock {
    pub(crate) fn new(handle: &Handle, kind: Arc<dyn Kind>, name: GivenName) -> Self {
        Self::carrying(|_| Some(()), handle, kind, name)
    }

    /// Returns several locks as one: all of them are taken, or none.
    ///
    /// The locks may be of any client and server, and of any kind but the [token lock](crate::TokenOptions) without
    /// scripts, at most 1,000; a multi-lock among them counts as its locks.
    /// Fenced locks become members by `.into()`, or `.map(Lock::from)`; [`Hold::members`] tells their tokens.
    /// The order does not matter: a waiter holds nothing while it waits, so multi-locks never deadlock, also with
    /// threads that hold one of the locks already. A waiter that waited long or met busy locks in four rounds may
    /// hold the others for a part of that time, so that locks that are nearly always busy do not starve it.
    ///
    /// Locks of one server by [`get_lock`](crate::Client::get_lock), non-reentrant and spin locks are taken and released
    /// in one request. A lock that this thread holds is re-entered. When the call returns, each lock is held with at
    /// least half of its lease.
    ///
    /// [`with_lease`](Self::with_lease) and [`with_max_hold`](Self::with_max_hold) of the multi-lock replace those of
    /// its locks; a [`with_cancel`](Self::with_cancel) counts on the multi-lock only. The guard is held while all locks
    /// are; [`Hold::members`] tells each lock. A release releases all locks, also after failures, and its error names
    /// those that failed. [`holder`](Self::holder) and [`remaining_time_to_live`](Self::remaining_time_to_live) are
    /// `Unsupported` for more than one lock: ask the single locks, and a value of a group by a group lock of that value
    /// alone.
    ///
    /// Redisson's `getMultiLock`, in the rounds of C++'s `std::lock`. Each lock is stored as if taken alone, so other
    /// clients, Java ones included, see no difference.
    ///
    /// ```no_run
    /// use lockson::Lock;
    ///
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let (from, to) = (client.get_lock("account:1"), client.get_lock("account:2"));
    /// let guard = Lock::multi([from, to]).lock()?;
    /// // ... move the money ...
    /// guard.unlock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn multi(locks: impl IntoIterator<Item = Self>) -> Self {
        Self::several(locks, Arc::new(Multi))
    }

    /// Several locks as one in another form.
    pub(crate) fn several(locks: impl IntoIterator<Item = Self>, form: Arc<dyn Form>) -> Self {
        let locks = match Members::of(locks, form) {
            Ok(members) => Locks::Several(Arc::new(members)),
            Err(error) => Locks::Impossible("multi(?)".into(), error),
        };
        Self::of(locks, |_| Some(()))
    }
}

impl<T> Lock<T> {
    /// A lock whose guards carry a part of their hold.
    pub(crate) fn carrying(
        carried: fn(&Hold) -> Option<T>,
        handle: &Handle,
        kind: Arc<dyn Kind>,
        name: GivenName,
    ) -> Self {
        let locks = match name.checked() {
            Ok(name) => Locks::One(SingleLock { handle: handle.clone(), kind, name: name.clone() }),
            Err(error) => Locks::Impossible(name.as_str().into(), error),
        };
        Self::of(locks, carried)
    }

    fn of(locks: Locks, carried: fn(&Hold) -> Option<T>) -> Self {
        Self { locks, modifiers: Modifiers::default(), carried, on: PhantomData }
    }

    /// Returns the same lock with guards that may move between threads.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("import").owned().lock()?;
    /// std::thread::spawn(move || guard.unlock());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn owned(&self) -> OwnedLock<T> {
        self.copied(Modifiers { owned: true, ..self.modifiers.clone() }, self.carried)
    }

    /// Takes the lock for `interval` if it is free, and lets the lock expire.
    ///
    /// A frequency gate: of all threads and machines that use the same name, one gets `true` in each interval. The
    /// interval starts at the grant, and ends early if the lease ends early.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if client.get_lock("send-report").once_per(Duration::from_secs(3_600))? {
    ///     // ... at most once an hour, on whatever machine ...
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock); the interval must be a possible lease. `BadInput` for a read lock, which many
    /// owners may hold, and for a handle with a lease or a limit of its own.
    pub fn once_per(&self, interval: Duration) -> Result<bool> {
        if self.singles()?.iter().any(|lock| lock.kind.side() == Side::Shared) {
            return self.meaningless("a read lock lets everybody in; use the write lock");
        }
        if self.modifiers.lease.or(self.modifiers.max_hold).is_some() {
            return self
                .meaningless("once_per() keeps the lock for its interval; leave with_lease() and with_max_hold() out");
        }
        // An owned take: no thread may re-enter the interval.
        let guard = self.with_lease(interval).owned().try_lock()?;
        Ok(guard.map(OwnedGuard::keep_until_expiry).is_some())
    }

    /// Releases the newest hold of this thread that was left to this method by
    /// [`Guard::leave_to_unlock`](crate::Guard::leave_to_unlock).
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("stock:42");
    /// lock.lock()?.leave_to_unlock();
    /// // ... somewhere else, on the same thread ...
    /// lock.unlock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotHeld` without such a hold, also when another thread has one; `OtherKind` when the hold belongs to a kind
    /// of lock that this handle could not re-enter; otherwise as [`Guard::unlock`](crate::Guard::unlock). Several locks
    /// are released if this thread has such a hold on each, of a red lock on most; otherwise none is.
    pub fn unlock(&self) -> Result<()> {
        let left = match &self.locks {
            Locks::One(one) => Hold::of(one, one.left_to_unlock()?),
            Locks::Several(members) => Hold::of_several(members, members.left_to_unlock()?),
            Locks::Impossible(_, error) => return Err(error.clone()),
        };
        Guard::<(), ItsThread>::new(left, |_| Some(()))?.unlock()
    }

    /// Returns whether this thread holds the lock, as far as this process knows. No I/O.
    ///
    /// The hold of an [`OwnedGuard`] belongs to no thread and does not count.
    ///
    /// ```no_run
    /// # fn deposit(account: &lockson::Lock) {
    /// assert!(account.is_held_by_current_thread(), "call this under the lock");
    /// # }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn is_held_by_current_thread(&self) -> bool {
        self.hold_count() > 0
    }

    /// Returns the hold count of this thread; zero without a hold. No I/O.
    ///
    /// The hold of an [`OwnedGuard`] belongs to no thread and does not count.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("stock:42");
    /// let (outer, inner) = (lock.lock()?, lock.lock()?);
    /// assert_eq!(lock.hold_count(), 2);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn hold_count(&self) -> u64 {
        let mut counts: Vec<u64> = self.singles().into_iter().flatten().map(SingleLock::hold_count).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts.get(self.needed() - 1).copied().unwrap_or(0)
    }
}

impl<T, On> Lock<T, On> {
    /// Returns a handle that takes the lock for `lease` and never renews it. 1 ms to 365 days.
    ///
    /// A grant whose lease ends before its reply arrives does not count: with a lease shorter than a request takes,
    /// the lock is never granted.
    ///
    /// A re-entry with a lease never shortens the promise to an outer section. An inner guard that outlives the outer
    /// guard keeps only its own lease.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // Free again after 5 seconds, whatever becomes of us.
    /// let guard = client.get_lock("import").with_lease(Duration::from_secs(5)).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.with(Modifiers { lease: Some(lease), ..self.modifiers.clone() })
    }

    /// Returns a handle whose locks are renewed for at most `most`, counted from the grant.
    ///
    /// The limit guards against work that hangs: the lock ends at most one
    /// [`watchdog`](crate::ClientBuilder::watchdog) timeout after `most`, and never before the first such timeout.
    /// For an exact end use a [lease](Self::with_lease); a lease is never renewed, so both together are `BadInput`.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // Renewed while it works, but not for longer than an hour.
    /// let guard = client.get_lock("import").with_max_hold(Duration::from_secs(3_600)).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_max_hold(&self, most: Duration) -> Self {
        self.with(Modifiers { max_hold: Some(most), ..self.modifiers.clone() })
    }

    /// Returns a handle whose locks count as taken when replicas, or a disk, have them; see [`Durability`].
    ///
    /// A lock that does not reach them in time is given back, and the call fails with `NotDurable`: it does not wait
    /// and ask again. A busy lock is `None` as ever. A thread that re-enters a lock needs what its outer section needs,
    /// or more. Of several locks each waits, those of one server together. A durability that may take longer than half of
    /// the lease is `BadInput`: below a lease of 2 s set [`within`](Durability::within).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::{Durability, ErrorKind};
    ///
    /// let lock = client.get_lock("payout:7").with_durability(Durability::replicas(1));
    /// match lock.try_lock() {
    ///     Ok(Some(guard)) => guard.unlock()?, // a fail-over to that replica keeps the lock
    ///     Ok(None) => println!("another client pays"),
    ///     Err(error) if error.kind() == ErrorKind::NotDurable => println!("no replica: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_durability(&self, durability: Durability) -> Self {
        self.with(Modifiers { durability: Some(durability), ..self.modifiers.clone() })
    }

    /// Returns a handle whose waits end when `cancel` is used.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::{Cancel, ErrorKind};
    ///
    /// let stop = Cancel::new(); // a clone of it is used by the thread that shuts us down
    /// match client.get_lock("import").with_cancel(&stop).lock() {
    ///     Err(error) if error.kind() == ErrorKind::Cancelled => println!("we are shutting down"),
    ///     outcome => drop(outcome?),
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_cancel(&self, cancel: &Cancel) -> Self {
        self.with(Modifiers { cancel: Some(cancel.clone()), ..self.modifiers.clone() })
    }

    /// Returns the name of the lock, with the [prefix](crate::ClientBuilder::name_prefix) of the client. `get_lock` and
    /// its kin add the prefix, so give them the name without the prefix.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("lock:orders:42");
    /// assert_eq!(lock.name(), "lock:orders:42");
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        match &self.locks {
            Locks::One(one) => one.name.as_str(),
            Locks::Several(members) => &members.name,
            Locks::Impossible(name, _) => name,
        }
    }

    /// Takes the lock; waits without limit.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// // ... one machine at a time ...
    /// guard.unlock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name or lease, before any request. After
    /// [`outage_limit`](crate::ClientBuilder::outage_limit) without a reply of Redis: `Connection`, or `Unknown` if a
    /// request was sent, or `Refused` if Redis kept refusing for a transient reason like `LOADING`. `Lost` when this
    /// thread held the lock and lost it. `Quorum` for a [red lock](crate::RedLock) without a majority; `NotDurable` for
    /// a [`Durability`] that is not reached, `Unsupported` where the server lacks `WAIT` or `WAITAOF`. `Cancelled`,
    /// `Closed`, `AlreadyHeld` and `OtherKind` as their names say.
    pub fn lock(&self) -> Result<Guard<T, On>> {
        let busy = || Error::new(ErrorKind::Unknown, "a wait without limit ended without the lock").about(self.name());
        Guard::new(self.take(Wait::FOR_EVER)?.ok_or_else(busy)?, self.carried)
    }

    /// Takes the lock if it is free, without waiting.
    ///
    /// `None` means that another owner holds the lock.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("sweep");
    /// let Some(guard) = lock.try_lock()? else {
    ///     return Ok(()); // another machine is at it
    /// };
    /// guard.unlock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), but an unreachable server fails the call at once.
    pub fn try_lock(&self) -> Result<Option<Guard<T, On>>> {
        self.take(Wait::Not)?.map(|grant| Guard::new(grant, self.carried)).transpose()
    }

    /// Takes the lock; waits for at most `wait`. [`Duration::MAX`] waits as [`lock`](Self::lock) does.
    ///
    /// `None` means that other owners kept the lock for the whole wait. While the server answers, the call ends at
    /// most 50 ms after the wait; if the server is silent, one
    /// [`command_timeout`](crate::ClientBuilder::command_timeout) later.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("lock:orders:42");
    /// let Some(guard) = lock.try_lock_for(Duration::from_secs(2))? else {
    ///     println!("order 42 is being paid by someone else");
    ///     return Ok(());
    /// };
    /// guard.unlock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), but an unreachable server is tried again until the wait is over, however long the
    /// wait (`Duration::MAX` excepted).
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard<T, On>>> {
        self.take(Wait::within(wait))?.map(|grant| Guard::new(grant, self.carried)).transpose()
    }

    /// Takes the lock, runs `work` under the lock, and releases it; waits for the lock without limit.
    ///
    /// The guard is only lent to `work`, so no mistake can drop the guard too early. A panic of `work` releases the
    /// lock, too.
    ///
    /// ```no_run
    /// # fn price() -> u32 { 7 }
    /// # fn store(price: u32) -> std::io::Result<()> { Ok(()) }
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("prices");
    /// let stored = lock.run(|guard| {
    ///     let price = price(); // slow
    ///     guard.is_held().then(|| store(price))
    /// })?; // `Lost`: another holder may have run meanwhile
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// Work that can fail returns a `Result` of its own inside: `lock.run(|_| work())??` passes both on.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock) if the lock is not taken; then `work` has not run. `Lost` if the lock was lost before
    /// the end of `work`, so that `work` was not protected to its end. Then the outcome of `work` is dropped; where it
    /// must survive, let the guard run the work: [`Guard::run`](crate::Guard::run) returns it beside the loss.
    ///
    /// Work that was protected to its end is never an error, whatever the outcome of the release: a failed release is
    /// cleaned up in the background and reported by [`Observer::release_failed`](crate::Observer::release_failed).
    pub fn run<R>(&self, work: impl FnOnce(&Guard<T, On>) -> R) -> Result<R> {
        protected(self.lock()?.run(work))
    }

    /// Runs `work` under the lock if the lock is free, without waiting; `None` if `work` did not run.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let count = client.get_lock("sweep").try_run(|_| 3 /* swept */)?;
    /// println!("{}", count.map_or("another machine is at it".into(), |count| format!("swept {count}")));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// For work that can fail, `lock.try_run(|_| work())?.transpose()?` passes both errors on.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), and `Lost` as with [`run`](Self::run).
    pub fn try_run<R>(&self, work: impl FnOnce(&Guard<T, On>) -> R) -> Result<Option<R>> {
        self.try_lock()?.map(|guard| protected(guard.run(work))).transpose()
    }

    /// Runs `work` under the lock; waits for the lock for at most `wait`. `None` if `work` did not run.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let paid = client.get_lock("lock:orders:42").try_run_for(Duration::from_secs(2), |_| { /* pay */ })?;
    /// if paid.is_none() {
    ///     println!("order 42 is being paid by someone else");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for), and `Lost` as with [`run`](Self::run).
    pub fn try_run_for<R>(&self, wait: Duration, work: impl FnOnce(&Guard<T, On>) -> R) -> Result<Option<R>> {
        self.try_lock_for(wait)?.map(|guard| protected(guard.run(work))).transpose()
    }

    /// Releases the lock of whatever owner, and wakes waiters. Returns whether the lock was held.
    ///
    /// Of several locks each is released; the result is whether any was held.
    ///
    /// Of a read-write lock the read side alone is released where readers hold the lock; the write side goes with what
    /// its writer reads. While a writer also reads, the read handle releases nothing and the result is `false`; release
    /// the write side instead.
    ///
    /// A holder with this crate learns of the loss at once if the server reports changes of keys (see
    /// [`Observer::losses_told_late`](crate::Observer::losses_told_late)). A holder that does not check goes on
    /// working beside the next holder.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("stock:42");
    /// if lock.force_unlock()? {
    ///     println!("opened; its holder is told");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unknown` when Redis did not reply: the lock may have been released or not. The request is not repeated,
    /// because another owner may hold the lock by then; read [`holder`](Self::holder) and decide. `OtherKind` for a
    /// hash that is no such lock, which stays. `Connection` when the server was not reached, `Refused` when Redis
    /// refused the request.
    pub fn force_unlock(&self) -> Result<bool> {
        let (released, failures) = self.ask_each(SingleLock::force_unlock)?;
        Error::unless_enough(self.name(), (self.singles()?.len(), self.needed()), failures).map(|()| released > 0)
    }

    /// Releases the lock if this owner holds it, and wakes waiters; also removes a place of this owner in the queue of a
    /// fair lock. A lock that another owner holds by now stays, so the request may be repeated.
    ///
    /// For an operator who knows from [`holder`](Self::holder) whose hold ends. Of a read-write lock an owner that writes
    /// and reads gives both sides back. The holder is told as after
    /// [`force_unlock`](Self::force_unlock).
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("stock:42");
    /// if let Some(holder) = lock.holder()? {
    ///     lock.force_unlock_owner(holder.owner())?;
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an owner that is no text; `Unsupported` for several locks; otherwise as `force_unlock`.
    pub fn force_unlock_owner(&self, owner: impl AsRef<str>) -> Result<()> {
        let one = self.only("force_unlock_owner")?;
        match owner.as_ref() {
            "" => self.meaningless("an owner has a text; take it from holder() or from Client::inspect"),
            owner if owner.contains(char::REPLACEMENT_CHARACTER) => {
                self.meaningless("this owner is shown with a byte that is no text; free the lock by force_unlock()")
            }
            owner => one.force_unlock_owner(&OwnerId::encoded(owner)),
        }
    }

    /// Asks Redis whether the lock is held; of a read-write lock, whether the side of this handle is held. Several locks
    /// are held where so many are that no other caller can take them: any of a multi-lock, a majority of a red lock.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if client.get_lock("import").is_locked()? {
    ///     println!("an import is under way");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name; `OtherKind` for a hash that is no such lock, and `Refused` where a token lock
    /// finds a key that is no string; refusals and outages of the server.
    pub fn is_locked(&self) -> Result<bool> {
        let (locked, failures) = self.ask_each(SingleLock::is_locked)?;
        let (all, needed) = (self.singles()?.len(), self.needed() + locked);
        if all < needed {
            return Ok(true);
        }
        // A server without an answer may have the lock, too.
        Error::unless_enough(self.name(), (all, needed), failures).map(|()| false)
    }

    /// Asks Redis for the time to live of the lock.
    ///
    /// `None` for a free lock, [`Duration::MAX`] for a lock whose expiry another client removed. Both sides of a
    /// read-write lock have the same time.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if let Some(left) = client.get_lock("import").remaining_time_to_live()? {
    ///     println!("free again in {left:?} if its holder is dead");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name; `Unsupported` for several locks; refusals and outages of the server.
    pub fn remaining_time_to_live(&self) -> Result<Option<Duration>> {
        self.only("remaining_time_to_live")?.remaining_time_to_live()
    }

    /// Asks Redis for an owner of the lock; `None` for a free lock. Of several readers, any reader is returned; of a
    /// read-write lock, the owner of the side of this handle.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if let Some(holder) = client.get_lock("import").holder()? {
    ///     println!("{} holds it {} times", holder.owner(), holder.hold_count());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name; `OtherKind` for a hash that is no such lock; `Unsupported` for several locks;
    /// refusals and outages of the server.
    pub fn holder(&self) -> Result<Option<Holder>> {
        let holder = self.only("holder")?.holder()?;
        Ok(holder.map(|(owner, hold_count)| Holder { owner, hold_count }))
    }

    /// The lock with these modifiers, and with guards of another type.
    fn copied<U, To>(&self, modifiers: Modifiers, carried: fn(&Hold) -> Option<U>) -> Lock<U, To> {
        Lock { locks: self.locks.clone(), modifiers, carried, on: PhantomData }
    }

    /// The lock with these modifiers in place of its own.
    pub(crate) fn with(&self, modifiers: Modifiers) -> Self {
        self.copied(modifiers, self.carried)
    }

    fn singles(&self) -> Result<&[SingleLock]> {
        match &self.locks {
            Locks::One(one) => Ok(std::slice::from_ref(one)),
            Locks::Several(members) => Ok(&members.members),
            Locks::Impossible(_, error) => Err(error.clone()),
        }
    }

    /// How many of the locks must be held.
    fn needed(&self) -> usize {
        self.members().map_or(1, Members::needed)
    }

    /// The locks that are taken together, if there are several.
    fn members(&self) -> Option<&Members> {
        if let Locks::Several(members) = &self.locks { Some(members) } else { None }
    }

    /// The lock of a question that only a single lock can answer.
    fn only(&self, question: &str) -> Result<&SingleLock> {
        let [one] = self.singles()? else {
            let text = format!("{question}() has an answer for each lock only; ask the single locks");
            return Err(Error::new(ErrorKind::Unsupported, text).about(self.name()));
        };
        Ok(one)
    }

    /// Asks about one lock after another, all servers side by side. The locks of a server that does not answer take one
    /// command time-out together. Returns how often the answer was yes, and the failures.
    fn ask_each(&self, ask: fn(&SingleLock, Duration) -> Result<bool>) -> Result<(usize, Vec<Error>)> {
        let locks = self.singles()?;
        // The client of any of them may be of a process that this one was forked from.
        let first = locks.iter().find(|lock| lock.handle.look().is_none()).unwrap_or(&locks[0]);
        let patience = first.ask(|engine| Ok(engine.config.command_timeout))?;
        let limit_each = self.members().and_then(|members| members.form.limit_each()).unwrap_or(patience);
        let places = locks.iter().filter_map(|lock| Some((lock.handle.look()?.sender.server(&lock.name), lock)));
        let ask_server = |(_, locks): &(_, Vec<&SingleLock>)| {
            let mut patience = patience;
            let ask_one = |lock: &&SingleLock| {
                let (began, answer) = (Instant::now(), ask(lock, patience.min(limit_each)));
                answer.inspect_err(|_| patience = patience.saturating_sub(began.until(Instant::now())))
            };
            locks.iter().map(ask_one).collect::<Vec<_>>()
        };
        let (mut yes, mut failures) = (0, vec![]);
        for answer in side_by_side(&by_server(places), ask_server).into_iter().flatten() {
            match answer {
                Ok(answer) => yes += usize::from(answer),
                Err(error) => failures.push(error),
            }
        }
        Ok((yes, failures))
    }

    fn take(&self, wait: Wait) -> Result<Option<Taken>> {
        match &self.locks {
            Locks::One(one) => one.take(&self.modifiers, wait),
            Locks::Several(members) => {
                let grants = members.acquire(&self.modifiers, wait).map_err(|error| error.about(&*members.name))?;
                Ok(grants.map(|grants| Hold::of_several(members, grants)))
            }
            Locks::Impossible(_, error) => Err(error.clone()),
        }
    }

    /// The error of a combination without meaning.
    fn meaningless<A>(&self, why: &str) -> Result<A> {
        Err(Error::new(ErrorKind::BadInput, why).about(self.name()))
    }
}

/// The result of work that was protected to its end.
fn protected<R>((outcome, ended): (R, Result<()>)) -> Result<R> {
    ended.map(|()| outcome)
}

impl From<Lock<FencingToken>> for Lock {
    /// Makes a lock whose guards carry no token; [`Hold::token`] still tells the token of a grant.
    fn from(lock: Lock<FencingToken>) -> Self {
        lock.copied(lock.modifiers.clone(), |_| Some(()))
    }
}

impl<T, On> Clone for Lock<T, On> {
    fn clone(&self) -> Self {
        self.with(self.modifiers.clone())
    }
}

impl<T, On> fmt::Debug for Lock<T, On> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind: Option<LockKind> = match &self.locks {
            Locks::One(one) => Some(one.kind.label(one.kind.side())),
            Locks::Several(_) | Locks::Impossible(..) => None,
        };
        f.debug_struct("Lock")
            .field("name", &self.name())
            .field("kind", &kind)
            .field("lease", &self.modifiers.lease)
            .finish_non_exhaustive()
    }
}
