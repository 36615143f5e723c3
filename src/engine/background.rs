//! A thread for background jobs: started when a job is due, ended when no job is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::owner::{ThreadId, ThreadNumber};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::time::Instant;

/// A queue of jobs, each with the earliest time of its run.
#[derive(Clone)]
pub(crate) struct Background {
    name: &'static str,
    shared: Arc<Shared>,
}

type Work = Box<dyn FnOnce() + Send>;

/// Identifies a job by its time and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobTicket {
    pub(crate) at: Instant,
    number: u64,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    added: Condvar,
    /// Signals the end of a job to a thread that waits for it.
    done: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Sorted by the order of the runs.
    jobs: BTreeMap<JobTicket, Work>,
    next: u64,
    running: bool,
    /// The thread that runs a job at the moment.
    busy: Option<ThreadNumber>,
    /// Whether all jobs run at once, because the client closes.
    hurries: bool,
    /// Whether new jobs are dropped.
    ended: bool,
}

impl Background {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, shared: Arc::default() }
    }

    /// Runs `work` on the background thread, not before `at`.
    pub(crate) fn run_at(&self, at: Instant, work: impl FnOnce() + Send + 'static) -> JobTicket {
        let mut queue = self.shared.queue.lock();
        queue.next += 1;
        let ticket = JobTicket { at, number: queue.next };
        if queue.ended {
            // The job is dropped after the mutex is released.
            drop(queue);
            return ticket;
        }
        queue.jobs.insert(ticket, Box::new(work));
        if queue.running {
            self.shared.added.notify_one();
            return ticket;
        }
        let shared = Arc::clone(&self.shared);
        // If no thread can be started, the jobs wait for the next attempt.
        queue.running = thread::Builder::new().name(self.name.into()).spawn(move || shared.work()).is_ok();
        ticket
    }

    /// Cancels a job that has not started.
    pub(crate) fn cancel(&self, ticket: JobTicket) {
        let work = self.shared.queue.lock().jobs.remove(&ticket);
        drop(work);
    }

    /// Runs all jobs now, whatever their time, and waits for them until `until`. Jobs left by then, and later jobs,
    /// are dropped.
    pub(crate) fn finish(&self, until: Instant) {
        let mut queue = self.shared.queue.lock();
        queue.hurries = true;
        self.shared.added.notify_one();
        let me = ThreadId::current().number();
        // A job that closes the client must not wait for itself.
        while queue.running && queue.busy != Some(me) && !(queue.jobs.is_empty() && queue.busy.is_none()) {
            let now = Instant::now();
            if now >= until {
                break;
            }
            self.shared.done.wait_for(&mut queue, now.nap_until(until));
        }
        queue.ended = true;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
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
        let me = ThreadId::current().number();
        let mut queue = self.queue.lock();
        loop {
            let now = Instant::now();
            match queue.jobs.first_key_value().map(|(ticket, _)| ticket.at) {
                Some(at) if at <= now || queue.hurries => {
                    let Some((_, work)) = queue.jobs.pop_first() else { continue };
                    queue.busy = Some(me);
                    // A panic in a job, perhaps in a callback of the user, must not end the other jobs.
                    MutexGuard::unlocked(&mut queue, || {
                        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                    });
                    queue.busy = None;
                    if queue.hurries {
                        self.done.notify_all();
                    }
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

    #[test]
    fn scheduled_work_runs_at_the_end_and_nothing_after_it() {
        let background = Background::new("test");
        let (done, order) = crossbeam_channel::unbounded();
        let hour = Instant::now().after(Duration::from_secs(3_600));
        let (first, again, late) = (done.clone(), background.clone(), done);
        background.run_at(hour, move || {
            first.send(1).unwrap();
            again.run_at(hour, move || first.send(2).unwrap());
        });
        background.finish(hour);
        background.run_at(Instant::now(), move || late.send(3).unwrap());
        assert_eq!(order.into_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn the_end_waits_neither_for_itself_nor_for_ever() {
        let background = Background::new("test");
        let limit = Duration::from_secs(5);
        let (done, ended) = crossbeam_channel::unbounded();
        let (inner, hour) = (background.clone(), Instant::now().after(Duration::from_secs(3_600)));
        background.run_at(Instant::now(), move || {
            inner.finish(hour);
            done.send(()).unwrap();
        });
        ended.recv_timeout(limit).unwrap();

        let background = Background::new("test");
        let (release, released) = crossbeam_channel::bounded::<()>(0);
        background.run_at(Instant::now(), move || assert!(released.recv().is_err()));
        background.finish(Instant::now().after(Duration::from_millis(50)));
        drop(release);
    }
}
