//! The threads of this process that want a lock, in order of arrival; the first thread asks Redis.

use std::collections::{HashMap, VecDeque};

use crate::name::LockName;

/// The queues of one client, one for each lock that several threads want.
#[derive(Debug)]
pub(crate) struct Queues<Waiter> {
    next: u64,
    queues: HashMap<LockName, VecDeque<(u64, Waiter)>>,
}

impl<Waiter: Clone> Queues<Waiter> {
    /// Adds a waiter. Returns its number, which is greater than all earlier numbers.
    pub(crate) fn join(&mut self, name: &LockName, waiter: Waiter) -> u64 {
        self.next += 1;
        match self.queues.get_mut(name) {
            Some(queue) => queue.push_back((self.next, waiter)),
            None => {
                self.queues.insert(name.clone(), VecDeque::from([(self.next, waiter)]));
            }
        }
        self.next
    }

    /// Returns the first waiter, with its number.
    pub(crate) fn first(&self, name: &LockName) -> Option<&(u64, Waiter)> {
        self.queues.get(name)?.front()
    }

    /// Returns the number of waiters.
    pub(crate) fn len(&self, name: &LockName) -> usize {
        self.queues.get(name).map_or(0, VecDeque::len)
    }

    /// Removes a waiter. Returns the waiter that becomes the first and must be woken.
    pub(crate) fn leave(&mut self, name: &LockName, number: u64) -> Option<Waiter> {
        let queue = self.queues.get_mut(name)?;
        let was_first = queue.front().is_some_and(|(first, _)| *first == number);
        if was_first {
            queue.pop_front();
        } else {
            queue.retain(|(other, _)| *other != number);
        }
        if queue.is_empty() {
            self.queues.remove(name);
            return None;
        }
        was_first.then(|| queue[0].1.clone())
    }
}

impl<Waiter> Default for Queues<Waiter> {
    fn default() -> Self {
        Self { next: 0, queues: HashMap::new() }
    }
}

#[cfg(test)]
impl<Waiter> Queues<Waiter> {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}
