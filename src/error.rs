//! The error type: kind, lock, cause, and advice.

mod refusal;
mod stop;

use std::error::Error as StdError;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use refusal::Refusal;
pub(crate) use stop::Stop;

/// A [`Result`](std::result::Result) with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed.
///
/// A busy lock is not an error: it is `Ok(None)`.
///
/// ```
/// # use lockson::{Client, ErrorKind};
/// let error = Client::connect("redis://127.0.0.1:1").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Connection);
/// ```
#[derive(Clone, Debug)]
pub struct Error(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    /// The name, behind the noun for what has it.
    name: Option<(&'static str, String)>,
    text: String,
    word: Option<String>,
    /// Whether an earlier copy of the request is unanswered.
    in_doubt: bool,
    /// The text of the source is not repeated in `text`, so that a chain of causes repeats nothing.
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// Declares an enum and the text of each word.
macro_rules! words {
    (
        $(#[$doc:meta])*
        pub enum $name:ident { $($(#[$note:meta])* $word:ident $(($of:ty))? = $text:literal,)* }
        $(#[$told:meta])*
        pub fn as_str;
    ) => {
        $(#[$doc])*
        pub enum $name {
            $($(#[$note])* $word $(($of))?,)*
        }

        impl $name {
            $(#[$told])*
            pub fn as_str(&self) -> &'static str {
                match self {
                    $(Self::$word { .. } => $text,)*
                }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// The kinds of [`Error`], one for each fact.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::ErrorKind;
    ///
    /// match client.get_lock("import").lock().map(drop) {
    ///     Err(error) if error.kind() == ErrorKind::OtherKind => eprintln!("who else calls a lock that? {error}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ErrorKind {
        /// This thread holds the lock in a way that forbids another take.
        AlreadyHeld = "already_held",
        /// An argument is not possible; nothing was changed.
        BadInput = "bad_input",
        /// The caller's [`Cancel`](crate::Cancel), or [`Client::stop_waiting`](crate::Client::stop_waiting), ended the
        /// wait; nothing was taken.
        Cancelled = "cancelled",
        /// The client was closed; the lock is not held.
        Closed = "closed",
        /// A setting or the URL is not possible.
        Config = "config",
        /// Redis was not reached, or did not answer, and the request had no effect.
        Connection = "connection",
        /// This client had the lock and lost it; the reason is inside.
        Lost(Loss) = "lost",
        /// So few replicas, or disks, had the lock that its [`Durability`](crate::Durability) was not reached; the text
        /// says how many.
        NotDurable = "not_durable",
        /// This thread has no such hold: never taken, released already, or held by another thread.
        NotHeld = "not_held",
        /// The name belongs to another kind of lock, or to data that is no lock. Where the key has a type that the kind
        /// does not use, locks fail with `Refused` and the word `WRONGTYPE` instead.
        OtherKind = "other_kind",
        /// So few servers of a [red lock](crate::RedLock) answered that no majority is possible; the text says what the
        /// others said.
        Quorum = "quorum",
        /// Redis replied with an error; [`Error::redis_word`] is the first word of that error.
        Refused = "refused",
        /// A request was sent and never answered, so it may have run or not. Its effect is cleaned up in the background,
        /// at the latest by the end of the lease.
        Unknown = "unknown",
        /// The server or this build lacks the feature, or several locks as one cannot answer.
        Unsupported = "unsupported",
    }
    /// Returns the name of the kind in `snake_case`, for labels of metrics and fields of logs; a name never changes.
    ///
    /// A `Lost` is `lost`, whatever the [`Loss`]. `Display` writes the same.
    ///
    /// ```
    /// use lockson::{ErrorKind, Loss};
    ///
    /// assert_eq!(ErrorKind::AlreadyHeld.as_str(), "already_held");
    /// assert_eq!(ErrorKind::Lost(Loss::Gone).to_string(), "lost");
    /// ```
    pub fn as_str;
}

words! {
    /// The way in which a hold was lost.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::Loss;
    ///
    /// let guard = client.get_lock("stock:42").lock()?;
    /// match guard.lost() {
    ///     Some(Loss::Expired) => eprintln!("Redis did not answer, or we were stopped"),
    ///     Some(loss) => eprintln!("lost: {loss}"),
    ///     None => println!("ours"),
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Loss {
        /// The deadline passed: the end of a lease or of [`with_max_hold`](crate::Lock::with_max_hold), or no renewal that
        /// Redis confirmed.
        Expired = "expired",
        /// The key is gone: deleted, flushed, force-released, or lost in a restart.
        Gone = "gone",
        /// Another owner holds the lock, or the key has another type. A reader whose hold is gone beside other readers is
        /// told this, too.
        Taken = "taken",
        /// The client was closed during the hold.
        Closed = "closed",
    }
    /// Returns the name of the loss in `snake_case`, for labels of metrics and fields of logs; a name never changes.
    /// `Display` writes a sentence.
    ///
    /// ```
    /// assert_eq!(lockson::Loss::Expired.as_str(), "expired");
    /// ```
    pub fn as_str;
}

/// The most failures that one error names.
const MOST_NAMED: usize = 8;

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, name: None, text: text.into(), word: None, in_doubt: false, source: None }))
    }

    /// Makes an error with a cause. `text` explains the cause in its own words and does not repeat it.
    pub(crate) fn with_source(
        kind: ErrorKind,
        text: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self::new(kind, text).changed(|inner| Inner { source: Some(Arc::new(source)), ..inner })
    }

    /// Makes the error for an error reply of Redis.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        let error = Self::new(ErrorKind::Refused, refusal.to_string());
        error.changed(|inner| Inner { word: Some(refusal.word().to_owned()), ..inner })
    }

    /// Turns the error into one of the settings, which waiting does not mend.
    pub(crate) fn of_the_settings(self) -> Self {
        self.changed(|inner| Inner { kind: ErrorKind::Config, ..inner })
    }

    /// Turns the error of the last attempt into a doubt, because an earlier attempt is unanswered and may have run.
    pub(crate) fn in_doubt(self) -> Self {
        self.changed(|inner| Inner { kind: ErrorKind::Unknown, word: None, in_doubt: true, ..inner })
    }

    /// Adds advice to the text.
    pub(crate) fn advising(self, advice: &str) -> Self {
        self.changed(|inner| Inner { text: format!("{}; {advice}", inner.text), ..inner })
    }

    /// Removes the doubt from the error of a request that changes nothing.
    pub(crate) fn without_effect(self) -> Self {
        if self.kind() != ErrorKind::Unknown {
            return self;
        }
        self.changed(|inner| Inner { kind: ErrorKind::Connection, in_doubt: false, ..inner })
    }

    /// Makes the error of a lost hold, with the time for which this process was stopped at the deadline, if it was.
    pub(crate) fn lost(noun: &str, loss: Loss, server: &str, stood_still: Option<Duration>) -> Self {
        let standstill = stood_still.map_or_else(String::new, |time| {
            let seconds = time.as_secs_f64();
            format!("; this process stood still for about {seconds:.0} s (stopped, suspended or without a turn)")
        });
        let text =
            format!("the {noun} at redis {server} was lost: {loss}{standstill}; treat the guarded work as unprotected");
        Self::new(ErrorKind::Lost(loss), text)
    }

    /// Makes the error of a call about `total` locks if fewer than `needed` of them did not fail. The error names the
    /// failed locks. Its kind is a loss if too many were lost, and otherwise that of the first other failure.
    pub(crate) fn unless_enough(group: &str, (total, needed): (usize, usize), failures: Vec<Self>) -> Result<()> {
        // A few losses that the group outlived are not the reason.
        let is_lost = total - failures.iter().filter(|error| error.is_lost()).count() < needed;
        let reason = failures.iter().position(|error| error.is_lost() == is_lost).unwrap_or_default();
        let Some(first) = failures.get(reason).filter(|_| total - failures.len() < needed) else { return Ok(()) };
        if total == 1 {
            return Err(first.clone());
        }
        let (named, more) = failures.split_at(failures.len().min(MOST_NAMED));
        // Each text once, behind the locks that it is about.
        let mut texts: Vec<(&str, Vec<String>)> = vec![];
        for error in named {
            let name = error.lock_name().map(|name| format!("{name:?}"));
            match texts.iter_mut().find(|(known, _)| *known == error.0.text) {
                Some((_, names)) => names.extend(name),
                None => texts.push((&error.0.text, Vec::from_iter(name))),
            }
        }
        let is_about_all = texts.len() == 1 && named.len() == total;
        let texts = texts.into_iter().map(|(text, names)| match &names[..] {
            names if names.is_empty() || is_about_all => text.to_owned(),
            names => format!("lock {}: {text}", names.join(", ")),
        });
        let (texts, more): (Vec<String>, _) = (texts.collect(), more.len());
        let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
        let text = format!("{} of {total} locks: {}{rest}", failures.len(), texts.join("; "));
        let (name, in_doubt) = (Some(("lock", group.to_owned())), failures.iter().any(Self::is_in_doubt));
        Err(first.clone().changed(|inner| Inner { name, text, in_doubt, ..inner }))
    }

    /// The error of an answer about more or fewer locks than were asked about.
    pub(crate) fn odd_count() -> Self {
        Self::new(ErrorKind::Unknown, "the answer was for another number of locks")
    }

    /// Adds the server to the error.
    pub(crate) fn at(self, server: &str) -> Self {
        self.changed(|inner| Inner { text: format!("redis at {server}: {}", inner.text), ..inner })
    }

    /// Adds the lock to the error, unless it names one.
    pub(crate) fn about(self, name: &(impl fmt::Display + ?Sized)) -> Self {
        self.about_a("lock", name)
    }

    /// Adds a name and the noun for what has it.
    pub(crate) fn about_a(self, noun: &'static str, name: &(impl fmt::Display + ?Sized)) -> Self {
        if self.0.name.is_some() {
            return self;
        }
        let name = Some((noun, name.to_string()));
        self.changed(|inner| Inner { name, ..inner })
    }

    fn changed(self, change: impl FnOnce(Inner) -> Inner) -> Self {
        Self(Arc::new(change(Arc::unwrap_or_clone(self.0))))
    }

    /// Returns the kind of the error.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::ErrorKind;
    ///
    /// let Err(error) = client.get_lock("lock:orders:42").lock() else { return Ok(()) };
    /// match error.kind() {
    ///     ErrorKind::Closed => println!("we are shutting down"),
    ///     kind => eprintln!("{kind:?}: {error}"),
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the name of the lock, if the error is about a lock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let client = lockson::Client::builder("redis://localhost").connect_lazily()?;
    /// let impossible = client.get_lock("lock:orders:42").with_lease(Duration::ZERO);
    /// assert_eq!(impossible.lock().unwrap_err().lock_name(), Some("lock:orders:42"));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn lock_name(&self) -> Option<&str> {
        self.0.name.as_ref().map(|(_, name)| name.as_str())
    }

    /// Returns the first word of the error of Redis: `OOM`, `READONLY`, `NOPERM`, `MISCONF`, `LOADING`, `BUSY`,
    /// `WRONGTYPE` and so on; `MAXCLIENTS` for the error text without such a word; `READONLY` also for a server that
    /// reports on a new connection that it is a replica.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// # let Err(error) = client.get_lock("lock:orders:42").lock() else { return Ok(()) };
    /// if error.redis_word() == Some("OOM") {
    ///     eprintln!("Redis is full: {error}");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn redis_word(&self) -> Option<&str> {
        self.0.word.as_deref()
    }

    /// Whether the server replied, and would reply the same in a moment.
    pub(crate) fn is_final_refusal(&self) -> bool {
        self.kind() == ErrorKind::Refused && !self.redis_word().is_some_and(refusal::is_passing)
    }

    /// Whether the user lacks the right to one of the keys of a request.
    pub(crate) fn forbids_a_key(&self) -> bool {
        self.redis_word() == Some("NOPERM") && self.0.text.contains(" key")
    }

    /// Returns whether the same call may succeed a moment later.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockson::{Guard, Lock, Result};
    /// fn take_patiently(lock: &Lock) -> Result<Guard> {
    ///     loop {
    ///         match lock.lock() {
    ///             Err(error) if error.is_transient() => std::thread::sleep(Duration::from_secs(5)),
    ///             outcome => return outcome,
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// | kind | `is_transient` | `is_in_doubt` | `is_lost` |
    /// |---|---|---|---|
    /// | `Connection`, `NotDurable`, `Quorum` | yes | | |
    /// | `Refused` with `LOADING`, `BUSY`, `MASTERDOWN`, `TRYAGAIN`, `CLUSTERDOWN`, `READONLY`, `MAXCLIENTS` | yes | | |
    /// | `Refused` with another word | | | |
    /// | `Unknown` | yes | yes | |
    /// | `Lost` | | | yes |
    /// | `AlreadyHeld`, `BadInput`, `Cancelled`, `Closed`, `Config`, `NotHeld`, `OtherKind`, `Unsupported` | | | |
    ///
    /// This is no promise: a server that is starting looks like a server that never starts.
    pub fn is_transient(&self) -> bool {
        match self.kind() {
            ErrorKind::Connection | ErrorKind::NotDurable | ErrorKind::Quorum | ErrorKind::Unknown => true,
            ErrorKind::Refused => !self.is_final_refusal(),
            _ => false,
        }
    }

    /// Whether the server may answer later. A lock that its replicas did not get is an error at once.
    pub(crate) fn is_outage(&self) -> bool {
        self.is_transient() && self.kind() != ErrorKind::NotDurable
    }

    /// Returns whether the request may have run: sent and never answered.
    ///
    /// A take may simply be repeated; a release is finished in the background. A
    /// [`force_unlock`](crate::Lock::force_unlock) may not be repeated: another owner may hold the lock by then.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let lock = client.get_lock("stock:42");
    /// match lock.force_unlock() {
    ///     Err(error) if error.is_in_doubt() => println!("held by {:?} now", lock.holder()?),
    ///     outcome => println!("it was held: {}", outcome?),
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn is_in_doubt(&self) -> bool {
        self.kind() == ErrorKind::Unknown
    }

    /// Says whether a lock was lost, so that work since then was not protected; [`loss`](Self::loss)
    /// says how.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// # fn undo() {}
    /// let guard = client.get_lock("stock:42").lock()?;
    /// // ... work ...
    /// if guard.unlock().is_err_and(|error| error.is_lost()) {
    ///     undo();
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// The loss, if this error reports one.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::Loss;
    ///
    /// let guard = client.get_lock("stock:42").lock()?;
    /// if let Err(error) = guard.unlock()
    ///     && error.loss() == Some(Loss::Taken)
    /// {
    ///     eprintln!("somebody else was at work, too");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn loss(&self) -> Option<Loss> {
        if let ErrorKind::Lost(loss) = self.0.kind { Some(loss) } else { None }
    }
}

/// Nothing of it ever changes.
impl UnwindSafe for Error {}
impl RefUnwindSafe for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((noun, name)) = &self.0.name {
            write!(f, "{noun} {name:?}: ")?;
        }
        f.write_str(&self.0.text)?;
        if self.0.in_doubt { f.write_str("; the request was sent and may have been carried out") } else { Ok(()) }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => {
                "its time ran out (its lease or with_max_hold() ended, or redis confirmed no renewal in time)"
            }
            Self::Gone => "redis has it no more (deleted, flushed, forced open or restarted empty)",
            Self::Taken => "someone else has it, or something else stands under its name",
            Self::Closed => "the client was closed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_lock_and_keeps_its_kind_when_shared() {
        let error = Error::lost("lock", Loss::Gone, "h:1/0", None);
        let named = error.clone().about("orders:42");
        assert_eq!(named.kind(), ErrorKind::Lost(Loss::Gone));
        assert_eq!(named.lock_name(), Some("orders:42"));
        assert!(named.to_string().starts_with("lock \"orders:42\": "), "{named}");
        assert_eq!(error.lock_name(), None);
    }

    #[test]
    fn a_group_is_lost_only_if_too_few_locks_are_left() {
        let (lost, silent) =
            (Error::lost("lock", Loss::Gone, "h:1/0", None), Error::new(ErrorKind::Unknown, "no answer"));
        let kind = |total_and_needed, failures: &[&Error]| {
            let failures = failures.iter().map(|error| (*error).clone()).collect();
            Error::unless_enough("red(a, b, c)", total_and_needed, failures).map_err(|error| error.kind())
        };
        assert_eq!(kind((3, 2), &[&lost]), Ok(()));
        assert_eq!(kind((3, 2), &[&lost, &silent]), Err(ErrorKind::Unknown), "two were held to the end");
        assert_eq!(kind((3, 2), &[&silent, &lost, &lost]), Err(ErrorKind::Lost(Loss::Gone)));
        assert_eq!(kind((3, 3), &[&silent, &lost]), Err(ErrorKind::Lost(Loss::Gone)), "all are needed");
        assert_eq!(kind((1, 1), &[&lost]), Err(ErrorKind::Lost(Loss::Gone)));
    }

    #[test]
    fn an_error_in_doubt_keeps_its_cause_and_says_nothing_twice() {
        let cause = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = Error::with_source(ErrorKind::Connection, "redis at h:1/0 closed the connection", cause);
        let doubted = error.clone().in_doubt();
        assert_eq!(doubted.kind(), ErrorKind::Unknown);
        let cause = doubted.source().unwrap().to_string();
        assert!(!doubted.to_string().contains(&cause), "{doubted}: {cause}");
        assert!(doubted.to_string().starts_with(&error.to_string()), "{doubted}");
        let question = doubted.without_effect();
        assert_eq!((question.kind(), question.to_string()), (error.kind(), error.to_string()));
    }

    #[test]
    fn errors_travel_between_threads() {
        fn check<T: Send + Sync + 'static>() {}
        check::<Error>();
    }
}
