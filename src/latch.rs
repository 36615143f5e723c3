//! The count-down latch: threads wait until a count reaches zero.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::engine::Named;
use crate::error::{Error, ErrorKind, Result};
use crate::kinds::latch;
use crate::name::LockName;
use crate::script::{IfLock, NotALock, query};
use crate::time::Deadline;

/// A count-down latch by its name: Redisson's `RCountDownLatch`. Making a handle does no I/O and cannot fail.
///
/// The latch is open while it has no count: before the count is set, after it reached zero, and after it was deleted,
/// flushed or lost by Redis. So the end of a wait does not prove that everything was counted down.
///
/// Each count-down has its effect once, also when its answer is lost and the request is repeated: Redis remembers the
/// number of each request for ten minutes, under the keys `lockson_once:{name}:…`.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let loaded = client.get_count_down_latch("shards-loaded");
/// loaded.set_count_once(16)?; // by one process, before the others begin
/// // each of 16 workers, when it is done:
/// loaded.count_down()?;
/// // whoever needs all of them:
/// loaded.wait()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until it is used"]
pub struct CountDownLatch(pub(crate) Named);

impl CountDownLatch {
    /// Returns a handle whose waits end when `cancel` is used.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let stop = lockson::Cancel::new(); // a clone of it is used by the thread that shuts us down
    /// client.get_count_down_latch("shards-loaded").with_cancel(&stop).wait()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_cancel(&self, cancel: &Cancel) -> Self {
        Self(self.0.with(|modifiers| modifiers.cancel = Some(cancel.clone())))
    }

    /// Returns the name of the latch, with the [prefix](crate::ClientBuilder::name_prefix) of the client.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// assert_eq!(client.get_count_down_latch("shards-loaded").name(), "shards-loaded");
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Sets the count if there is none. Returns whether it was set. At most 2,147,483,647.
    ///
    /// An open latch has no count, so this closes it again, as in Redisson; a count of 0 leaves it open, and counts as
    /// set until [`count_down`](Self::count_down) or [`delete`](Self::delete). Let one process set the count, before the
    /// others begin, and use a new name for each round: a worker that is started again must not set it.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let run = 7; // from the coordinator
    /// if client.get_count_down_latch(format!("shards-loaded:{run}")).set_count_once(16)? {
    ///     println!("16 shards are to be loaded");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name or count. `Unknown` when Redis did not reply: the request may have run, or may
    /// still run until the background has closed it. `OtherKind` when the key is no counter. `Connection` and `Refused`
    /// as their names say.
    pub fn set_count_once(&self, count: u32) -> Result<bool> {
        if i32::try_from(count).is_err() {
            let text = format!("a count of {count} is not possible; give at most {}", i32::MAX);
            return self.0.about(Err(Error::new(ErrorKind::BadInput, text)));
        }
        self.0.once(&|name, once| latch::set_once(name, once, count))
    }

    /// Counts down by one; at zero the latch opens. Does nothing to an open latch.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // ... a shard is loaded ...
    /// client.get_count_down_latch("shards-loaded").count_down()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unknown` when Redis did not reply: the request may have run, or may still run until the background has closed
    /// it; read the [`count`](Self::count) and decide. Otherwise as [`set_count_once`](Self::set_count_once).
    pub fn count_down(&self) -> Result<()> {
        self.0.once(&latch::count_down)
    }

    /// Asks Redis for the count; 0 for an open latch.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// println!("{} shards to go", client.get_count_down_latch("shards-loaded").count()?);
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `OtherKind` when the key is no counter; refusals and outages of the server.
    pub fn count(&self) -> Result<u64> {
        let count = self.0.ask(|engine, name| engine.sender.count(name))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Waits without limit until the latch is open.
    ///
    /// The last count-down wakes the waiters by a message; a latch that is deleted, flushed or expires frees them
    /// within a second.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_count_down_latch("shards-loaded").wait()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// After [`outage_limit`](crate::ClientBuilder::outage_limit) without a reply of Redis: `Connection`. `OtherKind`
    /// when the key is no counter. `Cancelled`, `Closed` and `Refused` as their names say.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(Deadline::Never).map(drop)
    }

    /// Waits for at most `wait` until the latch is open. Returns whether it is open.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if !client.get_count_down_latch("shards-loaded").wait_for(Duration::from_secs(60))? {
    ///     println!("some shard is slow");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), but an unreachable server is tried again until the wait is over.
    pub fn wait_for(&self, wait: Duration) -> Result<bool> {
        self.wait_until(Deadline::after(wait))
    }

    /// Deletes the latch, which frees its waiters. Returns whether it had a count.
    ///
    /// Waiters in Redisson sleep on, as after Redisson's own `delete()`: there the message of a deletion means that a
    /// new count was set. A count down to zero wakes them: set the count to 1 and count down, as `lockson free --latch`
    /// does.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_count_down_latch("shards-loaded").delete()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_count_once`](Self::set_count_once).
    pub fn delete(&self) -> Result<bool> {
        self.0.once(&latch::delete)
    }

    fn wait_until(&self, deadline: Deadline) -> Result<bool> {
        let unwanted = |count: &IfLock<i64>| count.is_ok_and(|count| count > 0).then_some(LONGEST_SLEEP);
        let cancel = self.0.modifiers.cancel.as_ref();
        self.0.ask(|engine, name| {
            match engine.inquire(&query::count(name), LockName::latch_channel, cancel, deadline, unwanted) {
                Ok(Some(Err(NotALock))) => Err(engine.sender.no_counter(name)),
                Ok(open) => Ok(open.is_some()),
                Err(error) => Err(engine.sender.of_counter(name, error)),
            }
        })
    }
}

/// A latch that is deleted by another program, or flushed, publishes no message.
const LONGEST_SLEEP: Duration = Duration::from_millis(700);
