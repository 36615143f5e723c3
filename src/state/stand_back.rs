//! Standing back: on a lock that other processes want too, each gets grants in proportion to its threads.
//!
//! A process whose threads line up here asks faster than one that has to be woken, so it would win every race after
//! its own releases. Each release of this process therefore puts what the others are owed on an account, and each
//! foreign release takes one grant off. Once every thread of this process had its turn, the process asks no more until
//! the others had what they are owed, or left the lock free for a moment. This module decides and does nothing else;
//! the waiter sleeps and looks.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::name::LockName;
use crate::time::Instant;

/// The accounts of one client: one for each lock that other clients want too.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    by_name: HashMap<LockName, Account>,
    /// How many there were after the last search for stale ones.
    kept: usize,
}

/// It is the others' turn: a thread that wants the lock waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// The pause ends here at the latest; a message may end it earlier.
    pub(crate) until: Instant,
    /// The thread is to look who holds the lock, if it has the time.
    pub(crate) looks: bool,
}

impl Accounts {
    /// Redis granted the lock to this process.
    pub(crate) fn granted(&mut self, name: &LockName, now: Instant) {
        self.with(name, |account| account.granted(now));
    }

    /// This process gave the lock back. `others` is how many other clients were told, if that is known; `threads` is how
    /// many threads of this process share its turns. Answers whether the turn of this process goes on.
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

    /// Another process gave the lock back.
    pub(crate) fn heard(&mut self, name: &LockName, now: Instant) {
        self.with(name, |account| account.heard(now));
    }

    /// A look at the lock found this owner, or nobody else's.
    pub(crate) fn looked(&mut self, name: &LockName, owner: Option<&str>, now: Instant) {
        self.with(name, |account| account.looked(owner.map(thread_of), now));
    }

    /// A look was not answered, or is not allowed.
    pub(crate) fn cannot_look(&mut self, name: &LockName, now: Instant) {
        self.with(name, |account| account.next_look = now.after(AFTER_A_FAILED_LOOK));
    }

    /// Whether a thread of this process is to wait before it asks for the lock.
    pub(crate) fn pause(&mut self, name: &LockName, now: Instant) -> Option<Pause> {
        self.with(name, |account| account.pause(now)).flatten()
    }

    /// How many accounts there are.
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
        // Each search is paid for by as many new accounts as it left.
        if self.by_name.len() >= FEW_ACCOUNTS.max(2 * self.kept) {
            self.by_name.retain(|_, account| account.sign.after(MEMORY) > now);
            self.kept = self.by_name.len();
        }
        self.by_name.insert(name.clone(), Account::new(now));
    }
}

/// The thread that an owner names: `<client>:<thread>`, to which this crate adds `.<hold>`.
fn thread_of(owner: &str) -> u64 {
    let (client, thread) = owner.rsplit_once(':').unwrap_or((owner, ""));
    let mut hasher = DefaultHasher::new();
    (client, thread.split('.').next()).hash(&mut hasher);
    hasher.finish()
}

/// What this process and the others had of one lock.
#[derive(Debug)]
struct Account {
    /// How many grants the others have to come; below zero, how many more of them they had than this process.
    owed: f64,
    /// What the others were owed when this process last began to stand back.
    owed_at_most: f64,
    granted: Option<Instant>,
    /// It is the others' turn.
    stands_back: bool,
    /// The last release by anybody: it woke those who wait.
    sign: Instant,
    /// Another process had the lock since the last release of this one.
    answered: bool,
    /// How many turns in a row the others left unused.
    unused: u32,
    /// How many other clients listened at the last release of this one.
    others: usize,
    /// The most threads that shared the present turn of this process, and the one before.
    threads: [usize; 2],
    /// Threads of others that were seen to hold the lock, and when; the latest is the last.
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
            // The others left the lock free although it was their turn: what they do not want is not owed.
            if !self.answered {
                self.unused = (self.unused + 1).min(MOST_UNUSED);
            }
            self.owed = 0.0;
            self.stands_back = false;
        }
        self.granted = Some(now);
    }

    /// Answers with the number of foreign threads that seem to want the lock.
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
        // Credit is limited, so that a process which comes late does not take everything for long.
        let most_credit = 4.0 * self.owed_at_most.max(self.rivals(now) as f64);
        self.owed = (self.owed - 1.0).max(-most_credit);
        self.sign = now;
        self.answered = true;
        self.unused = 0;
        if self.stands_back && self.owed < HALF_A_GRANT {
            self.stands_back = false;
        }
    }

    /// How often each thread of this process may have the lock before the others have their turn.
    fn rounds(&self, now: Instant) -> f64 {
        let held = self.granted.map_or(Duration::ZERO, |granted| granted.until(now)).max(SHORTEST_HOLD);
        let round = held.as_secs_f64() * self.shared_by() as f64;
        // Turns that the others leave unused become rare, so that a listener that wants nothing costs little.
        let turn = SHORTEST_TURN * (1 << self.unused);
        (turn.as_secs_f64() / round).max(1.0)
    }

    fn looked(&mut self, thread: Option<u64>, now: Instant) {
        self.next_look = now.after(BETWEEN_LOOKS);
        if let Some(thread) = thread {
            // At changing intervals: threads that hold in turn would else be the same ones at each look.
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

    /// How long the lock may be free while it is the others' turn.
    fn patience(&self) -> Duration {
        match self.others {
            // The count misses those who poll and those who listen at a replica: a shorter pause, but not none.
            0 => PATIENCE_WITHOUT_LISTENERS,
            _ => PATIENCE + MORE_AFTER_UNUSED * self.unused,
        }
    }

    /// How many threads of other processes seem to want the lock.
    fn rivals(&mut self, now: Instant) -> usize {
        while self.seen.front().is_some_and(|(_, at)| at.after(MEMORY) <= now) {
            self.seen.pop_front();
        }
        let mut threads: Vec<u64> = self.seen.iter().map(|(thread, _)| *thread).collect();
        threads.sort_unstable();
        threads.dedup();
        // Until enough was seen, another client is taken to be like this one.
        let each = if self.seen.len() < FEW_SEEN { self.shared_by() } else { 1 };
        threads.len().max(self.others * each)
    }

    /// How many threads share the turns of this process. At a release some may be on their way back to the line.
    fn shared_by(&self) -> usize {
        self.threads[0].max(self.threads[1]).max(1)
    }
}

/// A turn lasts at least so long: passing a lock that is held for microseconds from process to process each time
/// would cost more than the holds.
const SHORTEST_TURN: Duration = Duration::from_millis(2);
/// The time between two grants is not much shorter.
const SHORTEST_HOLD: Duration = Duration::from_micros(100);
/// A waiter of Redisson needs 2 to 3 ms from a message to its question, more on a busy machine.
const PATIENCE: Duration = Duration::from_millis(4);
const PATIENCE_WITHOUT_LISTENERS: Duration = Duration::from_millis(1);
/// A peer on a slower machine may need more than the usual patience.
const MORE_AFTER_UNUSED: Duration = Duration::from_millis(1);
/// The pauses are then 9 ms long, and the turns between them at least 64 ms.
const MOST_UNUSED: u32 = 5;
const HALF_A_GRANT: f64 = 0.5;
/// After a release the next holder is not there at once.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
const AFTER_A_FAILED_LOOK: Duration = Duration::from_secs(60);
const FEW_SEEN: usize = 8;
const MOST_SEEN: usize = 32;
/// Who was not seen for so long does not want the lock any more.
const MEMORY: Duration = Duration::from_secs(10);
const FEW_ACCOUNTS: usize = 256;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
