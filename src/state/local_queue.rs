//! Which thread of this process asks Redis for a lock: of those that want it, the one that came first.

use std::collections::{HashMap, VecDeque};

use crate::name::LockName;

/// The queues of one client, one for each name that several threads want.
#[derive(Debug)]
pub(crate) struct Queues<Waiter> {
    next: u64,
    queues: HashMap<LockName, VecDeque<(u64, Waiter)>>,
}

impl<Waiter: Clone> Queues<Waiter> {
    /// A waiter comes; answers with its number, which is greater than all before.
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

    /// The waiter that asks, and its number.
    pub(crate) fn first(&self, name: &LockName) -> Option<&(u64, Waiter)> {
        self.queues.get(name)?.front()
    }

    /// How many wait for `name`.
    pub(crate) fn len(&self, name: &LockName) -> usize {
        self.queues.get(name).map_or(0, VecDeque::len)
    }

    /// A waiter goes; answers with the one that is first because of that, and is to be woken.
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
