//! One thread for what nobody waits for: started when there is work, ended when there is none.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::time::Instant;

/// A queue of jobs, each with the moment before which it is not run.
#[derive(Clone)]
pub(crate) struct Background {
    name: &'static str,
    shared: Arc<Shared>,
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    added: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: BinaryHeap<Job>,
    next: u64,
    running: bool,
}

struct Job {
    at: Instant,
    number: u64,
    work: Work,
}

impl Background {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, shared: Arc::default() }
    }

    /// Runs `work` on the background thread, not before `at`.
    pub(crate) fn run_at(&self, at: Instant, work: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        queue.next += 1;
        let number = queue.next;
        queue.jobs.push(Job { at, number, work: Box::new(work) });
        if queue.running {
            self.shared.added.notify_one();
            return;
        }
        let shared = Arc::clone(&self.shared);
        // Without a thread the jobs wait for the next one that can be started.
        queue.running = thread::Builder::new().name(self.name.into()).spawn(move || shared.work()).is_ok();
    }

    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.run_at(Instant::now(), work);
    }

    /// Drops what has not been started.
    pub(crate) fn clear(&self) {
        let jobs = std::mem::take(&mut self.shared.queue.lock().jobs);
        drop(jobs);
        self.shared.added.notify_one();
    }
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Background({}, {} jobs)", self.name, self.shared.queue.lock().jobs.len())
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            let now = Instant::now();
            match queue.jobs.peek() {
                Some(job) if job.at <= now => {
                    let Some(job) = queue.jobs.pop() else { continue };
                    // A job that panics, a callback of a user perhaps, must not take the others along.
                    MutexGuard::unlocked(&mut queue, || {
                        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job.work));
                    });
                }
                Some(job) => {
                    let left = now.nap_until(job.at);
                    self.added.wait_for(&mut queue, left);
                }
                None => {
                    let waited = self.added.wait_for(&mut queue, IDLE_LIMIT);
                    if waited.timed_out() && queue.jobs.is_empty() {
                        queue.running = false;
                        return;
                    }
                }
            }
        }
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Job {}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Job {
    /// The earliest job is the greatest: that is the one a heap hands out.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

const IDLE_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_in_the_order_of_their_moments_and_survive_a_panic() {
        let background = Background::new("test");
        let (done, order) = crossbeam_channel::unbounded();
        let now = Instant::now();
        for (number, millis) in [(2, 60), (1, 30), (0, 0)] {
            let done = done.clone();
            background.run_at(now.after(Duration::from_millis(millis)), move || {
                done.send(number).unwrap();
                assert_ne!(number, 0, "this one panics");
            });
        }
        let got: Vec<i32> = (0..3).map(|_| order.recv_timeout(Duration::from_secs(5)).unwrap()).collect();
        assert_eq!(got, [0, 1, 2]);
    }
}
