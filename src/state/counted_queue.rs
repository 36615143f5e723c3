//! The threads of this process that wait for a part of a count, or for a lock, which is a count of one.
//!
//! The waiters stand in order of arrival, each with a wish.
//!
//! | a thread                            | asks Redis                                            |
//! |-------------------------------------|-------------------------------------------------------|
//! | is first, or all before want more   | when it comes, when it is rung, and from time to time |
//! | is rung: its wish fits what is free | once                                                  |
//! | waits behind a wish that is no greater | not                                                |

use std::collections::{VecDeque, hash_map};
use std::hash::Hash;

use crate::system::HashMap;

/// The queues of one client.
#[derive(Clone, Debug)]
pub(crate) struct CountedQueues<Key, Waiter> {
    next: u64,
    queues: HashMap<Key, VecDeque<QueueEntry<Waiter>>>,
}

#[derive(Clone, Debug)]
struct QueueEntry<Waiter> {
    number: u64,
    wish: u32,
    /// What was left for the waiter when it was rung, if it has not asked since.
    rung: Option<i64>,
    /// The number of the request that is under way, and what was left for the waiter when it asked.
    asks: Option<(u64, i64)>,
    /// Whether there was a hint since it asked last.
    is_hinted: bool,
    waiter: Waiter,
}

impl<Key: Clone + Hash + Eq, Waiter: Clone> CountedQueues<Key, Waiter> {
    /// Adds a waiter that wants `wish`. Returns its number, which is greater than all earlier numbers, but 0 for a
    /// waiter that came before all others, of which there is one at most.
    pub(crate) fn join(&mut self, key: &Key, wish: u32, waiter: Waiter, is_oldest: bool) -> u64 {
        self.next += 1;
        let number = if is_oldest { 0 } else { self.next };
        let entry = QueueEntry { number, wish, rung: None, asks: None, is_hinted: false, waiter };
        let queue = self.queues.entry(key.clone()).or_default();
        queue.insert(if is_oldest { 0 } else { queue.len() }, entry);
        number
    }

    /// Whether a waiter may ask: it was rung, or every waiter before wants more.
    pub(crate) fn may_ask(&self, key: &Key, number: u64) -> bool {
        let Some(queue) = self.queues.get(key) else { return true };
        let Ok(at) = queue.binary_search_by_key(&number, |entry| entry.number) else { return true };
        queue[at].rung.is_some() || is_let_through(queue, at)
    }

    /// The number of keys with waiters.
    pub(crate) fn keys(&self) -> usize {
        self.queues.len()
    }

    /// Returns the number of waiters.
    pub(crate) fn len(&self, key: &Key) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    /// Returns the waiter at this place, and the number of waiters.
    pub(crate) fn nth(&self, key: &Key, place: usize) -> Option<(&Waiter, usize)> {
        let queue = self.queues.get(key)?;
        Some((&queue.get(place)?.waiter, queue.len()))
    }

    /// Replaces what wakes a waiter.
    pub(crate) fn replace(&mut self, key: &Key, number: u64, waiter: Waiter) {
        if let Some(entry) = self.entry(key, number) {
            entry.waiter = waiter;
        }
    }

    /// Records that a waiter asks. A ring from now on is for its next request.
    pub(crate) fn asks(&mut self, key: &Key, number: u64) {
        self.next += 1;
        let question = self.next;
        if let Some(entry) = self.entry(key, number) {
            entry.asks = Some((question, entry.rung.take().unwrap_or_else(|| entry.wish.into())));
            entry.is_hinted = false;
        }
    }

    /// Records the answer "busy". Returns the waiters to wake, because `free` may suffice for them.
    #[must_use]
    pub(crate) fn answered(&mut self, key: &Key, number: u64, free: i64) -> Vec<Waiter> {
        let asked = self.entry(key, number).and_then(|entry| entry.asks.take());
        self.ring(key, free, asked)
    }

    /// Takes a message that `free` are free. Returns the waiters to wake: in order, each that wants at most what is
    /// left.
    #[must_use]
    pub(crate) fn free(&mut self, key: &Key, free: i64) -> Vec<Waiter> {
        self.ring(key, free, None)
    }

    /// Gives each waiter its part of the count that a message tells, or the answer to the request `asked`.
    fn ring(&mut self, key: &Key, free: i64, asked: Option<(u64, i64)>) -> Vec<Waiter> {
        let mut left = free;
        let mut wakes = vec![];
        for entry in self.queues.get_mut(key).into_iter().flatten() {
            if left <= 0 {
                break;
            }
            if i64::from(entry.wish) > left {
                continue;
            }
            // A waiter that was rung before, or that asked later than the request of an answer, gets its part of the
            // count, too. A message, or an answer to a later request, may be news to a waiter that asks.
            let knows = asked.zip(entry.asks).is_some_and(|((answered, _), (sent, _))| sent > answered);
            if entry.rung.is_none() && !knows {
                wakes.push(entry.waiter.clone());
                entry.rung = Some(left);
            } else {
                entry.rung = entry.rung.map(|before| before.max(left));
            }
            left -= i64::from(entry.wish);
        }
        wakes
    }

    /// Returns the waiters that may ask without a ring.
    pub(crate) fn hint(&mut self, key: &Key) -> Vec<Waiter> {
        let mut least = u32::MAX;
        let mut wakes = vec![];
        for entry in self.queues.get_mut(key).into_iter().flatten() {
            if entry.wish < least {
                least = entry.wish;
                entry.is_hinted = true;
                wakes.push(entry.waiter.clone());
            }
            if least == 1 {
                break;
            }
        }
        wakes
    }

    /// Removes a waiter. `free` is what its last answer left, if messages were heard while it asked. Returns the
    /// waiters to wake: waiters that `free` suffices for, waiters to which a ring passes, because the waiter that leaves
    /// was rung and has no answer, and waiters that it kept from asking.
    #[must_use]
    pub(crate) fn leave(&mut self, key: &Key, number: u64, free: Option<i64>) -> Vec<Waiter> {
        let hash_map::Entry::Occupied(mut same_key) = self.queues.entry(key.clone()) else { return vec![] };
        let queue = same_key.get_mut();
        let Ok(at) = queue.binary_search_by_key(&number, |entry| entry.number) else { return vec![] };
        let asked_unrung = is_let_through(queue, at);
        let Some(left) = queue.remove(at) else { return vec![] };
        // Its last answer may be older than a hint, such as that the lock was forced open since.
        let free = free.filter(|_| !left.is_hinted);
        if queue.is_empty() {
            same_key.remove();
            return vec![];
        }
        let mut wakes = free.map_or_else(Vec::new, |free| self.ring(key, free, left.asks));
        let passed_on = left.rung.max(left.asks.filter(|_| free.is_none()).map(|(_, left)| left));
        if let Some(passed_on) = passed_on {
            wakes.extend(self.ring(key, passed_on, None));
        }
        if free.is_none() && asked_unrung {
            wakes.extend(self.hint(key));
        }
        wakes
    }

    fn entry(&mut self, key: &Key, number: u64) -> Option<&mut QueueEntry<Waiter>> {
        let queue = self.queues.get_mut(key)?;
        let at = queue.binary_search_by_key(&number, |entry| entry.number).ok()?;
        queue.get_mut(at)
    }
}

/// Whether every waiter before this one wants more.
fn is_let_through<Waiter>(queue: &VecDeque<QueueEntry<Waiter>>, at: usize) -> bool {
    !queue.iter().take(at).any(|before| before.wish <= queue[at].wish)
}

impl<Key, Waiter> Default for CountedQueues<Key, Waiter> {
    fn default() -> Self {
        Self { next: 0, queues: HashMap::default() }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
