//! The code that threads share, run under many schedules: `RUSTFLAGS="--cfg shuttle"`.
//!
//! No wait times out here, so a thread that is not woken sleeps for ever, and the checker reports a deadlock.
#![cfg(all(test, shuttle))]

mod closing;
mod counted;
mod line;
mod listening;
mod succession;
mod watching;

use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner, thread};

use crate::cancel::Cancel;
use crate::time::Instant;

const START: Instant = Instant::from_millis(1_000_000);
const NEVER: Instant = Instant::from_millis(u64::MAX);

/// Runs a scene under many random schedules, and under as many that let one thread starve the others.
fn check(schedules: usize, scene: impl Fn() + Copy + Send + Sync + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(50_000);
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(scene);
    Runner::new(PctScheduler::new(4, schedules), config).run(scene);
}

/// Runs callers that may be cancelled at any moment, and callers that must be served, each in a thread of its own.
fn all_call<Scene: Send + Sync + 'static>(
    scene: &Arc<Scene>,
    impatient: usize,
    patient: usize,
    take: fn(&Scene, &Cancel) -> bool,
) {
    let mut callers = vec![];
    for number in 0..impatient + patient {
        let (scene, cancel) = (Arc::clone(scene), Cancel::new());
        if number < impatient {
            let cancel = cancel.clone();
            callers.push(thread::spawn(move || {
                cancel.cancel();
                true
            }));
        }
        callers.push(thread::spawn(move || take(&scene, &cancel) || number < impatient));
    }
    assert!(callers.into_iter().all(|caller| caller.join().unwrap()));
}
