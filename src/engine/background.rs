//! One thread for what nobody waits for: started when there is work, ended when there is none.

use std::collections::BTreeMap;
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

/// Names one job: when it is due, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) at: Instant,
    number: u64,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    added: Condvar,
}

#[derive(Default)]
struct Queue {
    /// In the order in which they are run.
    jobs: BTreeMap<Ticket, Work>,
    next: u64,
    running: bool,
}

impl Background {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, shared: Arc::default() }
    }

    /// Runs `work` on the background thread, not before `at`.
    pub(crate) fn run_at(&self, at: Instant, work: impl FnOnce() + Send + 'static) -> Ticket {
        let mut queue = self.shared.queue.lock();
        queue.next += 1;
        let ticket = Ticket { at, number: queue.next };
        queue.jobs.insert(ticket, Box::new(work));
        if queue.running {
            self.shared.added.notify_one();
            return ticket;
        }
        let shared = Arc::clone(&self.shared);
        // Without a thread the jobs wait for the next one that can be started.
        queue.running = thread::Builder::new().name(self.name.into()).spawn(move || shared.work()).is_ok();
        ticket
    }

    /// Drops a job that has not been started.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let work = self.shared.queue.lock().jobs.remove(&ticket);
        drop(work);
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
            match queue.jobs.first_key_value().map(|(ticket, _)| ticket.at) {
                Some(at) if at <= now => {
                    let Some((_, work)) = queue.jobs.pop_first() else { continue };
                    // A job that panics, a callback of a user perhaps, must not take the others along.
                    MutexGuard::unlocked(&mut queue, || {
                        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                    });
                }
                Some(at) => {
                    let left = now.nap_until(at);
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
    #[test]
    fn a_cancelled_job_is_dropped_and_the_thread_waits_for_nothing() {
        let background = Background::new("test");
        let (kept, dropped) = crossbeam_channel::bounded::<()>(0);
        let far = background.run_at(Instant::now().after(Duration::from_secs(3_600)), move || drop(kept));
        background.cancel(far);
        let limit = Duration::from_secs(5);
        assert_eq!(dropped.recv_timeout(limit), Err(crossbeam_channel::RecvTimeoutError::Disconnected));
        let (done, order) = crossbeam_channel::unbounded();
        let ticket = background.run_at(Instant::now(), move || done.send(()).unwrap());
        order.recv_timeout(limit).unwrap();
        background.cancel(ticket); // too late, and nothing to it
    }
}
