//! A thread for background jobs: started when a job is due, ended when no job is left.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::owner::{ThreadId, ThreadNumber};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::system::thread;
use crate::time::{Instant, wait_until};

/// A queue of jobs, each with the earliest time of its run. One thread runs the jobs in turn.
#[derive(Clone)]
pub(crate) struct Background(Arc<Shared>);

type Work = Box<dyn FnOnce() + Send>;

/// Identifies a job by its time and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobTicket {
    pub(crate) at: Instant,
    number: u64,
}

struct Shared {
    /// The name of the threads.
    name: &'static str,
    /// Whether another thread takes over the rest when a job lasts.
    relieves: bool,
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
    /// The thread that serves the queue, or [`STARTING`].
    server: Option<ThreadNumber>,
    /// The start of the running job.
    busy_since: Option<Instant>,
    has_relief: bool,
    /// Whether all jobs run at once, because the client closes.
    hurries: bool,
    /// Whether new jobs are dropped.
    ended: bool,
}

impl Background {
    /// Where it `relieves`, a job that lasts delays no other.
    pub(crate) fn new(name: &'static str, relieves: bool) -> Self {
        let (queue, added, done) = (Mutex::default(), Condvar::default(), Condvar::default());
        Self(Arc::new(Shared { name, relieves, queue, added, done }))
    }

    /// Runs `work` on the background thread, not before `at`.
    pub(crate) fn run_at(&self, at: Instant, work: impl FnOnce() + Send + 'static) -> JobTicket {
        let mut queue = self.0.queue.lock();
        queue.next += 1;
        let ticket = JobTicket { at, number: queue.next };
        if queue.ended {
            // The job is dropped after the mutex is released.
            drop(queue);
            return ticket;
        }
        queue.jobs.insert(ticket, Box::new(work));
        if queue.server.is_some() {
            self.0.added.notify_one();
            self.0.see_to_relief(&mut queue);
        } else {
            // If no thread can be started, the jobs wait for the next attempt.
            queue.server = self.0.start(|shared| shared.serve(shared.queue.lock())).then_some(STARTING);
        }
        ticket
    }

    /// Cancels a job that has not started.
    pub(crate) fn cancel(&self, ticket: JobTicket) {
        let work = self.0.queue.lock().jobs.remove(&ticket);
        drop(work);
    }

    /// Runs all jobs from now on, due or not.
    pub(crate) fn hurry(&self) {
        self.0.queue.lock().hurries = true;
        self.0.added.notify_one();
    }

    /// Runs all jobs now, due or not, and waits for the jobs until `until`. Jobs left by then, and later
    /// jobs, are dropped.
    pub(crate) fn finish(&self, until: Instant) {
        self.hurry();
        let this = Some(ThreadId::current().number());
        // A job that closes the client must not wait for itself.
        let mut queue = wait_until(&self.0.done, self.0.queue.lock(), until, |queue| {
            queue.server.is_none() || queue.server == this || (queue.jobs.is_empty() && queue.busy_since.is_none())
        });
        queue.ended = true;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        drop(jobs);
        self.0.added.notify_one();
    }
}

impl Shared {
    /// Starts a thread. Returns whether that was possible.
    fn start(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) -> bool {
        let shared = Arc::clone(self);
        thread::Builder::new().name(self.name.into()).spawn(move || work(&shared)).is_ok()
    }

    /// Runs jobs until another thread took over, or until none came for a while.
    fn serve<'a>(self: &'a Arc<Self>, mut queue: MutexGuard<'a, Queue>) {
        let this = Some(ThreadId::current().number());
        queue.server = this;
        loop {
            let now = Instant::now();
            match queue.jobs.first_key_value().map(|(ticket, _)| ticket.at) {
                Some(at) if at <= now || queue.hurries => {
                    let Some((_, work)) = queue.jobs.pop_first() else { continue };
                    queue.busy_since = Some(now);
                    self.see_to_relief(&mut queue);
                    drop(queue);
                    // A panic in a job, perhaps in a callback of the user, must not end the other jobs.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                    queue = self.queue.lock();
                    if queue.server != this {
                        return;
                    }
                    queue.busy_since = None;
                    if queue.hurries {
                        self.done.notify_all();
                    }
                }
                Some(at) => queue = self.added.wait_for(queue, now.nap_until(at)),
                None => {
                    queue = self.added.wait_for(queue, IDLE_LIMIT);
                    if queue.jobs.is_empty() && now.after(IDLE_LIMIT) <= Instant::now() {
                        queue.server = None;
                        return;
                    }
                }
            }
        }
    }

    /// Starts a relief thread beside a job that delays others.
    fn see_to_relief(self: &Arc<Self>, queue: &mut Queue) {
        if self.relieves && queue.busy_since.is_some() && !queue.jobs.is_empty() && !queue.has_relief {
            queue.has_relief = self.start(Self::relieve);
        }
    }

    /// Takes over when a job lasts while others wait; ends when none waits.
    fn relieve(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        while !queue.jobs.is_empty() {
            let now = Instant::now();
            let due = queue.busy_since.unwrap_or(now).after(MOMENT);
            if due <= now {
                queue.has_relief = false;
                return self.serve(queue);
            }
            drop(queue);
            thread::sleep(now.until(due));
            queue = self.queue.lock();
        }
        queue.has_relief = false;
    }
}

/// A thread that does not run yet. No thread has the number zero.
const STARTING: ThreadNumber = ThreadNumber(0);
/// A longer job delays the next job of a queue with relief by this time.
const MOMENT: Duration = Duration::from_millis(10);
const IDLE_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crossbeam_channel::{bounded, unbounded};

    const SOON: Duration = Duration::from_secs(10);

    impl std::fmt::Debug for Background {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Background({}, {} jobs)", self.0.name, self.0.queue.lock().jobs.len())
        }
    }

    #[test]
    fn jobs_run_in_the_order_of_their_moments_and_survive_a_panic() {
        let background = Background::new("test", false);
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
        let background = Background::new("test", false);
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
        let background = Background::new("test", false);
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
        let background = Background::new("test", false);
        let limit = Duration::from_secs(5);
        let (done, ended) = crossbeam_channel::unbounded();
        let (inner, hour) = (background.clone(), Instant::now().after(Duration::from_secs(3_600)));
        background.run_at(Instant::now(), move || {
            inner.finish(hour);
            done.send(()).unwrap();
        });
        ended.recv_timeout(limit).unwrap();

        let background = Background::new("test", false);
        let (release, released) = crossbeam_channel::bounded::<()>(0);
        background.run_at(Instant::now(), move || assert!(released.recv().is_err()));
        background.finish(Instant::now().after(Duration::from_millis(50)));
        drop(release);
    }

    #[test]
    fn callbacks_that_last_delay_no_other() {
        let callbacks = Background::new("test", true);
        let (ended, end) = bounded::<()>(0);
        let (done, order) = unbounded();
        for number in 0..8 {
            let (end, done) = (end.clone(), done.clone());
            callbacks.run_at(Instant::now(), move || {
                done.send(number).unwrap();
                let _ = end.recv();
            });
        }
        let begun: Vec<i32> = (0..8).map(|_| order.recv_timeout(SOON).unwrap()).collect();
        assert_eq!(begun, (0..8).collect::<Vec<_>>(), "all of them are under way");
        callbacks.run_at(Instant::now(), move || done.send(8).unwrap());
        assert_eq!(order.recv_timeout(SOON), Ok(8));
        drop(ended);
    }

    #[test]
    fn a_relief_that_was_not_needed_is_there_the_next_time() {
        let callbacks = Background::new("test", true);
        let (done, order) = unbounded();
        for _ in 0..20 {
            // Too short to need relief, and long enough to make a relief thread wait.
            callbacks.run_at(Instant::now(), || thread::sleep(MOMENT / 4));
            let done = done.clone();
            callbacks.run_at(Instant::now(), move || done.send(0).unwrap());
            assert_eq!(order.recv_timeout(SOON), Ok(0));
            thread::sleep(MOMENT);
        }
        let (ended, end) = bounded::<()>(0);
        callbacks.run_at(Instant::now(), move || {
            let _ = end.recv();
        });
        callbacks.run_at(Instant::now(), move || done.send(1).unwrap());
        assert_eq!(order.recv_timeout(SOON), Ok(1), "a callback that lasts delays no other");
        drop(ended);
    }

    #[test]
    fn quick_callbacks_run_in_order_on_few_threads() {
        let callbacks = Background::new("test", true);
        let (done, order) = unbounded();
        for number in 0..10_000 {
            let done = done.clone();
            callbacks.run_at(Instant::now(), move || {
                done.send((number, thread::current().id())).unwrap();
                assert_ne!(number, 5_000, "this one panics");
            });
        }
        let told: Vec<_> = (0..10_000).map(|_| order.recv_timeout(SOON).unwrap()).collect();
        let mut threads: Vec<_> = told.iter().map(|(_, thread)| *thread).collect();
        threads.dedup();
        // A thread that did not run for a moment looks like a callback that lasts, and another thread goes on.
        let mut last = HashMap::new();
        for (number, thread) in told {
            let before = last.insert(thread, number);
            assert!(before.is_none_or(|before| before < number), "{thread:?} ran {before:?} before {number}");
        }
        assert!(threads.len() < 100, "{} threads", threads.len());
    }
}
