//! The permits that this client has taken, to give them back when the client is closed.

use std::collections::BTreeMap;

use crate::name::LockName;
use crate::sync::Mutex;

/// The permits that one client has taken.
#[derive(Debug, Default)]
pub(crate) struct AllTaken(Mutex<Register>);

#[derive(Debug, Default)]
struct Register {
    next: u64,
    taken: BTreeMap<TakenTicket, (LockName, u32)>,
    /// Whether the client was closed; later grants are refused.
    closed: bool,
}

/// Identifies one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TakenTicket(u64);

impl AllTaken {
    /// Records a grant; `None` after the client was closed.
    pub(crate) fn add(&self, name: &LockName, permits: u32) -> Option<TakenTicket> {
        let mut register = self.0.lock();
        if register.closed {
            return None;
        }
        register.next += 1;
        let ticket = TakenTicket(register.next);
        register.taken.insert(ticket, (name.clone(), permits));
        Some(ticket)
    }

    /// Removes a grant. Returns `false` if the close of the client has given it back.
    pub(crate) fn remove(&self, ticket: TakenTicket) -> bool {
        let taken = self.0.lock().taken.remove(&ticket);
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
