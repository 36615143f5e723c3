//! What a client tells of itself: the kinds of locks by their names, what it holds, who waits.

use std::fmt;
use std::time::Duration;

use crate::token::Token;

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
    /// The side of a [`ReadWriteLock`](crate::ReadWriteLock) that many may hold.
    Read,
    /// The side of a [`ReadWriteLock`](crate::ReadWriteLock) that one may hold.
    Write,
    /// [`Client::get_token_lock`](crate::Client::get_token_lock).
    Token,
}

/// One lock that this client holds, as [`Client::held`](crate::Client::held) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) kind: LockKind,
    pub(crate) hold_count: u64,
    pub(crate) token: Option<Token>,
    pub(crate) held_for: Duration,
    pub(crate) remaining: Duration,
    pub(crate) is_renewed: bool,
}

/// One thread of this client that waits for a lock, as [`Client::waiting`](crate::Client::waiting) lists it.
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
    /// Returns the name of the lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the owner id as it stands in Redis.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the kind of the lock. A writer that also reads is listed as a writer.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Returns how often the lock is held.
    pub fn hold_count(&self) -> u64 {
        self.hold_count
    }

    /// Returns the fencing token; only fenced locks have one.
    pub fn token(&self) -> Option<Token> {
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

    /// Says whether the watchdog renews the hold. `false` for a hold with a lease, and for one past its
    /// [`with_max_hold`](crate::Lock::with_max_hold).
    pub fn is_renewed(&self) -> bool {
        self.is_renewed
    }
}

impl LockWaiter {
    /// Returns the name of the lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the owner id that the hold would get. Redis lists the waiters of a fair lock by it.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the kind of the lock.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Returns the number of the waiting thread, as it stands in the owner id of what it holds.
    pub fn thread(&self) -> u64 {
        self.thread
    }

    /// Returns the name of the waiting thread, if it has one.
    pub fn thread_name(&self) -> Option<&str> {
        self.thread_name.as_deref()
    }

    /// Returns how long the call has been waiting.
    pub fn waited(&self) -> Duration {
        self.waited
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
        })
    }
}
