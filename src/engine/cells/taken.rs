//! The permits that this client has taken, to give them back when the client is closed.

use std::collections::BTreeMap;

use crate::name::LockName;
use crate::script::Call;
use crate::script::once::Once;
use crate::sync::Mutex;

/// The permits that one client has taken.
#[derive(Debug, Default)]
pub(crate) struct AllTaken(Mutex<Register>);

#[derive(Debug, Default)]
struct Register {
    next: u64,
    taken: BTreeMap<TakenTicket, TakenPermits>,
    /// Whether the client was closed; later grants are refused.
    closed: bool,
}

/// Identifies one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TakenTicket(u64);

/// One grant, and how it is given back.
#[derive(Clone, Debug)]
pub(crate) struct TakenPermits {
    pub(crate) name: LockName,
    pub(crate) permits: u32,
    pub(crate) give_back: GiveBack,
}

/// The request that gives so many permits back.
pub(crate) type GiveBack = fn(&LockName, &Once, i64) -> Call<()>;

/// All permits of one semaphore: its name, how they are given back, and how many they are.
pub(crate) type AllOfOne = (LockName, GiveBack, i64);

impl AllTaken {
    /// Records a grant; `None` after the client was closed.
    pub(crate) fn add(&self, taken: TakenPermits) -> Option<TakenTicket> {
        let mut register = self.0.lock();
        if register.closed {
            return None;
        }
        register.next += 1;
        let ticket = TakenTicket(register.next);
        register.taken.insert(ticket, taken);
        Some(ticket)
    }

    /// Removes a grant. Returns `false` if the close of the client has given it back.
    pub(crate) fn remove(&self, ticket: TakenTicket) -> bool {
        let taken = self.0.lock().taken.remove(&ticket);
        taken.is_some()
    }

    /// Refuses later grants. Returns the permits of each semaphore together.
    pub(crate) fn close(&self) -> Vec<AllOfOne> {
        let mut register = self.0.lock();
        register.closed = true;
        let taken = std::mem::take(&mut register.taken);
        drop(register);
        let mut sums: BTreeMap<LockName, (GiveBack, i64)> = BTreeMap::new();
        for TakenPermits { name, permits, give_back } in taken.into_values() {
            let (_, sum) = sums.entry(name).or_insert((give_back, 0));
            *sum = sum.saturating_add(permits.into());
        }
        sums.into_iter().map(|(name, (give_back, sum))| (name, give_back, sum)).collect()
    }
}
