//! The hold that all guards of a grant share, of one lock or of several.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use once_cell::sync::OnceCell;
use smallvec::{SmallVec, smallvec};

use crate::engine::several::giving_back::extend_at_once;
use crate::engine::several::{Members, SingleLock};
use crate::engine::{Grant, Handle, HoldState};
use crate::error::{Error, Loss, Result};
use crate::state::exchange::Bounds;
use crate::state::ledger::{GuardNumber, Phase};
use crate::state::quorum::{self, Member};
use crate::sync::Mutex;
use crate::time::{Deadline, Instant, Lease};
use crate::token::FencingToken;

/// The outcome of a take, before it becomes a guard: the hold, and the guard's number for each of its locks.
pub(crate) type Taken = (Hold, GuardNumbers);

/// The guards of a hold, one for each lock; nearly always one.
pub(crate) type GuardNumbers = SmallVec<[GuardNumber; 1]>;

/// A hold on a lock, shared by all its guards.
///
/// A hold knows its own deadline: [`is_held`](Self::is_held) compares the deadline with the clock and needs no thread
/// and no network, so even a process that was stopped for minutes learns of the loss at its first check. A hold
/// cannot promise more: a thread may be stopped between the check and the next write. Where such a late write does
/// harm, let the resource refuse late writers.
///
/// A guard has these methods, too. [`Guard::hold`](crate::Guard::hold) lends the hold itself; a clone of the hold keeps
/// the client alive but not the lock, and may move to a thread that watches the hold:
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
pub struct Hold(Of);

#[derive(Clone)]
enum Of {
    One(One),
    Several(Arc<Several>),
}

/// The hold on several locks: a view of their holds. A lost one stays lost, so the view needs no state of its own.
struct Several {
    locks: Arc<Members>,
    /// The holds of the granted locks.
    holds: Vec<Hold>,
    /// The loss that ended the hold.
    lost: OnceCell<Loss>,
}

/// A hold on one lock.
#[derive(Clone)]
pub(crate) struct One {
    pub(crate) handle: Handle,
    pub(crate) state: Arc<HoldState>,
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
        quorum::is_held(self.at(Instant::now()), self.needed())
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
        quorum::remaining(self.at(Instant::now()), self.needed())
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
        let lost = || quorum::loss(self.at(Instant::now()), self.needed());
        match &self.0 {
            Of::One(_) => lost(),
            Of::Several(several) => {
                several.lost.get().copied().or_else(|| lost().map(|loss| *several.lost.get_or_init(|| loss)))
            }
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
        if self.ones().all(|one| one.handle.look().is_some()) {
            let left = |now| quorum::remaining(self.at(now), self.needed());
            HoldState::wait_for_end(self.ones().map(|one| &*one.state), until, left);
        }
        self.lost()
    }

    /// Runs `callback` once, on a thread of the client, when the lock is lost; at once after an earlier loss.
    ///
    /// A released lock runs no callback. A slow callback delays the next one by 10 ms at most. In a forked child, where
    /// the client has no threads, the callback runs on the calling thread.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// guard.on_lost(|loss| eprintln!("stop the work: {loss}"));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn on_lost(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        let bearable = self.members().len().saturating_sub(self.needed());
        let waiting = Arc::new((AtomicUsize::new(0), Mutex::new(Some(callback))));
        for one in self.ones() {
            let waiting = Arc::clone(&waiting);
            one.on_lost(move |loss| {
                let (losses, callback) = &*waiting;
                if losses.fetch_add(1, Ordering::SeqCst) < bearable {
                    return;
                }
                let callback = callback.lock().take();
                if let Some(callback) = callback {
                    callback(loss);
                }
            });
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
    /// release; `NotDurable` for a [`Durability`](crate::Durability) that is not reached; otherwise refusals and outages
    /// of the server, for a [red lock](crate::RedLock) without a majority those of one of its locks.
    pub fn extend(&self, duration: Duration) -> Result<()> {
        let lease = Lease::new(duration).map_err(|error| error.about(self.name()))?;
        let ones: Vec<&One> = self.ones().collect();
        let about = |error: Error, one: &One| error.about_a(one.state.kind.noun(), self.name());
        let operations = ones.iter().map(|one| one.handle.begin_to_end().map_err(|error| about(error, one)));
        let operations = operations.collect::<Result<Vec<_>>>()?;
        // A member that was lost before counts against the group, but is no reason to ask for it.
        let by_hand = (lease, None);
        let holds: Vec<_> =
            operations.iter().zip(&ones).map(|(engine, one)| (&**engine, &one.state, by_hand)).collect();
        let began = Instant::now();
        let outcomes = extend_at_once(&holds, |engine| {
            let limit = engine.config.command_timeout;
            let alone = || Bounds::within(Instant::now(), limit, limit);
            self.locks().map_or_else(alone, |all| all.bounds(engine, began, limit))
        });
        let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        Error::unless_enough(self.name(), (ones.len(), self.needed()), failures)
    }

    /// Returns the fencing token of the grant; only fenced locks and leaderships have one. A re-entry does not change
    /// the token.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_fenced_lock("stock:42").lock()?;
    /// assert_eq!(guard.hold().token(), Some(guard.token()));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn token(&self) -> Option<FencingToken> {
        self.one()?.state.token().map(FencingToken)
    }

    /// Returns the name of the lock, which is its key in Redis; for a group its locks, like `multi(a, b)` or
    /// `red(a on 3 servers)`.
    ///
    /// ```no_run
    /// # fn log(hold: &lockson::Hold) {
    /// println!("working under {} as {}", hold.name(), hold.owner());
    /// # }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        match &self.0 {
            Of::One(one) => one.state.name.as_str(),
            Of::Several(several) => &several.locks.name,
        }
    }

    /// Returns the owner id, as stored in Redis: client, thread and hold. Each lock of a group has an owner of its own,
    /// which [`members`](Self::members) tell; the group has the empty string.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("stock:42").lock()?;
    /// println!("HEXISTS {} {} is 1", guard.name(), guard.owner());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn owner(&self) -> &str {
        self.one().map_or("", |one| one.state.owner.as_str())
    }

    /// Returns the holds of a group, one for each lock that was granted, in the order of its locks; for the hold of a
    /// single lock, the hold itself.
    ///
    /// ```no_run
    /// # use lockson::Lock;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = Lock::multi([client.get_lock("account:1"), client.get_lock("account:2")]).lock()?;
    /// for member in guard.hold().members() {
    ///     println!("{} as {}: {:?} left", member.name(), member.owner(), member.remaining());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn members(&self) -> &[Self] {
        match &self.0 {
            Of::One(_) => std::slice::from_ref(self),
            Of::Several(several) => &several.holds,
        }
    }

    /// The hold of a lock that was taken alone.
    pub(crate) fn of(lock: &SingleLock, grant: Grant) -> Taken {
        let (hold, number) = Self::part(lock, grant);
        (hold, smallvec![number])
    }

    /// The hold of several locks, with nothing for a lock that was not granted.
    pub(crate) fn of_several(locks: &Arc<Members>, grants: Vec<Option<Grant>>) -> Taken {
        let granted = locks.members.iter().zip(grants).filter_map(|(lock, grant)| Some(Self::part(lock, grant?)));
        let (holds, numbers) = granted.unzip();
        (Self(Of::Several(Arc::new(Several { locks: Arc::clone(locks), holds, lost: OnceCell::new() }))), numbers)
    }

    fn part(lock: &SingleLock, (state, number): Grant) -> (Self, GuardNumber) {
        (Self(Of::One(One { handle: lock.handle.clone(), state })), number)
    }

    /// All holds on single locks at one moment.
    fn at(&self, now: Instant) -> impl Iterator<Item = Member> {
        self.ones().map(move |one| one.at(now))
    }

    /// How many of the locks must be held.
    fn needed(&self) -> usize {
        self.locks().map_or(1, Members::needed)
    }

    /// The holds on single locks.
    pub(crate) fn ones(&self) -> impl Iterator<Item = &One> {
        self.members().iter().filter_map(Self::one)
    }

    /// The hold on a lock that was taken alone.
    fn one(&self) -> Option<&One> {
        if let Of::One(one) = &self.0 { Some(one) } else { None }
    }

    /// The locks that were taken together; `None` for a single lock.
    pub(crate) fn locks(&self) -> Option<&Members> {
        if let Of::Several(several) = &self.0 { Some(&several.locks) } else { None }
    }
}

impl One {
    /// The state of the hold at `now`.
    fn at(&self, now: Instant) -> Member {
        let Some(engine) = self.handle.look() else { return Member::Lost(Loss::Closed) };
        engine.keeper.with_ledger(&self.state, |ledger, later| match ledger.look(later) {
            Phase::Live => Member::Held(now.until(ledger.good_until)),
            Phase::Lost(loss) => Member::Lost(loss),
            Phase::Releasing | Phase::Done => Member::GivenBack,
        })
    }

    fn on_lost(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        match self.handle.look() {
            Some(engine) => engine.keeper.on_lost(&self.state, Box::new(callback)),
            None => callback(&Loss::Closed),
        }
    }
}

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
