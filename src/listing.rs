//! The lists of a client: kinds of locks, held locks, waiting threads.

use std::fmt;
use std::time::Duration;

use crate::error::words;
use crate::token::FencingToken;

/// Declares structs of facts, with a method that reads each of them.
macro_rules! record {
    ($(#[$doc:meta])* pub struct $record:ident { $($(#[$note:meta])* $field:ident: $kept:ty => [$($seen:tt)+],)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $record {
            $(pub(crate) $field: $kept,)*
        }

        impl $record {
            $($(#[$note])*
            pub fn $field(&self) -> $($seen)+ {
                record!(@show self, $field, $($seen)+)
            })*
        }
    };
    (@show $of:ident, $field:ident, Option<&str>) => { $of.$field.as_deref() };
    (@show $of:ident, $field:ident, Option<& $seen:ty>) => { $of.$field.as_ref() };
    (@show $of:ident, $field:ident, & $seen:ty) => { &$of.$field };
    (@show $of:ident, $field:ident, $seen:ty) => { $of.$field };
    (
        $(#[$doc:meta])*
        pub struct $record:ident of a lock { $($(#[$note:meta])* $field:ident: $kept:ty => [$($seen:tt)+],)* }
    ) => {
        record! {
            $(#[$doc])*
            pub struct $record {
                /// The name of the lock.
                name: String => [&str],
                /// The kind of the lock.
                kind: LockKind => [LockKind],
                /// The name of the group, if the lock was taken as a part of several locks. A lost minority of a red
                /// lock is no loss of the group.
                group: Option<String> => [Option<&str>],
                /// The owner id of the hold, as stored in Redis; of a waiter that of its future hold.
                owner: String => [&str],
                $($(#[$note])* $field: $kept => [$($seen)+],)*
            }
        }

        impl $record {
            pub(crate) fn of((name, kind, group, owner): InEvents, $($field: $kept),*) -> Self {
                Self { name, kind, group, owner, $($field),* }
            }
        }
    };
    ($(#[$doc:meta])* pub struct $record:ident $(of a $lock:ident)? { $($fields:tt)* } $($others:tt)+) => {
        record! { $(#[$doc])* pub struct $record $(of a $lock)? { $($fields)* } }
        record! { $($others)+ }
    };
}
pub(crate) use record;

/// What events tell of a lock: name, kind, group and owner.
pub(crate) type InEvents = (String, LockKind, Option<String>, String);

words! {
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
        Plain = "plain",
        /// [`Client::get_non_reentrant_lock`](crate::Client::get_non_reentrant_lock).
        NonReentrant = "non_reentrant",
        /// [`Client::get_fair_lock`](crate::Client::get_fair_lock).
        Fair = "fair",
        /// [`Client::get_non_reentrant_fair_lock`](crate::Client::get_non_reentrant_fair_lock).
        NonReentrantFair = "non_reentrant_fair",
        /// [`Client::get_spin_lock`](crate::Client::get_spin_lock).
        Spin = "spin",
        /// [`Client::get_fenced_lock`](crate::Client::get_fenced_lock).
        Fenced = "fenced",
        /// The read side of a [`ReadWriteLock`](crate::ReadWriteLock).
        Read = "read",
        /// The write side of a [`ReadWriteLock`](crate::ReadWriteLock).
        Write = "write",
        /// [`Client::get_token_lock`](crate::Client::get_token_lock).
        Token = "token",
        /// [`Client::get_election`](crate::Client::get_election).
        Leader = "leader",
        /// One value of a group lock; in [`TakeEnded`](crate::TakeEnded) a whole group lock.
        Group = "group",
        /// [`Lock::multi`](crate::Lock::multi), in [`TakeEnded`](crate::TakeEnded) only.
        Multi = "multi",
        /// [`RedLock`](crate::RedLock), in [`TakeEnded`](crate::TakeEnded) only.
        Red = "red",
        /// [`Client::get_permit_expirable_semaphore`](crate::Client::get_permit_expirable_semaphore).
        Permit = "permit",
        /// [`Client::get_semaphore`](crate::Client::get_semaphore). Only waiters are listed, and Redis does not store the
        /// owner id of a taker.
        Semaphore = "semaphore",
    }
    /// Returns the name of the kind in `snake_case`, for labels of metrics and fields of logs; a name never changes.
    /// `Display` writes the same, but a hyphen and a space in the kinds without re-entry.
    ///
    /// ```
    /// assert_eq!(lockson::LockKind::NonReentrantFair.as_str(), "non_reentrant_fair");
    /// ```
    pub fn as_str;
}

record! {
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
    #[derive(PartialEq, Eq)]
    pub struct HeldLock {
        /// Returns the name of the lock, with the prefix of the client.
        name: String => [&str],
        /// Returns the owner id, as stored in Redis.
        owner: String => [&str],
        /// Returns the kind of the lock. A writer with a read hold is listed as a writer.
        kind: LockKind => [LockKind],
        /// Returns the hold count.
        hold_count: u64 => [u64],
        /// Returns the fencing token; only fenced locks and leaderships have one.
        token: Option<FencingToken> => [Option<FencingToken>],
        /// Returns how long ago the lock was taken.
        held_for: Duration => [Duration],
        /// Returns the time until the hold expires if it is not renewed.
        remaining: Duration => [Duration],
        /// Returns whether the watchdog renews the hold: `false` with a lease, and after
        /// [`with_max_hold`](crate::Lock::with_max_hold).
        is_renewed: bool => [bool],
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
    #[derive(PartialEq, Eq)]
    pub struct LockWaiter {
        /// Returns the name of the lock, with the prefix of the client.
        name: String => [&str],
        /// Returns the owner id of the future hold, which also identifies a waiter in the queue of a fair lock.
        owner: String => [&str],
        /// Returns the kind of the lock.
        kind: LockKind => [LockKind],
        /// Returns the number of the waiting thread. It is part of the owner id, but of those of owned guards and
        /// leaderships, which have 0, and of permits.
        thread: u64 => [u64],
        /// Returns the name of the waiting thread, if the thread has a name.
        thread_name: Option<String> => [Option<&str>],
        /// Returns how long the call has been waiting.
        waited: Duration => [Duration],
    }
}

impl LockKind {
    /// The word of an error for a hold of this kind.
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
            Self::NonReentrant => "non-reentrant",
            Self::NonReentrantFair => "non-reentrant fair",
            kind => kind.as_str(),
        })
    }
}
