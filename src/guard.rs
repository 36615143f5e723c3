//! Guards, which release a lock when dropped, and the hold that they share.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Grant, Handle, HoldState};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::ReleaseFailed;
use crate::state::ledger::{GuardNumber, Phase};
use crate::time::{Deadline, Instant, Lease};
use crate::token::FencingToken;

/// A hold on a lock, shared by all its guards.
///
/// A hold knows its own deadline: [`is_held`](Self::is_held) compares the deadline with the clock and needs no thread
/// and no network, so even a process that was stopped for minutes learns of the loss at its first check. A hold
/// cannot promise more: a thread may be stopped between the check and the next write. Where such a late write does
/// harm, let the resource refuse late writers.
///
/// A guard has the same methods. [`Guard::hold`] lends the hold itself; a clone of the hold keeps the client alive
/// but not the lock, and may move to a thread that watches the hold:
///
/// ```no_run
/// # use std::time::Duration;
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let guard = client.get_lock("stock:42").lock()?;
/// let hold = guard.hold().clone();
/// std::thread::spawn(move || {
///     if let Some(loss) = hold.wait_lost(Duration::MAX) {
///         eprintln!("stop the work: {loss:?}");
///     }
/// });
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone)]
pub struct Hold {
    handle: Handle,
    state: Arc<HoldState>,
}

/// A lock held by the thread that took it; dropping the guard releases the lock.
///
/// A lease can end early: the server may restart, an operator may delete the key, or Redis may be unreachable for
/// longer than the time to live. Call [`is_held`](Self::is_held) before a step that must not happen twice.
///
/// A drop takes at most [`drop_timeout`](crate::ClientBuilder::drop_timeout); a release that takes longer goes on in
/// the background, and its failure is reported to the [`Observer`](crate::Observer). Where the outcome matters, call
/// [`unlock`](Self::unlock).
///
/// `let _ = lock.lock()?;` drops the guard in that very statement, and no attribute can warn of it;
/// clippy's `let_underscore_must_use` does. `lock.try_lock()?;` does the same, and the compiler does not look into the
/// `Option`. Write `let _guard = lock.lock()?;`, or have the lock [run](crate::Lock::run) the work, which leaves
/// nothing to drop.
///
/// A guard that is leaked with [`std::mem::forget`] is renewed until its thread ends or the client is closed;
/// [`Client::held`](crate::Client::held) lists the hold.
///
/// A guard does not move to another thread; a guard of [`Lock::owned`](crate::Lock::owned) does:
///
/// ```compile_fail,E0277
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let guard = client.get_lock("stock:42").lock()?;
/// std::thread::spawn(move || guard.unlock());
/// # Ok::<(), lockson::Error>(())
/// ```
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let guard = client.get_lock("stock:42").lock()?;
/// // ... read, decide ...
/// if guard.is_held() {
///     // ... write ...
/// }
/// guard.unlock()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[must_use = "a guard that is dropped at once gives the lock back at once; bind it: `let _guard = ...`"]
pub struct Guard<T = ()> {
    inner: Inner,
    carried: T,
    thread_bound: PhantomData<dyn StaysOnItsThreadUnlessTakenByOwned>,
}

/// Prevents `Send` for a guard: the lock belongs to the thread, so the guard stays there.
///
/// The compiler quotes this name for a guard that is sent, so the name tells the way out.
trait StaysOnItsThreadUnlessTakenByOwned: Sync + Unpin + UnwindSafe + RefUnwindSafe {}

/// A lock held by the owner of this guard, which may move to another thread.
///
/// An owned lock cannot be re-entered: every take through an [`OwnedLock`](crate::OwnedLock) has an owner of its own,
/// and a second take waits for the first. Otherwise as a [`Guard`].
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
#[must_use = "a guard that is dropped at once gives the lock back at once; bind it: `let _guard = ...`"]
pub struct OwnedGuard<T = ()> {
    inner: Inner,
    carried: T,
}

struct Inner {
    hold: Hold,
    /// `None` once the guard was released.
    number: Option<GuardNumber>,
}

impl Hold {
    /// Returns whether the lock is held, as far as this process knows.
    ///
    /// `false` after the release, after a loss, after the deadline passed without a new confirmation from Redis, and
    /// in a forked child, whose copy of the guard holds nothing. No I/O.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// // ... slow work ...
    /// if guard.is_held() {
    ///     // ... write ...
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn is_held(&self) -> bool {
        self.phase() == Phase::Live
    }

    /// Returns the time until the hold expires if it is not renewed; zero without the hold.
    ///
    /// The time is counted from the sending of the last confirmed request, less a margin (1 %, at least 50 ms, at
    /// most a tenth of the lease). No I/O.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// if guard.remaining() < Duration::from_secs(5) {
    ///     guard.extend(Duration::from_secs(60))?;
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn remaining(&self) -> Duration {
        let Some(engine) = self.handle.look() else { return Duration::ZERO };
        engine.with_ledger(&self.state, |ledger, now| match ledger.look(now) {
            Phase::Live => now.until(ledger.good_until()),
            _ => Duration::ZERO,
        })
    }

    /// Returns the loss of the hold, if the hold was lost. `None` after a release. No I/O.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// if let Some(loss) = guard.lost() {
    ///     eprintln!("stop the work: {loss}");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn lost(&self) -> Option<Loss> {
        match self.phase() {
            Phase::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    /// Waits until the lock is lost, for at most `limit`.
    ///
    /// `None` when the time is up, or as soon as the lock is released.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// let hold = guard.hold().clone();
    /// std::thread::spawn(move || hold.wait_lost(Duration::MAX).inspect(|loss| eprintln!("stop the work: {loss}")));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn wait_lost(&self, limit: Duration) -> Option<Loss> {
        let until = match Deadline::after(limit) {
            Deadline::At(at) => at,
            Deadline::Never => Instant::now().after(Lease::LONGEST),
        };
        if self.handle.look().is_some() {
            self.state.wait_for_end(until);
        }
        self.lost()
    }

    /// Runs `callback` once, on a thread of the client, when the lock is lost; at once after an earlier loss.
    ///
    /// A released lock runs no callback. A slow callback delays no other callback. In a forked child, where the
    /// client has no threads, the callback runs on the calling thread.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// guard.on_lost(|loss| eprintln!("stop the work: {loss}"));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn on_lost(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        match self.handle.look() {
            Some(engine) => engine.on_lost(&self.state, Box::new(callback)),
            None => callback(&Loss::Closed),
        }
    }

    /// Raises the time to live of the lock to at least `duration` from now; never lowers it.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("import").with_lease(Duration::from_secs(60)).lock()?;
    /// // ... it takes longer than we thought ...
    /// guard.extend(Duration::from_secs(120))?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for a duration that is not a possible lease, `Lost` when the lock is lost, `NotHeld` after a
    /// release; otherwise refusals and outages of the server.
    pub fn extend(&self, duration: Duration) -> Result<()> {
        let lease = Lease::new(duration).map_err(|error| self.about(error))?;
        self.handle
            .begin_to_end()
            .and_then(|engine| engine.extend(&self.state, lease))
            .map_err(|error| self.about(error))
    }

    /// Returns the fencing token of the grant; only fenced locks have a token. A re-entry does not change the token.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_fenced_lock("stock:42").lock()?;
    /// assert_eq!(guard.hold().token(), Some(guard.token()));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn token(&self) -> Option<FencingToken> {
        self.state.token.map(FencingToken::new)
    }

    /// Returns the name of the lock.
    ///
    /// ```no_run
    /// # fn log(hold: &lockson::Hold) {
    /// println!("working under {} as {}", hold.name(), hold.owner());
    /// # }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.state.name.as_str()
    }

    /// Returns the owner id, as stored in Redis: client, thread and hold.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// println!("HEXISTS {} {} is 1", guard.name(), guard.owner());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn owner(&self) -> &str {
        self.state.owner.as_str()
    }

    fn phase(&self) -> Phase {
        let Some(engine) = self.handle.look() else { return Phase::Lost(Loss::Closed) };
        engine.with_ledger(&self.state, |ledger, now| ledger.look(now))
    }

    fn about(&self, error: Error) -> Error {
        error.about(&self.state.name)
    }
}

/// A panic in code of the caller leaves no data half changed, because no mutex is held while that code runs.
impl UnwindSafe for Hold {}
impl RefUnwindSafe for Hold {}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.name())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .field("lost", &self.lost())
            .finish()
    }
}

impl<T> Guard<T> {
    pub(crate) fn new(handle: &Handle, grant: Grant, carried: fn(&Hold) -> Option<T>) -> Result<Self> {
        let (inner, carried) = Inner::carrying(handle, grant, carried)?;
        Ok(Self { inner, carried, thread_bound: PhantomData })
    }

    /// Lends the guard to `work`, then releases the lock; see [`Lock::run`](crate::Lock::run).
    pub(crate) fn lend<R>(self, work: impl FnOnce(&Self) -> R) -> Result<R> {
        let outcome = work(&self);
        self.inner.end_protected_work().map(|()| outcome)
    }

    /// Releases the lock, and returns the outcome.
    ///
    /// Takes at most [`command_timeout`](crate::ClientBuilder::command_timeout). The guard is gone in any case, and
    /// its part of the lock is not renewed any more.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// // ... work ...
    /// guard.unlock()?; // `Lost` if the work was not protected to its end
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Lost` when the lock was lost before, so that the work since then was not protected; `Unknown` or `Connection`
    /// when Redis did not reply, `Refused` when Redis refused the request.
    pub fn unlock(self) -> Result<()> {
        self.inner.unlock()
    }

    /// Drops the guard without a release: the lock stays held until it expires.
    ///
    /// The lock is not renewed any more, and this thread must wait for it like any other.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("mail:42").with_lease(Duration::from_secs(60)).lock()?;
    /// // ... send the mail ...
    /// guard.keep_until_expiry(); // nobody sends it again for a minute
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn keep_until_expiry(self) {
        self.inner.keep_until_expiry();
    }

    /// Leaves the release to [`Lock::unlock`](crate::Lock::unlock) on the same thread, for code that locks and
    /// unlocks in different places. After a loss this thread cannot take the lock again until a call of `unlock` has
    /// reported the loss.
    ///
    /// An early return or a panic before `unlock` leaves the lock held and renewed until the thread ends. A Java
    /// `finally` that must survive a panic is [`Lock::run`](crate::Lock::run), or a guard.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("stock:42");
    /// lock.lock()?.leave_to_unlock();
    /// // ... somewhere else, on the same thread ...
    /// lock.unlock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn leave_to_unlock(mut self) {
        if let Some(number) = self.inner.number.take() {
            let Hold { handle, state } = &self.inner.hold;
            if let Some(engine) = handle.look() {
                engine.with_ledger(state, |ledger, _| ledger.leave_to_unlock(number));
            }
        }
    }
}

impl<T> OwnedGuard<T> {
    pub(crate) fn new(handle: &Handle, grant: Grant, carried: fn(&Hold) -> Option<T>) -> Result<Self> {
        let (inner, carried) = Inner::carrying(handle, grant, carried)?;
        Ok(Self { inner, carried })
    }

    /// Releases the lock, and returns the outcome; see [`Guard::unlock`].
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
    /// As [`Guard::unlock`].
    pub fn unlock(self) -> Result<()> {
        self.inner.unlock()
    }

    /// Drops the guard and lets the lock expire; see [`Guard::keep_until_expiry`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("mail:42").with_lease(Duration::from_secs(60)).owned().lock()?;
    /// std::thread::spawn(move || guard.keep_until_expiry());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn keep_until_expiry(self) {
        self.inner.keep_until_expiry();
    }
}

/// The methods that a guard forwards to its hold.
macro_rules! answer_as_the_hold {
    ($guard:ident) => {
        impl<T> fmt::Debug for $guard<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&self.inner.hold).finish()
            }
        }

        impl<T> $guard<T> {
            /// Lends the hold of this guard; a clone of the hold may move to another thread and outlive the guard.
            pub fn hold(&self) -> &Hold {
                &self.inner.hold
            }

            /// Returns whether the lock is held; see [`Hold::is_held`].
            pub fn is_held(&self) -> bool {
                self.inner.hold.is_held()
            }

            /// Returns the time until the hold expires if it is not renewed; see [`Hold::remaining`].
            pub fn remaining(&self) -> Duration {
                self.inner.hold.remaining()
            }

            /// Returns the loss of the hold, if the hold was lost; see [`Hold::lost`].
            pub fn lost(&self) -> Option<Loss> {
                self.inner.hold.lost()
            }

            /// Waits until the lock is lost, for at most `limit`; see [`Hold::wait_lost`].
            pub fn wait_lost(&self, limit: Duration) -> Option<Loss> {
                self.inner.hold.wait_lost(limit)
            }

            /// Runs `callback` once when the lock is lost; see [`Hold::on_lost`].
            pub fn on_lost(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
                self.inner.hold.on_lost(callback);
            }

            /// Raises the time to live of the lock to at least `duration` from now; see [`Hold::extend`].
            ///
            /// # Errors
            ///
            /// As [`Hold::extend`].
            pub fn extend(&self, duration: Duration) -> Result<()> {
                self.inner.hold.extend(duration)
            }

            /// Returns the name of the lock.
            pub fn name(&self) -> &str {
                self.inner.hold.name()
            }

            /// Returns the owner id, as stored in Redis; see [`Hold::owner`].
            pub fn owner(&self) -> &str {
                self.inner.hold.owner()
            }
        }

        impl $guard<FencingToken> {
            /// Returns the fencing token of the grant, for the store. A re-entry does not change the token.
            pub fn token(&self) -> FencingToken {
                self.carried
            }
        }
    };
}

answer_as_the_hold!(Guard);
answer_as_the_hold!(OwnedGuard);

impl Inner {
    /// Wraps a grant in a guard and reads the part beside the lock; a grant without that part is released.
    fn carrying<T>(handle: &Handle, (state, number): Grant, carried: fn(&Hold) -> Option<T>) -> Result<(Self, T)> {
        let inner = Self { hold: Hold { handle: handle.clone(), state }, number: Some(number) };
        let missing = || Error::new(ErrorKind::Connection, "redis granted the lock without a fencing token");
        let carried = carried(&inner.hold).ok_or_else(|| inner.hold.about(missing()))?;
        Ok((inner, carried))
    }

    fn unlock(mut self) -> Result<()> {
        let limit = self.hold.handle.config().command_timeout;
        self.give_back(limit)
    }

    /// Releases the lock after protected work: only a hold that ended before the work is an error.
    fn end_protected_work(mut self) -> Result<()> {
        let limit = self.hold.handle.config().command_timeout;
        match self.give_back(limit) {
            Err(error) if matches!(error.kind(), ErrorKind::Lost(_) | ErrorKind::NotHeld) => Err(error),
            // In a forked child the work was not protected. A client that closes while the release waits for its
            // answer is another matter.
            Err(error) if self.hold.handle.look().is_none() => Err(error),
            Err(error) => {
                self.report(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn keep_until_expiry(mut self) {
        let number = self.number.take();
        if let (Some(number), Ok(engine)) = (number, self.hold.handle.begin_to_end()) {
            engine.keep_until_expiry(&self.hold.state, number);
        }
    }

    fn give_back(&mut self, limit: Duration) -> Result<()> {
        let Some(number) = self.number.take() else { return Ok(()) };
        let engine = self.hold.handle.begin_to_end().map_err(|error| self.hold.about(error))?;
        engine.release(&self.hold.state, number, limit)
    }

    fn report(&self, error: Error) {
        if let Some(engine) = self.hold.handle.look() {
            engine.observe(|observer| {
                let (name, kind) = (self.hold.state.name.to_string(), self.hold.state.label());
                observer.release_failed(&ReleaseFailed { name, kind, error });
            });
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let limit = self.hold.handle.config().drop_timeout;
        if let Err(error) = self.give_back(limit) {
            self.report(error);
        }
    }
}
