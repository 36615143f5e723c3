//! Standing back: processes that want the same lock get grants in proportion to their threads.
//!
//! A process with threads in the local queue asks faster than a process that must be woken, so the releasing process
//! would win every race after its own releases. Therefore each release of this process adds to an account of grants
//! that other processes are owed, and each release by another process takes a grant off. After a turn of all its
//! threads, this process stops asking until the other processes had the grants they are owed, or left the lock free
//! for a moment. This module only decides; the waiter sleeps and checks.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::name::LockName;
use crate::time::Instant;

/// The accounts of one client: an account for each lock that other clients want, too.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    by_name: HashMap<LockName, Account>,
    /// The number of accounts after the last search for stale accounts.
    kept: usize,
}

/// Other processes have their turn, so a thread that wants the lock waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// The latest end of the pause; a message may end the pause earlier.
    pub(crate) until: Instant,
    /// The thread should check the owner of the lock, if time permits.
    pub(crate) looks: bool,
}

impl Accounts {
    /// Records a grant to this process.
    pub(crate) fn granted(&mut self, name: &LockName, now: Instant) {
        self.with(name, |account| account.granted(now));
    }

    /// Records a release by this process. `others` is the number of other clients that received the message, if
    /// known; `threads` is the number of threads that share the turns of this process. Returns whether the turn of
    /// this process goes on.
    pub(crate) fn released(
        &mut self,
        name: &LockName,
        others: Option<usize>,
        threads: impl FnOnce() -> usize,
        now: Instant,
    ) -> bool {
        if others.is_some_and(|others| others > 0) {
            self.open(name, now);
        }
        let Some(account) = self.by_name.get_mut(name) else { return true };
        let rivals = account.released(others, threads(), now);
        let goes_on = !account.stands_back;
        if rivals == 0 {
            self.by_name.remove(name);
        }
        goes_on
    }

    /// Records a release by another process.
    pub(crate) fn heard(&mut self, name: &LockName, now: Instant) {
        self.with(name, |account| account.heard(now));
    }

    /// Records the owner that a check found, or `None` for an owner of this process.
    pub(crate) fn looked(&mut self, name: &LockName, owner: Option<&str>, now: Instant) {
        self.with(name, |account| account.looked(owner.map(thread_of), now));
    }

    /// Records a check that failed or is not allowed.
    pub(crate) fn cannot_look(&mut self, name: &LockName, now: Instant) {
        self.with(name, |account| account.next_look = now.after(AFTER_A_FAILED_LOOK));
    }

    /// Returns a pause if a thread of this process must wait before it asks for the lock.
    pub(crate) fn pause(&mut self, name: &LockName, now: Instant) -> Option<Pause> {
        self.with(name, |account| account.pause(now)).flatten()
    }

    /// The number of accounts.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    fn with<T>(&mut self, name: &LockName, work: impl FnOnce(&mut Account) -> T) -> Option<T> {
        self.by_name.get_mut(name).map(work)
    }

    fn open(&mut self, name: &LockName, now: Instant) {
        if self.by_name.contains_key(name) {
            return;
        }
        // Searches are rare enough: the number of accounts has doubled since the last search.
        if self.by_name.len() >= FEW_ACCOUNTS.max(2 * self.kept) {
            self.by_name.retain(|_, account| account.sign.after(MEMORY) > now);
            self.kept = self.by_name.len();
        }
        self.by_name.insert(name.clone(), Account::new(now));
    }
}

/// Identifies the thread of an owner: `<client>:<thread>`, to which this crate adds `.<hold>`.
fn thread_of(owner: &str) -> u64 {
    let (client, thread) = owner.rsplit_once(':').unwrap_or((owner, ""));
    let mut hasher = DefaultHasher::new();
    (client, thread.split('.').next()).hash(&mut hasher);
    hasher.finish()
}

/// The grants of this process and of other processes for one lock.
#[derive(Debug)]
struct Account {
    /// The number of grants that other processes are owed; negative if they had more than their share.
    owed: f64,
    /// The value of `owed` when this process began to stand back last.
    owed_at_most: f64,
    granted: Option<Instant>,
    /// Whether other processes have their turn.
    stands_back: bool,
    /// The last release by any process, which woke the waiters.
    sign: Instant,
    /// Whether another process had the lock since the last release of this process.
    answered: bool,
    /// The number of turns in a row that other processes left unused.
    unused: u32,
    /// The number of other clients that received the message of the last release.
    others: usize,
    /// The largest number of threads in the present turn of this process, and in the turn before.
    threads: [usize; 2],
    /// Threads of other processes that were seen to hold the lock, with the times; the latest is last.
    seen: VecDeque<(u64, Instant)>,
    next_look: Instant,
    sights: u32,
}

impl Account {
    fn new(now: Instant) -> Self {
        Self {
            owed: 0.0,
            owed_at_most: 0.0,
            granted: None,
            stands_back: false,
            sign: now,
            answered: false,
            unused: 0,
            others: 0,
            threads: [0; 2],
            seen: VecDeque::new(),
            next_look: now,
            sights: 0,
        }
    }

    fn granted(&mut self, now: Instant) {
        if self.stands_back {
            // Other processes left the lock free in their turn, so they are owed no grant.
            if !self.answered {
                self.unused = (self.unused + 1).min(MOST_UNUSED);
            }
            self.owed = 0.0;
            self.stands_back = false;
        }
        self.granted = Some(now);
    }

    /// Returns the estimated number of threads of other processes that want the lock.
    fn released(&mut self, others: Option<usize>, threads: usize, now: Instant) -> usize {
        self.others = others.unwrap_or(self.others);
        self.threads[0] = self.threads[0].max(threads);
        self.sign = now;
        self.answered = false;
        self.next_look = self.next_look.max(now.after(BETWEEN_LOOKS));
        let rivals = self.rivals(now);
        self.owed += rivals as f64 / self.shared_by() as f64;
        if self.owed > self.rounds(now) * rivals as f64 - HALF_A_GRANT {
            self.stands_back = true;
            self.owed_at_most = self.owed;
            self.threads = [0, self.threads[0]];
        }
        rivals
    }

    fn heard(&mut self, now: Instant) {
        // Credit is limited, so that a process that arrives late does not get every grant for long.
        let most_credit = 4.0 * self.owed_at_most.max(self.rivals(now) as f64);
        self.owed = (self.owed - 1.0).max(-most_credit);
        self.sign = now;
        self.answered = true;
        self.unused = 0;
        if self.stands_back && self.owed < HALF_A_GRANT {
            self.stands_back = false;
        }
    }

    /// The number of grants for each thread of this process in one turn.
    fn rounds(&self, now: Instant) -> f64 {
        let held = self.granted.map_or(Duration::ZERO, |granted| granted.until(now)).max(SHORTEST_HOLD);
        let round = held.as_secs_f64() * self.shared_by() as f64;
        // Turns for other processes become rarer when unused, so that a listener that does not want the lock costs
        // little.
        let turn = SHORTEST_TURN * (1 << self.unused);
        (turn.as_secs_f64() / round).max(1.0)
    }

    fn looked(&mut self, thread: Option<u64>, now: Instant) {
        self.next_look = now.after(BETWEEN_LOOKS);
        if let Some(thread) = thread {
            // The interval changes: with a constant interval, threads that hold in rotation would hide each other.
            self.sights = (self.sights + 5) % 8;
            self.next_look = now.after(BETWEEN_LOOKS * (1 + self.sights));
            self.seen.push_back((thread, now));
            if self.seen.len() > MOST_SEEN {
                self.seen.pop_front();
            }
        }
    }

    fn pause(&mut self, now: Instant) -> Option<Pause> {
        let end = self.sign.after(self.patience());
        if !self.stands_back || end <= now {
            return None;
        }
        let looks = self.next_look <= now;
        Some(Pause { until: if looks { end } else { end.min(self.next_look) }, looks })
    }

    /// The time for which the lock may stay free in the turn of other processes.
    fn patience(&self) -> Duration {
        match self.others {
            // The count misses clients that poll and clients that listen at a replica, so the pause is shorter but
            // not zero.
            0 => PATIENCE_WITHOUT_LISTENERS,
            _ => PATIENCE + MORE_AFTER_UNUSED * self.unused,
        }
    }

    /// The estimated number of threads of other processes that want the lock.
    fn rivals(&mut self, now: Instant) -> usize {
        while self.seen.front().is_some_and(|(_, at)| at.after(MEMORY) <= now) {
            self.seen.pop_front();
        }
        let mut threads: Vec<u64> = self.seen.iter().map(|(thread, _)| *thread).collect();
        threads.sort_unstable();
        threads.dedup();
        // With few observations, another client is assumed to have as many threads as this client.
        let each = if self.seen.len() < FEW_SEEN { self.shared_by() } else { 1 };
        threads.len().max(self.others * each)
    }

    /// The number of threads that share the turns of this process. At a release some threads may be about to queue
    /// again.
    fn shared_by(&self) -> usize {
        self.threads[0].max(self.threads[1]).max(1)
    }
}

/// The shortest turn: passing a lock with holds of microseconds to another process after each release would cost more
/// than the holds.
const SHORTEST_TURN: Duration = Duration::from_millis(2);
/// The shortest time between two grants.
const SHORTEST_HOLD: Duration = Duration::from_micros(100);
/// A waiter of Redisson needs 2 to 3 ms from a message to its request, more on a busy machine.
const PATIENCE: Duration = Duration::from_millis(4);
const PATIENCE_WITHOUT_LISTENERS: Duration = Duration::from_millis(1);
/// A peer on a slower machine may need more than the usual patience.
const MORE_AFTER_UNUSED: Duration = Duration::from_millis(1);
/// With this limit the pauses are at most 9 ms long, and the turns between them at least 64 ms.
const MOST_UNUSED: u32 = 5;
const HALF_A_GRANT: f64 = 0.5;
/// The next holder appears a moment after a release.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
const AFTER_A_FAILED_LOOK: Duration = Duration::from_secs(60);
const FEW_SEEN: usize = 8;
const MOST_SEEN: usize = 32;
/// A thread that was not seen for this time does not want the lock any more.
const MEMORY: Duration = Duration::from_secs(10);
const FEW_ACCOUNTS: usize = 256;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
