//! Wakes a waiting thread; a ring before the sleep ends the sleep at once.

use std::sync::Arc;

use crate::sync::{Condvar, Mutex};
use crate::system::HashMap;
use crate::time::{Instant, wait_until};

/// The bell of one waiting thread. A ring is only a hint to check again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bell(Arc<Stroke>);

#[derive(Debug, Default)]
struct Stroke {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn ring(&self) {
        *self.0.rung.lock() = true;
        self.0.changed.notify_one();
    }

    /// Sleeps until the bell rings or `until`.
    pub(crate) fn wait(&self, until: Instant) {
        *wait_until(&self.0.changed, self.0.rung.lock(), until, |rung| *rung) = false;
    }
}

/// A set of bells that ring together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bells(Arc<Mutex<Rack>>);

#[derive(Debug, Default)]
struct Rack {
    next: u64,
    bells: HashMap<u64, Bell>,
}

impl Bells {
    /// Adds a bell; dropping the result removes the bell.
    pub(crate) fn hang(&self, bell: &Bell) -> Hung {
        let mut rack = self.0.lock();
        rack.next += 1;
        let number = rack.next;
        rack.bells.insert(number, bell.clone());
        Hung { bells: self.clone(), number }
    }

    pub(crate) fn ring_all(&self) {
        for bell in self.0.lock().bells.values() {
            bell.ring();
        }
    }
}

/// A bell in a set.
pub(crate) struct Hung {
    bells: Bells,
    number: u64,
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.bells.0.lock().bells.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Bell {
        /// Whether the bell rang since the last check.
        pub(crate) fn was_rung(&self) -> bool {
            std::mem::take(&mut *self.0.rung.lock())
        }
    }
}
