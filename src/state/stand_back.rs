//! Standing back: processes that want the same lock or the same permits take turns.
//!
//! A process with waiting threads asks faster than a process that must be woken, so the releasing process would win
//! every race after its own releases. Therefore a process has a turn: a grant for each thread that waited when the turn
//! began, and at least 2 ms. After the turn its threads do not ask until other processes had their part, by threads, or
//! left the lock free for a moment. This module only decides; the waiter sleeps and checks.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::system::HashMap;

use crate::name::LockName;
use crate::owner::ThreadNumber;
use crate::time::Instant;

/// The turns of one client: a turn for each lock that other clients want, too.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    by_name: HashMap<LockName, Turn>,
    /// The number of turns after the last search for stale turns.
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

/// The processes that may want a lock, as far as a release tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rivals {
    /// So many other clients received the message.
    Listen(usize),
    /// The release tells of no other process, or no thread waits for the released lock.
    Unknown,
    /// The kind has no messages: others may poll.
    MayPoll,
}

/// Holds of this process that follow each other without a message, while no other process is known to want the lock. The
/// chain ends when each thread that waited at its beginning could have its hold, but not before the shortest turn is over,
/// and after a while in any case. Then the release has a message, which tells of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    left: usize,
    began: Instant,
}

impl Chain {
    /// The chain with one more hold, or a new one while so many threads wait; `None` where the chain is over.
    pub(crate) fn next(chain: Option<Self>, waiting: usize, now: Instant) -> Option<Self> {
        let chain = chain.unwrap_or(Self { left: waiting, began: now });
        let most = if chain.left > 0 { LONGEST_CHAIN } else { SHORTEST_TURN };
        (now < chain.began.after(most)).then(|| Self { left: chain.left.saturating_sub(1), ..chain })
    }
}

impl Turns {
    /// Records a release by this process. Returns whether the turn of this process goes on.
    pub(crate) fn released(&mut self, name: &LockName, rivals: Rivals, now: Instant) -> bool {
        if !matches!(rivals, Rivals::Listen(0) | Rivals::Unknown) {
            self.open(name, now);
        }
        let Some(turn) = self.by_name.get_mut(name) else { return true };
        turn.released(rivals, now);
        if turn.rivals(now) == 0 {
            self.by_name.remove(name);
            return true;
        }
        !turn.is_over(now)
    }

    /// The number of turns.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Uses the turn at a lock, if other clients want the lock, too.
    pub(crate) fn with<T>(&mut self, name: &LockName, work: impl FnOnce(&mut Turn) -> T) -> Option<T> {
        self.by_name.get_mut(name).map(work)
    }

    fn open(&mut self, name: &LockName, now: Instant) {
        if self.by_name.contains_key(name) {
            return;
        }
        // Searches are rare enough: the number of turns has doubled since the last search.
        if self.by_name.len() >= FEW_TURNS.max(2 * self.kept) {
            self.by_name.retain(|_, turn| turn.sign.after(MEMORY) > now);
            self.kept = self.by_name.len();
        }
        self.by_name.insert(name.clone(), Turn::new(now));
    }
}

/// Identifies the thread of an owner: `<client>:<thread>`, to which this crate adds `.<hold>`.
fn thread_of(owner: &str) -> u64 {
    let (client, thread) = owner.rsplit_once(':').unwrap_or((owner, ""));
    let mut hasher = DefaultHasher::new();
    (client, thread.split('.').next()).hash(&mut hasher);
    hasher.finish()
}

/// The turn of this process at one lock, and what is known of the threads that want the lock.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    began: Instant,
    /// The grants of the turn: one for each thread that waited when the turn began, or in the turn before.
    quota: usize,
    grants: usize,
    /// The number of releases by this process since the turn began.
    releases: usize,
    /// The number of releases by other processes since the turn began.
    heard: i64,
    /// What other processes are owed from the turns before; negative if they had more than their part.
    debt: i64,
    /// The number of turns in a row after which other processes left the lock free.
    unused: u32,
    /// The last release by any process, which woke the waiters.
    sign: Instant,
    /// The waiting threads of this process, with the times at which they last wanted the lock.
    wanting: HashMap<ThreadNumber, Instant>,
    /// The largest number of waiting threads in the turn, without the threads that gave up: at its end some may be
    /// about to want the lock again.
    most_wanting: usize,
    /// The last known number of other clients that received a message, and the time.
    listeners: (usize, Instant),
    may_poll: bool,
    /// Threads of other processes that were seen to hold the lock, with the times; the latest is last.
    seen: VecDeque<(u64, Instant)>,
    next_look: Instant,
    sights: u32,
}

impl Turn {
    fn new(now: Instant) -> Self {
        // The release that opens the turn ends a grant.
        Self { began: now, grants: 1, sign: now, listeners: (0, now), next_look: now, ..Self::default() }
    }

    /// Whether each thread that waited had its grant.
    fn is_over(&self, now: Instant) -> bool {
        // Turns become longer while others leave the lock free, so that a listener that wants nothing costs little.
        self.grants >= self.quota && self.began.after(SHORTEST_TURN * (1 << self.unused)) <= now
    }

    /// Records that a thread wants the lock.
    pub(crate) fn wanted(&mut self, thread: ThreadNumber, now: Instant) {
        self.wanting.insert(thread, now);
        self.most_wanting = self.most_wanting.max(self.wanting.len());
    }

    /// Records that a thread does not want the lock any more.
    pub(crate) fn gave_up(&mut self, thread: ThreadNumber, _: Instant) {
        if self.wanting.remove(&thread).is_some() {
            self.most_wanting = self.most_wanting.saturating_sub(1);
        }
    }

    /// Records a grant to a thread of this process.
    pub(crate) fn granted(&mut self, thread: ThreadNumber, now: Instant) {
        // A thread that did not wait has no part in turns; several values of a group are one grant.
        if self.wanting.remove(&thread).is_none() {
            return;
        }
        if self.is_over(now) {
            self.unused = if self.heard == 0 { (self.unused + 1).min(MOST_UNUSED) } else { 0 };
            let (owed, before) = (self.owed(now), self.debt);
            // A debt is made up for in one turn, since processes that all have debts would wait for each other; and
            // others that left two turns in a row unused do not want the lock.
            let most = if self.unused > 1 { 0 } else { (owed - before - self.heard).max(0) };
            self.debt = (owed - self.heard).clamp(-MOST_CREDIT * (owed - before), most);
            self.wanting.retain(|_, at| at.after(MEMORY_OF_WAITERS) > now);
            let waiting = self.wanting.len() + 1;
            (self.began, self.quota, self.most_wanting) = (now, waiting.max(self.most_wanting), waiting);
            (self.grants, self.releases, self.heard) = (0, 0, 0);
        }
        self.grants += 1;
    }

    fn released(&mut self, rivals: Rivals, now: Instant) {
        match rivals {
            Rivals::Listen(others) => self.listeners = (others, now),
            Rivals::MayPoll => self.may_poll = true,
            Rivals::Unknown => return,
        }
        self.releases += 1;
        // Holders from before the turn, and threads that do not wait, would prolong a pause without end.
        if self.releases <= self.grants {
            self.sign = now;
            self.next_look = self.next_look.max(now.after(BETWEEN_LOOKS));
        }
    }

    /// Records a release by another process.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard += 1;
        self.sign = now;
    }

    /// Records a check that failed or is not possible.
    pub(crate) fn cannot_look(&mut self, now: Instant) {
        self.next_look = now.after(AFTER_A_FAILED_LOOK);
    }

    /// Records the owner that a check found, or `None` for an owner of this process.
    pub(crate) fn looked(&mut self, owner: Option<&str>, began: Instant, now: Instant) {
        // On a slow link a check takes longer than the pause.
        let rested = now.after(began.until(now).saturating_sub(PATIENCE) * REST_FOR_A_SLOW_LOOK);
        self.next_look = rested.after(BETWEEN_LOOKS);
        if let Some(owner) = owner {
            // The interval changes: with a constant interval, threads that hold in rotation would hide each other.
            self.sights = (self.sights + 5) % 8;
            self.next_look = rested.after(BETWEEN_LOOKS * (1 + self.sights));
            self.seen.push_back((thread_of(owner), now));
            if self.seen.len() > MOST_SEEN {
                self.seen.pop_front();
            }
        }
    }

    /// Returns a pause if this thread must wait before it asks for the lock.
    pub(crate) fn pause(&mut self, thread: ThreadNumber, now: Instant) -> Option<Pause> {
        self.wanted(thread, now);
        let end = self.sign.after(self.patience());
        if !self.is_over(now) || self.heard >= self.owed(now) || end <= now {
            return None;
        }
        let looks = self.next_look <= now;
        Some(Pause { until: if looks { end } else { end.min(self.next_look) }, looks })
    }

    /// The part of other processes for the grants of this turn, and for the turns before.
    fn owed(&mut self, now: Instant) -> i64 {
        let owed = (self.grants * self.rivals(now)).div_ceil(self.quota.max(1));
        self.debt + i64::try_from(owed).unwrap_or(i64::MAX / 4)
    }

    /// The time for which the lock may stay free in the turn of other processes.
    fn patience(&self) -> Duration {
        match self.listeners.0 {
            // The count misses clients that poll and clients that listen at a replica.
            0 => PATIENCE_WITHOUT_LISTENERS,
            _ if self.unused == 0 => PATIENCE,
            _ => 2 * PATIENCE,
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
        let each = if self.seen.len() < FEW_SEEN { self.quota.max(1) } else { 1 };
        let (listeners, at) = self.listeners;
        let listeners = if at.after(MEMORY) > now { listeners } else { 0 };
        threads.len().max(listeners.max(self.may_poll.into()) * each)
    }
}

/// The shortest turn: passing a lock with holds of microseconds to another process after each release would cost more
/// than the holds.
const SHORTEST_TURN: Duration = Duration::from_millis(2);
/// Beside holds as long as this a message costs nothing.
const LONGEST_CHAIN: Duration = Duration::from_millis(100);
/// A waiter of Redisson needs 2 to 4 ms from a message to its request, more on a busy machine.
const PATIENCE: Duration = Duration::from_millis(4);
/// As long as the first pause of Redisson's spin lock.
const PATIENCE_WITHOUT_LISTENERS: Duration = Duration::from_millis(1);
/// With this limit the turns between pauses of 8 ms are 64 ms long at least.
const MOST_UNUSED: u32 = 5;
/// So many turns of others that had too much are made up for.
const MOST_CREDIT: i64 = 4;
/// The next holder appears a moment after a release.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Checks on a slow link cost a tenth of the time.
const REST_FOR_A_SLOW_LOOK: u32 = 10;
const AFTER_A_FAILED_LOOK: Duration = Duration::from_secs(60);
const FEW_SEEN: usize = 8;
const MOST_SEEN: usize = 32;
/// A thread that was not seen for this time does not want the lock any more.
const MEMORY: Duration = Duration::from_secs(10);
/// A waiting thread of the process tells of the wait more often.
const MEMORY_OF_WAITERS: Duration = Duration::from_secs(2);
const FEW_TURNS: usize = 256;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
