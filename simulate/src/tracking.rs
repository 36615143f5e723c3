//! Who is told that a key has changed: `CLIENT TRACKING` with `REDIRECT` and `NOLOOP`, as Redis 7.0 does it.

use std::collections::{BTreeMap, BTreeSet};

/// The connections that watch what they read.
#[derive(Debug, Default)]
pub struct Tracking(BTreeMap<u64, Tracked>);

#[derive(Debug, Default)]
struct Tracked {
    /// The connection that gets the messages.
    redirect: u64,
    keys: BTreeSet<Vec<u8>>,
}

impl Tracking {
    /// The connection watches from now on what it reads.
    pub fn begin(&mut self, connection: u64, redirect: u64) {
        self.0.entry(connection).or_default().redirect = redirect;
    }

    /// The connection has ended.
    pub fn end(&mut self, connection: u64) {
        self.0.remove(&connection);
    }

    /// The connection has read these keys.
    pub fn read(&mut self, connection: u64, keys: &[Vec<u8>]) {
        if let Some(tracked) = self.0.get_mut(&connection) {
            tracked.keys.extend(keys.iter().cloned());
        }
    }

    /// Returns which connections are told that the key was changed by a connection, or expired.
    pub fn changed(&mut self, key: &[u8], by: Option<u64>) -> Vec<u64> {
        let watching = self.0.iter_mut().filter_map(|(connection, tracked)| {
            (tracked.keys.remove(key) && Some(*connection) != by).then_some(tracked.redirect)
        });
        watching.collect()
    }

    /// Returns which connections are told that all keys are gone.
    pub fn flushed(&mut self) -> Vec<u64> {
        self.0.values_mut().for_each(|tracked| tracked.keys.clear());
        self.0.values().map(|tracked| tracked.redirect).collect()
    }
}
