//! One thing for each server of a client, made at the first use.

use std::sync::Arc;

use crate::sync::Mutex;
use crate::transport::ServerNumber;

/// The things that were made, each at the number of its server.
pub(crate) struct PerServer<T>(Mutex<Vec<Option<Arc<T>>>>);

impl<T> PerServer<T> {
    pub(crate) fn get(&self, server: ServerNumber, make: impl FnOnce() -> T) -> Arc<T> {
        let ServerNumber(number) = server;
        let mut all = self.0.lock();
        if all.len() <= number {
            all.resize_with(number + 1, || None);
        }
        Arc::clone(all[number].get_or_insert_with(|| Arc::new(make())))
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().iter().flatten().cloned().collect()
    }
}

impl<T> Default for PerServer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
