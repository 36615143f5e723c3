//! Wakes a waiting thread; a ring before the sleep ends the sleep at once.

use std::sync::{Arc, Weak};

use crate::sync::{Condvar, Mutex, remember};
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

/// The bells that ring together, each for as long as it exists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bells(Arc<Mutex<Vec<Weak<Stroke>>>>);

impl Bells {
    pub(crate) fn hang(&self, bell: &Bell) {
        remember(&mut self.0.lock(), &bell.0);
    }

    pub(crate) fn ring_all(&self) {
        for stroke in self.0.lock().iter().filter_map(Weak::upgrade) {
            Bell(stroke).ring();
        }
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

    #[test]
    fn bells_that_are_gone_leave_nothing_that_grows() {
        let (bells, lasting) = (Bells::default(), [Bell::new(), Bell::new()]);
        bells.hang(&lasting[0]);
        (0..10_000).for_each(|_| bells.hang(&Bell::new()));
        bells.hang(&lasting[1]);
        assert!(bells.0.lock().capacity() < 20);
        bells.ring_all();
        assert!(lasting.iter().all(Bell::was_rung));
    }
}
