//! Several stages side by side: most checks only wait.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::program::Cast;
use crate::site::Site;
use crate::stage::Stage;

/// A job for any stage.
pub(crate) type Job<'j, T> = Box<dyn FnOnce(&Stage<'_>) -> T + Send + 'j>;

/// Runs all jobs and returns the outcomes in the order of the jobs.
pub(crate) fn run<T: Send>(site: Site<'_>, cast: &Cast, jobs: Vec<Job<'_, T>>) -> Vec<T> {
    let lanes = LANES.min(jobs.len());
    let waiting: Mutex<VecDeque<_>> = Mutex::new(jobs.into_iter().enumerate().collect());
    let done = Mutex::new(vec![]);
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for lane in 0..lanes {
            let (next, done) = (&next, &done);
            scope.spawn(move || {
                let stage = Stage::new(site, lane, cast);
                while let Some((number, job)) = next() {
                    let outcome = job(&stage);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((number, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

const LANES: usize = 4;
