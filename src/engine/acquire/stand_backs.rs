//! Whose turn it is between processes, for all threads of one client.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::name::LockName;
use crate::state::stand_back::{Accounts, Pause};
use crate::sync::Mutex;
use crate::time::Instant;

/// The accounts of one client, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct StandBacks {
    accounts: Mutex<Accounts>,
    /// How many accounts there are; read without the mutex, so that locks that nobody shares cost nothing.
    count: AtomicUsize,
}

impl StandBacks {
    /// Redis granted the lock to this process.
    pub(crate) fn granted(&self, name: &LockName, now: Instant) {
        self.with(|accounts| accounts.granted(name, now));
    }

    /// This process gave the lock back; see [`Accounts::released`].
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

    /// Another process gave the lock back.
    pub(crate) fn heard(&self, name: &LockName, now: Instant) {
        self.with(|accounts| accounts.heard(name, now));
    }

    /// A look at the lock found this owner, or nobody else's.
    pub(crate) fn looked(&self, name: &LockName, owner: Option<&str>, now: Instant) {
        self.with(|accounts| accounts.looked(name, owner, now));
    }

    /// A look was not answered, or is not allowed.
    pub(crate) fn cannot_look(&self, name: &LockName, now: Instant) {
        self.with(|accounts| accounts.cannot_look(name, now));
    }

    /// Whether a thread of this process is to wait before it asks for the lock.
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
