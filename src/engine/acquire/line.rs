//! The local line in front of Redis: of the threads that want one lock, the first one asks.

use std::collections::{HashMap, VecDeque};

use crate::bell::Bell;
use crate::engine::kind::Queueing;
use crate::name::LockName;
use crate::sync::Mutex;

/// The lines of one client, one for each name that several threads want.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Queues>);

/// Who stands where; decides and does nothing else.
#[derive(Debug, Default)]
struct Queues {
    next: u64,
    queues: HashMap<LockName, VecDeque<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    bell: Bell,
}

/// A thread's place in a line, given up when dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    lines: &'a Lines,
    name: &'a LockName,
    number: u64,
}

impl Lines {
    /// Joins the line for `name` at its end; `None` for a kind whose threads do not line up.
    pub(crate) fn join<'a>(&'a self, name: &'a LockName, queueing: Queueing, bell: &Bell) -> Option<Place<'a>> {
        if queueing != Queueing::Line {
            return None;
        }
        let number = self.0.lock().join(name, bell);
        Some(Place { lines: self, name, number })
    }

    /// How many wait for `name`.
    pub(crate) fn len(&self, name: &LockName) -> usize {
        self.0.lock().queues.get(name).map_or(0, VecDeque::len)
    }

    /// Wakes whoever is first for `name`: the lock may be free.
    pub(crate) fn ring_first(&self, name: &LockName) {
        if let Some(first) = self.0.lock().first(name) {
            first.bell.ring();
        }
    }
}

#[cfg(all(test, shuttle))]
impl Place<'_> {
    /// Where it stands; whoever came later has more.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
impl Lines {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().queues.is_empty()
    }
}

impl Place<'_> {
    /// Whether this thread is the one to ask Redis.
    pub(crate) fn is_first(&self) -> bool {
        self.lines.0.lock().first(self.name).is_some_and(|first| first.number == self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let promoted = self.lines.0.lock().leave(self.name, self.number);
        if let Some(bell) = promoted {
            bell.ring();
        }
    }
}

impl Queues {
    fn join(&mut self, name: &LockName, bell: &Bell) -> u64 {
        self.next += 1;
        let waiter = Waiter { number: self.next, bell: bell.clone() };
        match self.queues.get_mut(name) {
            Some(queue) => queue.push_back(waiter),
            None => {
                self.queues.insert(name.clone(), VecDeque::from([waiter]));
            }
        }
        self.next
    }

    fn first(&self, name: &LockName) -> Option<&Waiter> {
        self.queues.get(name)?.front()
    }

    /// Takes a waiter out; answers with the bell of the one who is first because of that.
    fn leave(&mut self, name: &LockName, number: u64) -> Option<Bell> {
        let queue = self.queues.get_mut(name)?;
        let was_first = queue.front().is_some_and(|first| first.number == number);
        if was_first {
            queue.pop_front();
        } else {
            queue.retain(|waiter| waiter.number != number);
        }
        if queue.is_empty() {
            self.queues.remove(name);
            return None;
        }
        was_first.then(|| queue[0].bell.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> LockName {
        LockName::new("n").unwrap()
    }

    #[test]
    fn threads_are_served_in_the_order_they_came_and_nothing_stays() {
        let (lines, name) = (Lines::default(), name());
        let join = || lines.join(&name, Queueing::Line, &Bell::new()).unwrap();
        let (first, second, third) = (join(), join(), join());
        assert_eq!((first.is_first(), second.is_first()), (true, false));
        drop(second);
        assert!(!third.is_first(), "leaving from the middle promotes nobody");
        drop(first);
        assert!(third.is_first());
        drop(third);
        assert!(lines.is_empty());
    }

    #[test]
    fn only_lines_make_threads_wait_for_each_other() {
        let (lines, name) = (Lines::default(), name());
        for queueing in [Queueing::Together, Queueing::InRedis] {
            assert!(lines.join(&name, queueing, &Bell::new()).is_none());
        }
    }

    proptest::proptest! {
        /// Of those who stay the oldest is first, and whoever becomes first is rung, nobody else.
        #[test]
        fn the_first_is_always_the_oldest_that_stayed(steps in proptest::collection::vec((0_u8..5, 0_usize..8), 1..80)) {
            let (lines, name) = (Lines::default(), name());
            let mut waiting: Vec<(Place<'_>, Bell)> = vec![];
            for (step, which) in steps {
                let first_before = waiting.first().map(|(place, _)| place.number);
                let mut rings = false;
                match step {
                    0 | 1 => {
                        let bell = Bell::new();
                        waiting.push((lines.join(&name, Queueing::Line, &bell).unwrap(), bell));
                    }
                    2 | 3 if !waiting.is_empty() => {
                        drop(waiting.remove(which % waiting.len()));
                        rings = waiting.first().is_some_and(|(place, _)| Some(place.number) != first_before);
                    }
                    _ => {
                        lines.ring_first(&name);
                        rings = true;
                    }
                }
                for (index, (place, bell)) in waiting.iter().enumerate() {
                    proptest::prop_assert_eq!(place.is_first(), index == 0);
                    proptest::prop_assert_eq!(bell.was_rung(), index == 0 && rings);
                }
            }
            drop(waiting);
            proptest::prop_assert!(lines.is_empty());
        }
    }
}
