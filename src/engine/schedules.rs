//! The real code of what threads share, run under every kind of schedule: `RUSTFLAGS="--cfg shuttle"`.
//!
//! Nothing times out here, so whoever is not woken sleeps for ever, and the checker says so.
#![cfg(all(test, shuttle))]

mod closing;
mod holds;
mod line;
mod listening;
mod watching;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::time::Instant;

const START: Instant = Instant::from_millis(1_000_000);

/// Runs this under so many random schedules, and as many that let one thread starve the others.
fn check(schedules: usize, scene: impl Fn() + Copy + Send + Sync + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(50_000);
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(scene);
    Runner::new(PctScheduler::new(4, schedules), config).run(scene);
}
