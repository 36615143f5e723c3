//! The mutex and the condition variable, and the atomics of what the schedules check.
//!
//! Under `--cfg shuttle` tests use those of the checker, with the same interface, so that the checker decides which
//! thread runs; under `--cfg simulated` mutex and condition variable are those of the simulator.

use std::sync::{Arc, Weak};

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[cfg(simulated)]
pub(crate) use lockson_world::{Condvar, Mutex, MutexGuard};

#[cfg(not(any(simulated, all(test, shuttle))))]
pub(crate) use of_the_system::{Condvar, Mutex, MutexGuard};

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[cfg(all(test, shuttle))]
pub(crate) use schedules::{Condvar, Mutex, MutexGuard};

#[cfg(not(any(simulated, all(test, shuttle))))]
mod of_the_system;
#[cfg(all(test, shuttle))]
mod schedules;

/// Adds one to those that exist. The ended ones go in time, so that their number stays in proportion.
pub(crate) fn remember<T>(all: &mut Vec<Weak<T>>, one: &Arc<T>) {
    if all.len() == all.capacity() {
        all.retain(|one| one.strong_count() > 0);
        all.reserve(all.len() + 1);
    }
    all.push(Arc::downgrade(one));
}
