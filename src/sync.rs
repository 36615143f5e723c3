//! The mutex, the condition variable, and the atomics by which threads wake each other.
//!
//! Both come from `parking_lot`. Under `--cfg shuttle` tests use those of the checker, with the same interface, so
//! that the checker decides which thread runs; under `--cfg simulated` they are those of the simulator.

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[cfg(simulated)]
pub(crate) use lockson_world::{Condvar, Mutex, MutexGuard};

#[cfg(not(any(simulated, all(test, shuttle))))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[cfg(all(test, shuttle))]
pub(crate) use schedules::{Condvar, Mutex, MutexGuard};

#[cfg(all(test, shuttle))]
mod schedules;
