//! Guards, which release a lock when dropped.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::result;
use std::time::Duration;

use crate::config::Config;
use crate::engine::several::giving_back::{Held, release_at_once};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Observer, ReleaseFailed};
use crate::hold::{GuardNumbers, Hold, One, Taken};
use crate::time::Instant;
use crate::token::FencingToken;

/// A lock held by the thread that took it; dropping the guard releases the lock.
///
/// A lease can end early: the server may restart, an operator may delete the key, or Redis may be unreachable for
/// longer than the time to live. A guard answers as its [`Hold`]: call [`is_held`](Hold::is_held) before a step that must
/// not happen twice.
///
/// A drop takes at most [`drop_timeout`](crate::ClientBuilder::drop_timeout); a release that takes longer goes on in
/// the background, and its failure is reported to the [`Observer`](crate::Observer). Where the outcome matters, call
/// [`unlock`](Self::unlock).
///
/// `let _ = lock.lock()?;`, `lock.try_lock()?;` and `if lock.try_lock()?.is_some() { .. }` drop the guard at once. Of
/// the first two the compiler warns where a crate asks for it: `#![warn(unused_results, let_underscore_drop)]`. Write
/// `let _guard = lock.lock()?;`, or have the lock [run](crate::Lock::run) the work, which leaves nothing to drop.
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
pub struct Guard<T = (), On = ItsThread> {
    hold: Hold,
    /// One for each lock of the hold; empty once the guard was released.
    numbers: GuardNumbers,
    pub(crate) carried: T,
    on: PhantomData<On>,
}

/// The guards of a [`Lock`](crate::Lock) stay on the thread that took the lock; see [`Guard`].
#[derive(Debug)]
pub struct ItsThread(PhantomData<dyn StaysOnItsThreadUnlessTakenByOwned>);

/// The guards of an [`OwnedLock`](crate::OwnedLock) may move to any thread; see [`OwnedGuard`].
#[derive(Debug)]
pub struct AnyThread;

/// Prevents `Send` for a guard: the lock belongs to the thread, so the guard stays there.
///
/// The compiler quotes this name for a guard that is sent, so the name tells the way out.
trait StaysOnItsThreadUnlessTakenByOwned: Sync + Unpin + UnwindSafe + RefUnwindSafe {}

/// A lock held by the owner of this guard, which may move to another thread.
///
/// An owned lock cannot be re-entered: every take through an [`OwnedLock`](crate::OwnedLock) has an owner of its own,
/// and a second take waits for the first. A leaked owned guard is renewed until the client is closed, because it
/// belongs to no thread; [`with_max_hold`](crate::Lock::with_max_hold) bounds that. Otherwise as any [`Guard`].
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
pub type OwnedGuard<T = ()> = Guard<T, AnyThread>;

impl<T, On> Guard<T, On> {
    /// Wraps a grant in a guard and reads the part beside the lock; a grant without that part is released.
    pub(crate) fn new((hold, numbers): Taken, carried: fn(&Hold) -> Option<T>) -> Result<Self> {
        let Some(carried) = carried(&hold) else {
            let missing = Error::new(ErrorKind::Connection, "redis granted the lock without a fencing token");
            let missing = missing.about(hold.name());
            drop(Guard::<(), On> { hold, numbers, carried: (), on: PhantomData });
            return Err(missing);
        };
        Ok(Self { hold, numbers, carried, on: PhantomData })
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
    pub fn unlock(mut self) -> Result<()> {
        self.give_back(|config| config.command_timeout).map_err(|(error, _)| error)
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
    pub fn keep_until_expiry(mut self) {
        let numbers = std::mem::take(&mut self.numbers);
        for (One { handle, state }, number) in self.hold.ones().zip(numbers) {
            if let Ok(engine) = handle.begin_to_end() {
                engine.keep_until_expiry(state, number);
            }
        }
    }

    /// Runs `work` under the lock, then releases the lock. Returns the result of `work` in any case, and beside it
    /// whether the lock was held to the end of `work`.
    ///
    /// [`Lock::run`](crate::Lock::run) returns one of both, so its error stands for a result that is dropped.
    ///
    /// ```no_run
    /// # fn pay() -> u32 { 7 }
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let (receipt, protected) = client.get_lock("lock:orders:42").lock()?.run(|_| pay());
    /// println!("receipt {receipt}");
    /// protected?; // `Lost`: another holder may have paid meanwhile
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Lost` beside the result, if the lock was lost before the end of `work`. As with `Lock::run`, a release
    /// that fails after protected work is no error.
    pub fn run<R>(self, work: impl FnOnce(&Self) -> R) -> (R, Result<()>) {
        let outcome = work(&self);
        (outcome, self.end_protected_work())
    }

    /// Releases the lock after protected work: only a hold that ended before the work is an error.
    pub(crate) fn end_protected_work(mut self) -> Result<()> {
        match self.give_back(|config| config.command_timeout) {
            Err((error, _)) if matches!(error.kind(), ErrorKind::Lost(_) | ErrorKind::NotHeld) => Err(error),
            // In a forked child the work was not protected. A client that closes while the release waits for its
            // answer is another matter.
            Err((error, _)) if self.hold.ones().any(|one| one.handle.look().is_none()) => Err(error),
            Err((_, failures)) => {
                self.report(failures);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Lends the hold of this guard; see [`Hold`]. A clone of the hold may move to another thread and outlive
    /// the guard.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl<T> Guard<T> {
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
        let numbers = std::mem::take(&mut self.numbers);
        for (One { handle, state }, number) in self.hold.ones().zip(numbers) {
            if let Some(engine) = handle.look() {
                engine.keeper.with_ledger(state, |ledger, _| ledger.leave_to_unlock(number));
            }
        }
    }
}

impl<On> Guard<FencingToken, On> {
    /// Returns the fencing token of the grant, for the store; see [`Hold::token`]. A re-entry does not change the
    /// token.
    pub fn token(&self) -> FencingToken {
        self.carried
    }
}

impl<T, On> Deref for Guard<T, On> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl<T, On> fmt::Debug for Guard<T, On> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.hold).finish()
    }
}

impl<T, On> Guard<T, On> {
    /// Releases each lock within `limit`, nothing after the first time. Returns beside an error of the whole the
    /// failures, with the place of each in the hold.
    fn give_back(&mut self, limit: fn(&Config) -> Duration) -> result::Result<(), (Error, Vec<(usize, Error)>)> {
        let numbers = std::mem::take(&mut self.numbers);
        let locks = self.hold.locks().filter(|_| !numbers.is_empty());
        let mut ones = self.hold.ones().zip(numbers);
        let Some(locks) = locks else {
            let outcome = ones.next().map_or(Ok(()), |(One { handle, state }, number)| {
                let engine = handle.begin_to_end().map_err(|error| error.about(&state.name))?;
                engine.release(state, number, limit(&engine.config))
            });
            return outcome.map_err(|error| (error.clone(), vec![(0, error)]));
        };
        let (ones, began): (Vec<_>, _) = (ones.collect(), Instant::now());
        let outcomes = match ones.iter().map(|(one, _)| one.handle.begin_to_end()).collect::<Result<Vec<_>>>() {
            Ok(operations) => {
                let held = operations.iter().zip(&ones);
                let held = held.map(|(engine, (one, guard))| Held { engine, hold: &one.state, guard: *guard });
                release_at_once(&held.collect::<Vec<_>>(), |engine| locks.bounds(engine, began, limit(&engine.config)))
            }
            Err(error) => ones.iter().map(|(one, _)| Err(error.clone().about(&one.state.name))).collect(),
        };
        let failures = outcomes.into_iter().enumerate().filter_map(|(place, outcome)| Some((place, outcome.err()?)));
        let failures: Vec<_> = failures.collect();
        let errors = failures.iter().map(|(_, error)| error.clone()).collect();
        locks.verdict(self.hold.members().len(), errors).map_err(|error| (error, failures))
    }

    fn report(&self, failures: Vec<(usize, Error)>) {
        for (place, error) in failures {
            let Some(One { handle, state }) = self.hold.ones().nth(place) else { continue };
            if let Some(engine) = handle.look() {
                engine.config.observe(Observer::release_failed, || {
                    let (name, kind, group, _) = state.in_events();
                    ReleaseFailed { name, kind, group, error }
                });
            }
        }
    }
}

impl<T, On> Drop for Guard<T, On> {
    fn drop(&mut self) {
        if let Err((_, failures)) = self.give_back(|config| config.drop_timeout) {
            self.report(failures);
        }
    }
}
