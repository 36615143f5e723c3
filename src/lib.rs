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
//! let lock = client.get_lock("lock:orders:42");
//! lock.run(|_| println!("one machine at a time"))?; // renewed while it runs
//!
//! if let Some(guard) = lock.try_lock_for(Duration::from_secs(2))? {
//!     println!("held by {} until the guard is dropped", guard.owner());
//! }
//! # Ok::<(), lockson::Error>(())
//! ```
//!
//! # Kinds of locks
//!
//! | kind | method | Redisson's class | use it when |
//! |---|---|---|---|
//! | plain | [`get_lock`](Client::get_lock) | `RLock` | one holder at a time; the holder may take it again |
//! | non-reentrant | [`get_non_reentrant_lock`](Client::get_non_reentrant_lock) | `RLock` | a second take by the same thread is a mistake |
//! | fair | [`get_fair_lock`](Client::get_fair_lock), [`get_non_reentrant_fair_lock`](Client::get_non_reentrant_fair_lock) | `RLock` | waiters are served in the order they came |
//! | spin | [`get_spin_lock`](Client::get_spin_lock) | `RLock` | holds are short, or the Redis user lacks the right to subscribe |
//! | fenced | [`get_fenced_lock`](Client::get_fenced_lock) | `RFencedLock` | the guarded resource can refuse a late writer by its [`FencingToken`] |
//! | read-write | [`get_read_write_lock`](Client::get_read_write_lock) | `RReadWriteLock` | many readers or one writer |
//! | multi-lock | [`Lock::multi`] | `RedissonMultiLock` | work needs several locks, and takes all of them or none |
//! | group lock | [`get_group_lock`](Client::get_group_lock) | `RedissonFasterMultiLock` | many locks of one sort, such as the seats of one hall, are taken several at a time |
//! | red lock | [`RedLock`] | `RedissonRedLock` | the lock must outlive the loss of a server, and there are three or five independent ones |
//! | token | [`get_token_lock`](Client::get_token_lock) | none | redis-py, redsync, node-redlock or rslock use the same lock |
//! | expiring permits | [`get_permit_expirable_semaphore`](Client::get_permit_expirable_semaphore) | `RPermitExpirableSemaphore` | a few holders at a time; permits of crashed holders return |
//! | semaphore | [`get_semaphore`](Client::get_semaphore) | `RSemaphore` | at most so many at a time; a crash costs permits |
//! | count-down latch | [`get_count_down_latch`](Client::get_count_down_latch) | `RCountDownLatch` | wait until others have done their parts |
//! | election | [`get_election`](Client::get_election) | none | one of several processes leads, and others ask which one |
//! | once per interval | [`once_per`](Lock::once_per) | none | a job runs once per interval, on whatever machine |
//!
//! Every lock has the same verbs: [`lock`](Lock::lock), [`try_lock`](Lock::try_lock) and
//! [`try_lock_for`](Lock::try_lock_for) give a [`Guard`]; [`run`](Lock::run), [`try_run`](Lock::try_run) and
//! [`try_run_for`](Lock::try_run_for) run a closure under the lock. A busy lock is `Ok(None)`, never an
//! [`Error`]; [`ErrorKind`] lists what else can happen, and [`Error::is_transient`] what to try again. A guard stays
//! on its thread; [`owned`](Lock::owned) gives guards that may move.
//!
//! # What it promises, and what it cannot
//!
//! A holder knows its own deadline and is told of every loss: by question
//! ([`Hold::is_held`]), by waiting ([`Hold::wait_lost`]) and by callback ([`Hold::on_lost`]). A
//! request whose answer was lost has its effect exactly once.
//!
//! No lock with a lease can stop a thread that was paused between its last look and its next write,
//! and a Redis that loses its data loses the lock. The [guarantees](guide::guarantees) have the bounds
//! and the limits.
//!
//! # Guides
//!
//! * [Guarantees and limits](guide::guarantees)
//! * [Coming from Redisson](guide::redisson): methods, settings, differences, mixed fleets
//! * [Operations](guide::operations): settings, sizes, rights, errors, and what to do at night
//! * [Your provider](guide::providers): what works on managed servers, and on programs like Redis
//! * [Glossary](guide::glossary)
//! * [Architecture](guide::architecture) and [reliability](guide::reliability): how it is built, broken and proven
//!
//! # Cargo features
//!
//! None is on by default.
//!
//! * `tls`: `rediss://` and `valkeys://`
//! * `credentials`: passwords that rotate, asked for at each connect
//!
//! # Crates beside
//!
//! * `lockson-cli`: the command line `lockson`, which runs a command under a lock, shows who holds what, and frees it
//! * `lockson-test`: for tests of your service; locks that are lost, servers that are mute
//! * `lockson-doctor`: lists what endangers locks on your servers
//! * `lockson-redisson-yaml`: reads Redisson's configuration file
//! * `lockson-telemetry`: observers for the crates `metrics` and `tracing`
//!
//! # Platforms
//!
//! Linux and macOS. Windows lacks Unix sockets and the clock and polling calls used here.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::panic, clippy::todo, clippy::print_stdout, clippy::print_stderr)
)]

/// The Rust in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The guides of the repository. Only the documentation has them.
// The first definition of a link counts, so the lines before a page lead its links to modules instead of files.
#[cfg(doc)]
pub mod guide {
    #[doc = "[durability]: operations#locks-that-wait-for-replicas\n[operations]: operations\n"]
    #[doc = include_str!("../docs/guarantees.md")]
    pub mod guarantees {}

    #[doc = "[guarantees]: guarantees\n[operations]: operations\n[turns]: guarantees#waiters-wake\n"]
    #[doc = include_str!("../docs/redisson.md")]
    pub mod redisson {}

    #[doc = "[fleet]: redisson#a-mixed-fleet\n[guarantees]: guarantees\n[providers]: providers\n[turns]: guarantees#waiters-wake\n"]
    #[doc = include_str!("../docs/operations.md")]
    pub mod operations {}

    #[doc = "[operations]: operations\n[credentials]: operations#credentials-that-change\n[durability]: operations#locks-that-wait-for-replicas\n"]
    #[doc = include_str!("../docs/providers.md")]
    pub mod providers {}

    #[doc = include_str!("../docs/glossary.md")]
    pub mod glossary {}

    #[doc = "[glossary]: glossary\n[guarantees]: guarantees\n[operations]: operations\n"]
    #[doc = include_str!("../docs/architecture.md")]
    pub mod architecture {}

    #[doc = "[guarantees]: guarantees\n"]
    #[doc = "[errors]: operations#errors\n[rights]: operations#rights\n"]
    #[doc = include_str!("../docs/reliability.md")]
    pub mod reliability {}
}

#[cfg(not(unix))]
compile_error!("lockson needs a Unix system: Linux or macOS");

mod bell;
mod cancel;
mod client;
mod config;
mod conn;
#[cfg(feature = "credentials")]
mod credentials;
mod durability;
mod election;
mod engine;
mod error;
mod event;
mod guard;
mod hold;
mod inspection;
mod kinds;
mod latch;
mod listing;
mod lock;
mod name;
mod owner;
mod permits;
mod red;
mod reply;
mod script;
mod semaphore;
mod state;
mod sync;
mod system;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod transport;

pub use cancel::Cancel;
pub use client::Client;
pub use config::ClientBuilder;
#[cfg(feature = "credentials")]
pub use credentials::{Credentials, Login};
pub use durability::Durability;
pub use election::{Candidate, Election, Leadership, Term};
pub use error::{Error, ErrorKind, Loss, Result};
pub use event::{
    HoldEnded, LockAbandoned, LockAcquired, LockLost, LockReleased, LocksRenewed, Observer, ReleaseFailed,
    RenewalFailed, ServerRecovered, ServerTrouble, TakeEnded, WaitGivenUp, WaitLasts, WaitStarted,
};
pub use guard::{AnyThread, Guard, ItsThread, OwnedGuard};
pub use hold::Hold;
pub use inspection::{ClientConnection, InspectedHolder, InspectedWaiter, Inspection};
pub use kinds::{ACCEPT_IF_NOT_OLDER, Backoff, Leader, ReleaseBy, TokenOptions};
pub use latch::CountDownLatch;
pub use listing::{HeldLock, LockKind, LockWaiter};
pub use lock::{Holder, Lock, OwnedLock, ReadWriteLock};
pub use permits::{ExpiringPermit, ExpiringPermits, PermitExpirableSemaphore, PermitId};
pub use red::RedLock;
pub use script::examination::{ClientSettings, ClockDifference, Examination};
pub use semaphore::{Permits, Semaphore};
#[cfg(feature = "tls")]
pub use tls::{DangerousNoVerification, Tls};
pub use token::FencingToken;
