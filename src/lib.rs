//! Redisson's distributed locks for blocking Rust.
//!
//! A lock that works across machines, kept in Redis: same keys, fields, channels and messages as
//! Java's Redisson, so a Rust service and a Java service can wait for the same lock and wake each
//! other. No async runtime.
//!
//! ```no_run
//! use std::time::Duration;
//! use lockson::Client;
//!
//! let client = Client::connect("redis://localhost")?;
//! let lock = client.get_lock("orders:42");
//! if let Some(guard) = lock.try_lock_for(Duration::from_secs(2))? {
//!     // ... one machine at a time; renewed in the background while the guard lives ...
//!     guard.unlock()?;
//! }
//! # Ok::<(), lockson::Error>(())
//! ```
//!
//! # What it promises, and what it cannot
//!
//! A holder knows its own deadline and is told of every loss: by question
//! ([`Hold::is_held`]), by waiting ([`Hold::wait_lost`]) and by callback ([`Hold::on_lost`]). A
//! request whose answer was lost is settled so that it has its effect exactly once.
//!
//! No lock with a lease can stop a thread that was paused between its last look and its next write,
//! and a Redis that loses its data loses the lock. `docs/guarantees.md` says it all plainly.
//!
//! # Platforms
//!
//! Linux and macOS. Windows lacks Unix sockets and the clock and polling calls used here.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::panic, clippy::todo, clippy::print_stdout, clippy::print_stderr)
)]

/// The Rust in the README and the documents compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/guarantees.md")]
#[doc = include_str!("../docs/redisson.md")]
struct Documents;

#[cfg(not(unix))]
compile_error!("lockson needs a Unix system: Linux or macOS");

mod bell;
mod cancel;
mod client;
mod config;
mod conn;
mod engine;
mod error;
mod event;
mod guard;
mod kinds;
mod listing;
mod lock;
mod name;
mod owner;
#[cfg(feature = "redisson-yaml")]
mod redisson_yaml;
mod script;
mod state;
mod sync;
mod time;
mod token;

pub use cancel::Cancel;
pub use client::Client;
pub use config::ClientBuilder;
pub use error::{Error, ErrorKind, Loss, Result};
pub use event::{
    ListeningFailed, LockAbandoned, LockAcquired, LockLost, LockReleased, LocksRenewed, LossesToldLate, Observer,
    ReleaseFailed, RenewalFailed, RenewalRecovered, WaitGivenUp, WaitStarted,
};
pub use guard::{Guard, Hold, OwnedGuard};
pub use kinds::{ACCEPT_IF_NOT_OLDER, Backoff, ReadWriteLock, ReleaseBy, TokenOptions};
pub use listing::{HeldLock, LockKind, LockWaiter};
pub use lock::{Holder, Lock, OwnedLock};
#[cfg(feature = "redisson-yaml")]
pub use redisson_yaml::RedissonConfig;
pub use token::Token;
