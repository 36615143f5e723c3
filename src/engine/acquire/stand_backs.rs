//! Standing back between processes, shared by the threads of one client.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::name::LockName;
use crate::state::stand_back::{Accounts, Pause};
use crate::sync::Mutex;
use crate::time::Instant;

/// The accounts of one client, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct StandBacks {
    accounts: Mutex<Accounts>,
    /// The number of accounts; read without the mutex, so that locks without other clients cost nothing.
    count: AtomicUsize,
}

impl StandBacks {
    /// Records a grant to this process.
    pub(crate) fn granted(&self, name: &LockName, now: Instant) {
        self.with(|accounts| accounts.granted(name, now));
    }

    /// Records a release by this process; see [`Accounts::released`].
    pub(crate) fn released(
        &self,
        name: &LockName,
        others: Option<usize>,
        threads: impl FnOnce() -> usize,
        now: Instant,
    ) -> bool {
        if others.is_none_or(|others| others == 0) && self.is_empty() {
            return true;
        }
        let mut accounts = self.accounts.lock();
        let goes_on = accounts.released(name, others, threads, now);
        self.count.store(accounts.len(), Ordering::Release);
        goes_on
    }

    /// Records a release by another process.
    pub(crate) fn heard(&self, name: &LockName, now: Instant) {
        self.with(|accounts| accounts.heard(name, now));
    }

    /// Records the owner that a check found, or `None` for an owner of this process.
    pub(crate) fn looked(&self, name: &LockName, owner: Option<&str>, now: Instant) {
        self.with(|accounts| accounts.looked(name, owner, now));
    }

    /// Records a check that failed or is not allowed.
    pub(crate) fn cannot_look(&self, name: &LockName, now: Instant) {
        self.with(|accounts| accounts.cannot_look(name, now));
    }

    /// Returns a pause if a thread of this process must wait before it asks for the lock.
    pub(crate) fn pause(&self, name: &LockName, now: Instant) -> Option<Pause> {
        self.with(|accounts| accounts.pause(name, now)).flatten()
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn with<T>(&self, work: impl FnOnce(&mut Accounts) -> T) -> Option<T> {
        (!self.is_empty()).then(|| work(&mut self.accounts.lock()))
    }
}
