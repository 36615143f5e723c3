//! The lists of a client: kinds of locks, held locks, waiting threads.

use std::fmt;
use std::time::Duration;

use crate::token::FencingToken;

/// The kind of a lock, for events and lists.
///
/// ```
/// # use lockson::LockKind;
/// assert_eq!(LockKind::NonReentrantFair.to_string(), "non-reentrant fair");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// [`Client::get_lock`](crate::Client::get_lock).
    Plain,
    /// [`Client::get_non_reentrant_lock`](crate::Client::get_non_reentrant_lock).
    NonReentrant,
    /// [`Client::get_fair_lock`](crate::Client::get_fair_lock).
    Fair,
    /// [`Client::get_non_reentrant_fair_lock`](crate::Client::get_non_reentrant_fair_lock).
    NonReentrantFair,
    /// [`Client::get_spin_lock`](crate::Client::get_spin_lock).
    Spin,
    /// [`Client::get_fenced_lock`](crate::Client::get_fenced_lock).
    Fenced,
    /// The read side of a [`ReadWriteLock`](crate::ReadWriteLock).
    Read,
    /// The write side of a [`ReadWriteLock`](crate::ReadWriteLock).
    Write,
    /// [`Client::get_token_lock`](crate::Client::get_token_lock).
    Token,
    /// [`Client::get_election`](crate::Client::get_election).
    Leader,
    /// One value of a group lock.
    Group,
    /// [`Client::get_permit_expirable_semaphore`](crate::Client::get_permit_expirable_semaphore).
    Permit,
    /// [`Client::get_semaphore`](crate::Client::get_semaphore). Only waiters are listed, and Redis does not store the
    /// owner id of a taker.
    Semaphore,
}

/// A lock that the client holds, as listed by [`Client::held`](crate::Client::held).
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// for held in client.held() {
///     let (name, kind, count, token) = (held.name(), held.kind(), held.hold_count(), held.token());
///     println!("{name} ({kind}) {count} times as {} for {:?}, {token:?}", held.owner(), held.held_for());
///     if !held.is_renewed() {
///         println!("  ends in {:?}", held.remaining());
///     }
/// }
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) kind: LockKind,
    pub(crate) hold_count: u64,
    pub(crate) token: Option<FencingToken>,
    pub(crate) held_for: Duration,
    pub(crate) remaining: Duration,
    pub(crate) is_renewed: bool,
}

/// A thread of the client that waits for a lock, as listed by [`Client::waiting`](crate::Client::waiting).
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// for waiter in client.waiting() {
///     let (name, kind, owner) = (waiter.name(), waiter.kind(), waiter.owner());
///     let thread = waiter.thread_name().map_or_else(|| waiter.thread().to_string(), str::to_owned);
///     println!("thread {thread} waits for {name} ({kind}) as {owner} for {:?}", waiter.waited());
/// }
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaiter {
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) kind: LockKind,
    pub(crate) thread: u64,
    pub(crate) thread_name: Option<String>,
    pub(crate) waited: Duration,
}

impl HeldLock {
    /// Returns the name of the lock, with the prefix of the client.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the owner id, as stored in Redis.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the kind of the lock. A writer with a read hold is listed as a writer.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Returns the hold count.
    pub fn hold_count(&self) -> u64 {
        self.hold_count
    }

    /// Returns the fencing token; only fenced locks and leaderships have one.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Returns how long ago the lock was taken.
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// Returns the time until the hold expires if it is not renewed.
    pub fn remaining(&self) -> Duration {
        self.remaining
    }

    /// Returns whether the watchdog renews the hold: `false` with a lease, and after
    /// [`with_max_hold`](crate::Lock::with_max_hold).
    pub fn is_renewed(&self) -> bool {
        self.is_renewed
    }
}

impl LockWaiter {
    /// Returns the name of the lock, with the prefix of the client.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the owner id of the future hold, which also identifies a waiter in the queue of a fair lock.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the kind of the lock.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Returns the number of the waiting thread, which is part of the owner id of its holds.
    pub fn thread(&self) -> u64 {
        self.thread
    }

    /// Returns the name of the waiting thread, if the thread has a name.
    pub fn thread_name(&self) -> Option<&str> {
        self.thread_name.as_deref()
    }

    /// Returns how long the call has been waiting.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl LockKind {
    /// What an error calls a hold of this kind.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Leader => "leadership",
            Self::Permit => "permit",
            Self::Semaphore => "semaphore",
            _ => "lock",
        }
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plain => "plain",
            Self::NonReentrant => "non-reentrant",
            Self::Fair => "fair",
            Self::NonReentrantFair => "non-reentrant fair",
            Self::Spin => "spin",
            Self::Fenced => "fenced",
            Self::Read => "read",
            Self::Write => "write",
            Self::Token => "token",
            Self::Leader => "leader",
            Self::Group => "group",
            Self::Permit => "permit",
            Self::Semaphore => "semaphore",
        })
    }
}
