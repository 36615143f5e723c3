//! The code that threads share, run under many schedules: `RUSTFLAGS="--cfg shuttle"`.
//!
//! No wait times out here, so a thread that is not woken sleeps for ever, and the checker reports a deadlock.
#![cfg(all(test, shuttle))]

mod closing;
mod counted;
mod holds;
mod line;
mod listening;
mod succession;
mod watching;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::time::Instant;

const START: Instant = Instant::from_millis(1_000_000);

/// Runs a scene under many random schedules, and under as many that let one thread starve the others.
fn check(schedules: usize, scene: impl Fn() + Copy + Send + Sync + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(50_000);
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(scene);
    Runner::new(PctScheduler::new(4, schedules), config).run(scene);
}
