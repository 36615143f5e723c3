//! The time and the random seed of one campaign, and its progress lines.

use std::env;
use std::fmt::Display;
use std::time::SystemTime;

use crate::support::prelude::*;

/// A running campaign.
#[derive(Debug)]
pub(crate) struct Campaign {
    what: &'static str,
    /// The number of trials that the promised figure needs.
    wanted: u64,
    seed: u64,
    started: Instant,
    time: Duration,
    trials: u64,
    told: Instant,
}

impl Campaign {
    /// Begins a campaign with this share of the whole time, in per cent.
    pub(crate) fn start(what: &'static str, wanted: u64, share: u32) -> Self {
        let minutes: f64 = variable("LOCKSON_SOAK_MINUTES").unwrap_or(5.0);
        let time = Duration::from_secs_f64(minutes * 60.0) * share / 100;
        let seed = variable("LOCKSON_SOAK_SEED").unwrap_or_else(seed_of_the_clock);
        println!("\nsoak: {what}: {:.0} s, seed {seed}", time.as_secs_f64());
        let now = Instant::now();
        Self { what, wanted, seed, started: now, time, trials: 0, told: now }
    }

    /// Whether there is time for another round; the first round always runs, and the time counts from the first call.
    pub(crate) fn goes_on(&mut self) -> bool {
        if self.trials == 0 {
            self.started = Instant::now();
        }
        self.trials == 0 || Instant::now() < self.end_of_time()
    }

    pub(crate) fn end_of_time(&self) -> Instant {
        self.started + self.time
    }

    /// A round of so many trials went well.
    pub(crate) fn passed(&mut self, trials: u64) {
        self.trials += trials;
        if self.told.elapsed() >= BETWEEN_NEWS {
            self.told = Instant::now();
            println!("soak: {}: {} so far", self.what, self.trials);
        }
    }

    /// Random numbers for the next round, equal in each run with this seed.
    pub(crate) fn random(&self) -> Random {
        Random(self.seed.wrapping_add(self.trials).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Prints the outcome.
    pub(crate) fn end(self, outcome: impl Display) {
        let Self { what, wanted, trials, .. } = self;
        let seconds = self.started.elapsed().as_secs_f64();
        let sampled = if trials < wanted { " (a sample)" } else { "" };
        println!("soak: {what}: {trials} of {wanted}{sampled} in {seconds:.1} s, {outcome}");
    }
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn seed_of_the_clock() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is set");
    now.as_secs() % 1_000_000
}

const BETWEEN_NEWS: Duration = Duration::from_secs(5);
