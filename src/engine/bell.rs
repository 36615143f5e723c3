//! Wakes a waiting thread; rung before it sleeps, it does not sleep at all.

use std::collections::HashMap;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use crate::time::Instant;

/// The bell of one waiting thread. Ringing is a hint to look again, nothing more.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    ring: Sender<()>,
    rung: Receiver<()>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        let (ring, rung) = bounded(1);
        Self { ring, rung }
    }

    pub(crate) fn ring(&self) {
        // A bell that still rings needs no second stroke.
        let _ = self.ring.try_send(());
    }

    /// Sleeps until it is rung or `until` has come.
    pub(crate) fn wait(&self, until: Instant) {
        // Either way the sleeper looks for itself.
        let _ = self.rung.recv_timeout(Instant::now().until(until));
    }
}

/// Bells that are rung together.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<Rack>);

#[derive(Debug, Default)]
struct Rack {
    next: u64,
    bells: HashMap<u64, Bell>,
}

impl Bells {
    /// Hangs a bell; it is taken down when the answer is dropped.
    pub(crate) fn hang<'a>(&'a self, bell: &Bell) -> Hung<'a> {
        let mut rack = self.0.lock();
        rack.next += 1;
        let number = rack.next;
        rack.bells.insert(number, bell.clone());
        Hung { bells: self, number }
    }

    pub(crate) fn ring_all(&self) {
        for bell in self.0.lock().bells.values() {
            bell.ring();
        }
    }
}

/// A bell in its place.
#[derive(Debug)]
pub(crate) struct Hung<'a> {
    bells: &'a Bells,
    number: u64,
}

impl Drop for Hung<'_> {
    fn drop(&mut self) {
        self.bells.0.lock().bells.remove(&self.number);
    }
}
