//! The mutex and the condition variable of this crate.
//!
//! Both come from `parking_lot`. Under `--cfg shuttle` tests use those of the checker, with the same interface, so
//! that the checker decides which thread runs.

#[cfg(not(all(test, shuttle)))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

#[cfg(all(test, shuttle))]
pub(crate) use schedules::{Condvar, Mutex, MutexGuard};

#[cfg(all(test, shuttle))]
mod schedules;
