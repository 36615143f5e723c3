//! The queues of the process's threads that want a lock, or a part of a count, and how they wake.

use std::sync::Arc;

use crate::bell::Bell;
use crate::engine::cells::successor::Successor;
use crate::name::LockName;
use crate::state::counted_queue::CountedQueues;
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// The queues of one client: for locks, whose waiters want one each, or for counts.
#[derive(Default)]
pub(crate) struct Queues {
    by_name: Mutex<CountedQueues<LockName, QueuedThread>>,
    /// The number of names with threads; read without the mutex, so that a release to which nobody waits costs nothing.
    names: AtomicUsize,
}

/// What wakes a thread in a queue, and what a release can hand the lock to.
#[derive(Clone)]
struct QueuedThread {
    bell: Bell,
    successor: Option<Arc<Successor>>,
}

/// The place of a thread in a queue; dropping it leaves the queue.
pub(crate) struct Position<'a> {
    queues: &'a Queues,
    name: LockName,
    number: u64,
    /// What the last answer left, if messages were heard while the thread asked.
    left: Option<i64>,
}

impl Queues {
    /// Joins the queue: at its end, or before all others as the thread that asked ahead of them.
    pub(crate) fn join(&self, name: LockName, wish: u32, bell: &Bell, was_ahead: bool) -> Position<'_> {
        let waiter = QueuedThread { bell: bell.clone(), successor: None };
        let number = self.change(|queues| queues.join(&name, wish, waiter, was_ahead));
        Position { queues: self, name, number, left: None }
    }

    /// Wakes the threads that may ask, because a part may be free.
    pub(crate) fn hint(&self, name: &LockName) {
        if !self.is_empty() {
            let wakes = self.by_name.lock().hint(name);
            ring(&wakes);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.load(Ordering::Acquire) == 0
    }

    /// Lets threads come or go.
    fn change<T>(&self, change: impl FnOnce(&mut CountedQueues<LockName, QueuedThread>) -> T) -> T {
        let mut queues = self.by_name.lock();
        let answer = change(&mut queues);
        self.names.store(queues.keys(), Ordering::Release);
        answer
    }

    /// Wakes in order those that want at most what is left of `free`.
    pub(crate) fn free(&self, name: &LockName, free: i64) {
        let wakes = self.by_name.lock().free(name, free);
        ring(&wakes);
    }

    /// The first thread in the queue, if a release may hand the lock to it, and the number of threads.
    pub(crate) fn first(&self, name: &LockName) -> Option<(Arc<Successor>, usize)> {
        if self.is_empty() {
            return None;
        }
        let queues = self.by_name.lock();
        let (waiter, waiting) = queues.nth(name, 0)?;
        Some((waiter.successor.clone()?, waiting))
    }

    /// Whether threads of this process wait for the lock.
    pub(crate) fn has(&self, name: &LockName) -> bool {
        !self.is_empty() && self.by_name.lock().len(name) > 0
    }

    /// Takes a message. A payload that is no number, or suffices for no thread, wakes the threads that may ask anyway:
    /// Redisson tells how many expiring permits were added or came back, not how many are free.
    pub(crate) fn message(&self, name: &LockName, payload: &[u8]) {
        let free = std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok());
        let mut queues = self.by_name.lock();
        let mut wakes = free.map_or_else(Vec::new, |free| queues.free(name, free));
        if wakes.is_empty() && free.is_none_or(|free| free > 0) {
            wakes = queues.hint(name);
        }
        drop(queues);
        ring(&wakes);
    }
}

impl Position<'_> {
    /// Whether a release can hand the lock to the second thread in the queue.
    pub(crate) fn next_is_successor(&self) -> bool {
        self.queues.by_name.lock().nth(&self.name, 1).is_some_and(|(waiter, _)| waiter.successor.is_some())
    }

    /// Lets a release hand the lock to this thread while the thread sleeps.
    pub(crate) fn succeeds_as(&self, successor: &Arc<Successor>) {
        let waiter = QueuedThread { bell: successor.bell.clone(), successor: Some(Arc::clone(successor)) };
        self.queues.by_name.lock().replace(&self.name, self.number, waiter);
    }

    pub(crate) fn may_ask(&self) -> bool {
        self.queues.by_name.lock().may_ask(&self.name, self.number)
    }

    /// The number of threads in the queue.
    pub(crate) fn threads(&self) -> usize {
        self.queues.by_name.lock().len(&self.name)
    }

    pub(crate) fn asks(&mut self) {
        self.left = None;
        self.queues.by_name.lock().asks(&self.name, self.number);
    }

    /// Takes the answer "busy".
    pub(crate) fn answered(&self, free: i64) {
        let wakes = self.queues.by_name.lock().answered(&self.name, self.number, free);
        ring(&wakes);
    }

    /// Takes a grant that left `free`. With `heard`, no message after the answer is missed, so nobody need ask again.
    pub(crate) fn granted(&mut self, free: i64, heard: bool) {
        self.left = heard.then_some(free);
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        let wakes = self.queues.change(|queues| queues.leave(&self.name, self.number, self.left));
        ring(&wakes);
    }
}

fn ring(wakes: &[QueuedThread]) {
    wakes.iter().for_each(|waiter| waiter.bell.ring());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(shuttle)]
    impl Position<'_> {
        /// The number of the place; later threads have greater numbers.
        pub(crate) fn number(&self) -> u64 {
            self.number
        }
    }

    proptest::proptest! {
        /// Of equal wishes the oldest may ask, and only a thread that becomes the first is woken.
        #[test]
        fn the_first_is_always_the_oldest_that_stayed(steps in proptest::collection::vec((0_u8..5, 0_usize..8), 1..80)) {
            let (queues, name) = (Queues::default(), LockName::new("n").unwrap());
            let mut waiting: Vec<(Position<'_>, Bell)> = vec![];
            for (step, which) in steps {
                let first_before = waiting.first().map(|(place, _)| place.number);
                let mut rings = false;
                match step {
                    0 | 1 => {
                        let bell = Bell::new();
                        waiting.push((queues.join(name.clone(), 1, &bell, false), bell));
                    }
                    2 | 3 if !waiting.is_empty() => {
                        drop(waiting.remove(which % waiting.len()));
                        rings = waiting.first().is_some_and(|(place, _)| Some(place.number) != first_before);
                    }
                    _ => {
                        queues.hint(&name);
                        rings = true;
                    }
                }
                for (index, (place, bell)) in waiting.iter().enumerate() {
                    proptest::prop_assert_eq!(place.may_ask(), index == 0);
                    proptest::prop_assert_eq!(bell.was_rung(), index == 0 && rings);
                }
            }
            drop(waiting);
            proptest::prop_assert!(queues.is_empty());
        }
    }
}
