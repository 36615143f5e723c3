//! The local queues: of the threads of this process that want a lock, the first thread asks Redis.

use crate::bell::Bell;
use crate::kinds::Queueing;
use crate::name::LockName;
use crate::state::local_queue::Queues;
use crate::sync::Mutex;

/// The local queues of one client, one for each lock that several threads want.
#[derive(Debug, Default)]
pub(crate) struct LocalQueues(Mutex<Queues<Bell>>);

/// The place of a thread in a local queue; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct QueuePosition<'a> {
    queues: &'a LocalQueues,
    name: &'a LockName,
    number: u64,
}

impl LocalQueues {
    /// Joins the local queue for `name`; `None` for a kind without local queues.
    pub(crate) fn join<'a>(&'a self, name: &'a LockName, queueing: Queueing, bell: &Bell) -> Option<QueuePosition<'a>> {
        if queueing != Queueing::Line {
            return None;
        }
        let number = self.0.lock().join(name, bell.clone());
        Some(QueuePosition { queues: self, name, number })
    }

    /// Wakes the first thread for `name`, because the lock may be free.
    pub(crate) fn ring_first(&self, name: &LockName) {
        if let Some((_, bell)) = self.0.lock().first(name) {
            bell.ring();
        }
    }
}

#[cfg(all(test, shuttle))]
impl QueuePosition<'_> {
    /// The number of the place; later threads have greater numbers.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
impl LocalQueues {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl QueuePosition<'_> {
    /// The number of threads in the queue.
    pub(crate) fn threads(&self) -> usize {
        self.queues.0.lock().len(self.name)
    }

    /// Whether this thread asks Redis.
    pub(crate) fn is_first(&self) -> bool {
        self.queues.0.lock().first(self.name).is_some_and(|(first, _)| *first == self.number)
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let promoted = self.queues.0.lock().leave(self.name, self.number);
        if let Some(bell) = promoted {
            bell.ring();
        }
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
        let (queues, name) = (LocalQueues::default(), name());
        let join = || queues.join(&name, Queueing::Line, &Bell::new()).unwrap();
        let (first, second, third) = (join(), join(), join());
        assert_eq!((first.is_first(), second.is_first()), (true, false));
        drop(second);
        assert!(!third.is_first(), "leaving from the middle promotes nobody");
        drop(first);
        assert!(third.is_first());
        drop(third);
        assert!(queues.is_empty());
    }

    #[test]
    fn only_lines_make_threads_wait_for_each_other() {
        let (queues, name) = (LocalQueues::default(), name());
        for queueing in [Queueing::Together, Queueing::InRedis] {
            assert!(queues.join(&name, queueing, &Bell::new()).is_none());
        }
    }

    proptest::proptest! {
        /// The oldest thread is first, and only a thread that becomes first is woken.
        #[test]
        fn the_first_is_always_the_oldest_that_stayed(steps in proptest::collection::vec((0_u8..5, 0_usize..8), 1..80)) {
            let (queues, name) = (LocalQueues::default(), name());
            let mut waiting: Vec<(QueuePosition<'_>, Bell)> = vec![];
            for (step, which) in steps {
                let first_before = waiting.first().map(|(place, _)| place.number);
                let mut rings = false;
                match step {
                    0 | 1 => {
                        let bell = Bell::new();
                        waiting.push((queues.join(&name, Queueing::Line, &bell).unwrap(), bell));
                    }
                    2 | 3 if !waiting.is_empty() => {
                        drop(waiting.remove(which % waiting.len()));
                        rings = waiting.first().is_some_and(|(place, _)| Some(place.number) != first_before);
                    }
                    _ => {
                        queues.ring_first(&name);
                        rings = true;
                    }
                }
                for (index, (place, bell)) in waiting.iter().enumerate() {
                    proptest::prop_assert_eq!(place.is_first(), index == 0);
                    proptest::prop_assert_eq!(bell.was_rung(), index == 0 && rings);
                }
            }
            drop(waiting);
            proptest::prop_assert!(queues.is_empty());
        }
    }
}
