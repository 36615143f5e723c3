//! The permits that this client has taken, to give them back when the client is closed.

use std::collections::BTreeMap;

use crate::name::LockName;
use crate::owner::HoldNumber;
use crate::sync::Mutex;

/// The permits that one client has taken.
#[derive(Debug, Default)]
pub(crate) struct AllTaken(Mutex<Register>);

#[derive(Debug, Default)]
struct Register {
    taken: BTreeMap<HoldNumber, (LockName, u32)>,
    /// Whether the client was closed; later grants are refused.
    closed: bool,
}

impl AllTaken {
    /// Records a grant. Returns `false` after the client was closed.
    pub(crate) fn add(&self, number: HoldNumber, name: &LockName, permits: u32) -> bool {
        let mut register = self.0.lock();
        if !register.closed {
            register.taken.insert(number, (name.clone(), permits));
        }
        !register.closed
    }

    /// Removes a grant. Returns `false` if the close of the client has given it back.
    pub(crate) fn remove(&self, number: HoldNumber) -> bool {
        let taken = self.0.lock().taken.remove(&number);
        taken.is_some()
    }

    /// Refuses later grants. Returns the permits of each semaphore together.
    pub(crate) fn close(&self) -> Vec<(LockName, i64)> {
        let mut register = self.0.lock();
        register.closed = true;
        let taken = std::mem::take(&mut register.taken);
        drop(register);
        let mut sums: BTreeMap<LockName, i64> = BTreeMap::new();
        for (name, permits) in taken.into_values() {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(permits.into());
        }
        sums.into_iter().collect()
    }
}
