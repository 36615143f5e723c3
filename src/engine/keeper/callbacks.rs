//! The threads that run callbacks of the user: one thread, and another one for each callback that lasts.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::time::Instant;

/// A queue of callbacks. One thread runs the callbacks in turn; when a callback lasts, a relief thread takes over the
/// rest.
#[derive(Default)]
pub(crate) struct Callbacks(Arc<Shared>);

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    added: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Callback>,
    /// The thread that serves the queue.
    server: Option<ThreadId>,
    /// The start of the running callback.
    busy_since: Option<Instant>,
    has_relief: bool,
}

impl Callbacks {
    pub(crate) fn run(&self, callback: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.queue.lock();
        queue.waiting.push_back(Box::new(callback));
        if queue.server.is_some() {
            self.0.added.notify_one();
            self.0.see_to_relief(&mut queue);
        } else {
            // If no thread can be started, the callbacks wait for the next attempt.
            queue.server = self.0.start(|shared| shared.serve(&mut shared.queue.lock()));
        }
    }
}

impl Shared {
    fn start(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) -> Option<ThreadId> {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("lockson-tell".into()).spawn(move || work(&shared)).ok()?;
        Some(thread.thread().id())
    }

    /// Starts a relief thread beside a callback that delays others.
    fn see_to_relief(self: &Arc<Self>, queue: &mut Queue) {
        if queue.busy_since.is_some() && !queue.waiting.is_empty() && !queue.has_relief {
            queue.has_relief = self.start(|shared| shared.relieve()).is_some();
        }
    }

    /// Runs callbacks until another thread took over, or until none came for a while.
    fn serve(self: &Arc<Self>, queue: &mut MutexGuard<'_, Queue>) {
        let this = Some(thread::current().id());
        queue.server = this;
        loop {
            if let Some(callback) = queue.waiting.pop_front() {
                queue.busy_since = Some(Instant::now());
                self.see_to_relief(queue);
                // A panic in a callback must not end the other callbacks.
                MutexGuard::unlocked(queue, || {
                    let _ = catch_unwind(AssertUnwindSafe(callback));
                });
                if queue.server != this {
                    return;
                }
                queue.busy_since = None;
            } else if self.added.wait_for(queue, IDLE_LIMIT).timed_out() && queue.waiting.is_empty() {
                queue.server = None;
                return;
            }
        }
    }

    /// Takes over when a callback lasts while others wait; ends when none waits.
    fn relieve(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        while !queue.waiting.is_empty() {
            let now = Instant::now();
            let due = queue.busy_since.unwrap_or(now).after(MOMENT);
            if due <= now {
                queue.has_relief = false;
                return self.serve(&mut queue);
            }
            MutexGuard::unlocked(&mut queue, || thread::sleep(now.until(due)));
        }
        queue.has_relief = false;
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callbacks(..)")
    }
}

/// A longer callback delays the next callback by this time.
const MOMENT: Duration = Duration::from_millis(10);
const IDLE_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{bounded, unbounded};

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn callbacks_that_last_delay_no_other() {
        let callbacks = Callbacks::default();
        let (ended, end) = bounded::<()>(0);
        let (done, order) = unbounded();
        for number in 0..8 {
            let (end, done) = (end.clone(), done.clone());
            callbacks.run(move || {
                done.send(number).unwrap();
                let _ = end.recv();
            });
        }
        let begun: Vec<i32> = (0..8).map(|_| order.recv_timeout(SOON).unwrap()).collect();
        assert_eq!(begun, (0..8).collect::<Vec<_>>(), "all of them are under way");
        callbacks.run(move || done.send(8).unwrap());
        assert_eq!(order.recv_timeout(SOON), Ok(8));
        drop(ended);
    }

    #[test]
    fn a_relief_that_was_not_needed_is_there_the_next_time() {
        let callbacks = Callbacks::default();
        let (done, order) = unbounded();
        for _ in 0..20 {
            // Too short to need relief, and long enough to make a relief thread wait.
            callbacks.run(|| thread::sleep(MOMENT / 4));
            let done = done.clone();
            callbacks.run(move || done.send(0).unwrap());
            assert_eq!(order.recv_timeout(SOON), Ok(0));
            thread::sleep(MOMENT);
        }
        let (ended, end) = bounded::<()>(0);
        callbacks.run(move || {
            let _ = end.recv();
        });
        callbacks.run(move || done.send(1).unwrap());
        assert_eq!(order.recv_timeout(SOON), Ok(1), "a callback that lasts delays no other");
        drop(ended);
    }

    #[test]
    fn quick_callbacks_run_in_order_on_few_threads() {
        let callbacks = Callbacks::default();
        let (done, order) = unbounded();
        for number in 0..10_000 {
            let done = done.clone();
            callbacks.run(move || {
                done.send((number, thread::current().id())).unwrap();
                assert_ne!(number, 5_000, "this one panics");
            });
        }
        let told: Vec<_> = (0..10_000).map(|_| order.recv_timeout(SOON).unwrap()).collect();
        let mut threads: Vec<_> = told.iter().map(|(_, thread)| *thread).collect();
        threads.dedup();
        assert!(told.iter().map(|(number, _)| number).is_sorted());
        // A thread that did not run for a moment looks like a callback that lasts.
        assert!(threads.len() < 100, "{} threads", threads.len());
    }
}
