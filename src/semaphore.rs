//! The semaphore: permits that any process takes and gives back.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::config::Config;
use crate::engine::{Handle, Named, Numbered, Wait};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::{LockReleased, Observer, ReleaseFailed};
use crate::kinds::semaphore::{self, Returned, Returning};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId};
use crate::script::once::{self, Once};
use crate::script::query;
use crate::time::{Instant, Lease};

/// A counting semaphore by its name: Redisson's `RSemaphore`. Making a handle does no I/O and cannot fail.
///
/// A permit belongs to nobody, and a permit whose process dies is gone until somebody gives it back with
/// [`release`](Self::release) or [`add_permits`](Self::add_permits). Redis knows only the number of free permits. To
/// repair a semaphore after a crash, compare [`available`](Self::available) with the permits that the living
/// processes hold, and add the difference.
///
/// In Redis a semaphore is a plain number, so any number under its name is taken for one: give it a name that no data
/// has. A semaphore has no permits until somebody sets their number with [`set_permits_once`](Self::set_permits_once).
/// Waiters of one process are served in the order of arrival, but a waiter that wants more than is free does not keep
/// a waiter behind it from what is free. Between processes there is no order.
///
/// Each request has its effect once, also when its answer is lost and the request is repeated: Redis remembers the
/// number of each request for ten minutes, under the keys `lockson_once:{name}:…`.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let downloads = client.get_semaphore("downloads");
/// downloads.set_permits_once(10)?; // by whoever comes first
/// let permits = downloads.acquire(1)?;
/// // ... at most ten downloads at a time, on all machines ...
/// permits.release()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until a permit is taken"]
pub struct Semaphore(pub(crate) Named);

/// Permits of a [`Semaphore`]; dropping them gives them back.
///
/// Permits are lost when the process dies, and when the semaphore is deleted, flushed, or expires. They may move
/// between threads. A closed client gives back the permits that it has taken.
///
/// A drop takes at most [`drop_timeout`](crate::ClientBuilder::drop_timeout); a release that takes longer goes on in
/// the background, and a failure is reported to [`Observer::release_failed`](crate::Observer::release_failed).
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let permits = client.get_semaphore("downloads").acquire(2)?;
/// std::thread::spawn(move || {
///     // ... two downloads ...
///     permits.release()
/// });
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped permits are given back at once"]
pub struct Permits {
    handle: Handle,
    name: LockName,
    permits: u32,
    owner: OwnerId,
    since: Instant,
    /// `None` after the permits were given back or left.
    number: Option<HoldNumber>,
}

impl Semaphore {
    /// Returns a handle whose waits end when `cancel` is used.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let stop = lockson::Cancel::new(); // a clone of it is used by the thread that shuts us down
    /// let permits = client.get_semaphore("downloads").with_cancel(&stop).acquire(1)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_cancel(&self, cancel: &Cancel) -> Self {
        Self(self.0.with(|modifiers| modifiers.cancel = Some(cancel.clone())))
    }

    /// Returns the name of the semaphore, with the [prefix](crate::ClientBuilder::name_prefix) of the client.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// assert_eq!(client.get_semaphore("downloads").name(), "downloads");
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Takes permits, all or none; waits without limit, also for a semaphore that does not exist, of which
    /// [`Observer::still_waiting`](crate::Observer::still_waiting) tells.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let permits = client.get_semaphore("downloads").acquire(3)?;
    /// assert_eq!(permits.count(), 3);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name, no permits, or more than 2,147,483,647. After
    /// [`outage_limit`](crate::ClientBuilder::outage_limit) without a reply of Redis: `Connection`, or `Unknown` if a
    /// request was sent; permits that such a request took are given back in the background. `OtherKind` when the key
    /// is no counter. `Cancelled`, `Closed` and `Refused` as their names say.
    pub fn acquire(&self, permits: u32) -> Result<Permits> {
        let busy = || Error::new(ErrorKind::Unknown, "a wait without limit ended without permits");
        self.0.about(self.take(permits, Wait::FOR_EVER)?.ok_or_else(busy))
    }

    /// Takes permits if enough are free, without waiting. `None` means that too few are free.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let Some(permits) = client.get_semaphore("downloads").try_acquire(1)? else {
    ///     return Ok(()); // ten machines are at it
    /// };
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but an unreachable server fails the call at once.
    pub fn try_acquire(&self, permits: u32) -> Result<Option<Permits>> {
        self.take(permits, Wait::Not)
    }

    /// Takes permits; waits for at most `wait`. [`Duration::MAX`] waits as [`acquire`](Self::acquire) does.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let permits = client.get_semaphore("downloads").try_acquire_for(1, Duration::from_secs(2))?;
    /// println!("{}", if permits.is_some() { "our turn" } else { "too busy" });
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but an unreachable server is tried again until the wait is over.
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>> {
        self.take(permits, Wait::within(wait))
    }

    /// Gives permits back, whoever took them, and makes the semaphore if there is none, as in Redisson. Zero permits
    /// are no error, and do nothing.
    ///
    /// [`Permits`] give themselves back; this is for permits that were
    /// [left](Permits::leave_to_release), and for permits of a process that died. After the semaphore was deleted or
    /// expired, this call makes a new one, without a time to live; [`release_if_exists`](Self::release_if_exists) does
    /// not.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_semaphore("downloads").release(1)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unknown` when Redis did not reply; the request then goes on in the background, once. `BadInput` where more than
    /// 2,147,483,647 permits would be free. Otherwise as [`acquire`](Self::acquire).
    pub fn release(&self, permits: u32) -> Result<()> {
        self.give_back(permits, Returning::ToAny).map(drop)
    }

    /// Gives permits back to an existing semaphore. Returns whether there is one; of zero permits always `false`.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if !client.get_semaphore("downloads").release_if_exists(1)? {
    ///     println!("the semaphore has expired, and its permits with it");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub fn release_if_exists(&self, permits: u32) -> Result<bool> {
        self.give_back(permits, Returning::ToExisting)
    }

    /// Asks Redis for the number of free permits: negative after permits were taken away, 0 without a semaphore.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// println!("{} free", client.get_semaphore("downloads").available()?);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `OtherKind` when the key is no counter; refusals and outages of the server.
    pub fn available(&self) -> Result<i64> {
        self.0.ask(|engine, name| engine.sender.count(name))
    }

    /// Takes all free permits. Returns their number. The permits belong to nobody; `release` gives them back.
    ///
    /// A negative number of free permits stays as it is, unlike in Redisson, which sets it to 0.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let downloads = client.get_semaphore("downloads");
    /// let free = downloads.drain()?; // from here on nobody begins
    /// downloads.release(u32::try_from(free).unwrap_or(u32::MAX))?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unknown` when Redis did not reply: permits that the request took are then given back in the background.
    /// Otherwise as [`available`](Self::available).
    pub fn drain(&self) -> Result<u64> {
        self.0.ask(|engine, name| {
            let call = |once: &Once| semaphore::drain(name, once);
            let given_up = |given_up: &Once, next: &Once| semaphore::withdraw(name, next, given_up.number);
            let took_nothing = |drained: &u64| *drained == 0;
            let request = Numbered { given_up: Some(&given_up), took_nothing, ..Numbered::new(name, &call) };
            engine.sender.once_within(&request)
        })
    }

    /// Makes the semaphore with this number of permits if there is none. Returns whether it was made.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_semaphore("downloads").set_permits_once(10)?; // at the start of every process
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unknown` when Redis did not reply: the request may have run, or may still run until the background has closed
    /// it. `BadInput` for more than 2,147,483,647 permits. Otherwise as [`available`](Self::available).
    pub fn set_permits_once(&self, permits: u32) -> Result<bool> {
        self.set_once(permits, None)
    }

    /// Makes the semaphore for a time if there is none. Returns whether it was made.
    ///
    /// At the end of `time_to_live` (1 ms to 365 days) the semaphore is gone with all its permits. A release of permits
    /// that were taken before makes no new one. If a new semaphore has been made under the name meanwhile, the release
    /// adds to it, so use a new name for each period.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // A hundred tickets, for an hour.
    /// client.get_semaphore("tickets").set_permits_once_for(100, Duration::from_secs(3_600))?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_permits_once`](Self::set_permits_once), and `BadInput` for an impossible time.
    pub fn set_permits_once_for(&self, permits: u32, time_to_live: Duration) -> Result<bool> {
        let time_to_live = self.0.about(Lease::new(time_to_live))?;
        self.set_once(permits, Some(time_to_live))
    }

    /// Adds free permits, or takes some away with a negative number; makes the semaphore if there is none.
    ///
    /// The number of free permits may become negative. A time to live stays, unlike in Redisson.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_semaphore("downloads").add_permits(-2)?; // two fewer from now on
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` beyond ±2,147,483,647, and where more than that would be free. `Unknown` when Redis did not reply:
    /// the request may have run, or may still run until the background has closed it. Otherwise as
    /// [`available`](Self::available).
    pub fn add_permits(&self, permits: i64) -> Result<()> {
        self.0.about(query::check_permits(permits.unsigned_abs()))?;
        self.0.ask(|engine, name| {
            let call = |once: &Once| semaphore::release(name, once, permits, Returning::ToAny);
            engine.wake_takers(name, engine.sender.once_within(&Numbered::new(name, &call))?);
            Ok(())
        })
    }

    /// Deletes the semaphore with all its permits. Returns whether there was one. Waiters go on waiting.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_semaphore("tickets").delete()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_permits_once`](Self::set_permits_once).
    pub fn delete(&self) -> Result<bool> {
        self.0.once(&|name, once| once::delete(name, once, &[]).publishing("", ""))
    }

    fn take(&self, permits: u32, wait: Wait) -> Result<Option<Permits>> {
        self.0.about(query::check_taking(permits, query::MOST_PERMITS))?;
        self.0.ask(|engine, name| {
            let taken = engine.take_permits(name, permits, wait, self.0.modifiers.cancel.as_ref());
            let (handle, name, since) = (self.0.handle.clone(), name.clone(), Instant::now());
            Ok(taken?.map(|(number, owner)| Permits { handle, name, permits, owner, since, number: Some(number) }))
        })
    }

    fn give_back(&self, permits: u32, returning: Returning) -> Result<bool> {
        self.0.about(query::check_permits(permits.into()))?;
        if permits == 0 {
            return self.0.name.checked().map(|_| false);
        }
        self.0.ask(|engine, name| {
            let send = |request: Numbered<'_, _>| engine.sender.once_within(&request);
            Ok(engine.return_permits(name, permits.into(), returning, send)? != Returned::Gone)
        })
    }

    fn set_once(&self, permits: u32, time_to_live: Option<Lease>) -> Result<bool> {
        self.0.about(query::check_permits(permits.into()))?;
        self.0.once(&|name, once| semaphore::set_once(name, once, permits, time_to_live))
    }
}

impl Permits {
    /// Returns the number of permits.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// assert_eq!(client.get_semaphore("downloads").acquire(2)?.count(), 2);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn count(&self) -> u32 {
        self.permits
    }

    /// Gives the permits back, once, to an existing semaphore.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let permits = client.get_semaphore("downloads").acquire(1)?;
    /// if permits.release().is_err_and(|error| error.is_lost()) {
    ///     println!("the semaphore was deleted meanwhile");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Lost` when the semaphore is gone: deleted, flushed or expired; no new one is made. `Closed` when the client was
    /// closed, and has given the permits back if the server answered in time. After any other error the release goes on
    /// in the background, until Redis confirms it or the client is closed; one that may have run, for nine minutes. A
    /// permit of which Redis heard nothing in this time stays taken.
    pub fn release(mut self) -> Result<()> {
        self.give_back(|config| config.command_timeout).map_err(|error| error.about_a(NOUN, &self.name))
    }

    /// Leaves the permits taken, for a [`Semaphore::release`] somewhere else, also in another process. The close of a
    /// client gives its permits back, and after it there is nothing to leave: do not release them again.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_semaphore("downloads").acquire(1)?.leave_to_release();
    /// // ... later, perhaps on another machine ...
    /// client.get_semaphore("downloads").release(1)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn leave_to_release(mut self) {
        if let (Some(number), Some(engine)) = (self.number.take(), self.handle.look()) {
            engine.cells.taken.remove(number);
        }
    }

    fn give_back(&mut self, limit: fn(&Config) -> Duration) -> Result<()> {
        let Some(number) = self.number.take() else { return Ok(()) };
        let engine = self.handle.begin_to_end()?;
        if !engine.cells.taken.remove(number) {
            let text = "the client was closed, and gave the permits back if the server answered in time";
            return Err(Error::new(ErrorKind::Closed, text));
        }
        if engine.give_back_permits(&self.name, self.permits.into(), limit(&engine.config))? == Returned::Gone {
            let text = "the semaphore is gone: deleted, flushed or expired; its permits ended with it";
            return Err(Error::new(ErrorKind::Lost(Loss::Gone), text));
        }
        engine.config.observe(Observer::released, || {
            let semaphore = (self.name.to_string(), LockKind::Semaphore, None, self.owner.to_string());
            LockReleased::of(semaphore, self.since.until(Instant::now()))
        });
        Ok(())
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if let Err(error) = self.give_back(|config| config.drop_timeout)
            && error.kind() != ErrorKind::Closed
            && let Some(engine) = self.handle.look()
        {
            let (name, kind, error) = (self.name.to_string(), LockKind::Semaphore, error.about_a(NOUN, &self.name));
            let event = || ReleaseFailed { name, kind, group: None, error };
            engine.config.observe(Observer::release_failed, event);
        }
    }
}

/// What an error calls a semaphore.
const NOUN: &str = "semaphore";
