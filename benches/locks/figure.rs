//! Statistics of measured values: quantiles, spreads over rounds, fairness.

use std::fmt;
use std::time::{Duration, Instant};

/// The measured times of one candidate, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<u64>);

/// A figure with one value for each round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
    pub(crate) rounds: usize,
}

impl Samples {
    pub(crate) fn new(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        Self(nanos)
    }

    /// All samples of several rounds together.
    pub(crate) fn pooled(rounds: &[Self]) -> Self {
        Self::new(rounds.iter().flat_map(|round| round.0.iter().copied()).collect())
    }

    /// The value, in microseconds, that this share of the samples does not exceed.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let index = (part * (self.0.len() - 1) as f64).round() as usize;
        self.0[index] as f64 / 1e3
    }
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let rounds = values.len();
        let median = (values[(rounds - 1) / 2] + values[rounds / 2]) / 2.0;
        Self { least: values[0], median, most: values[rounds - 1], rounds }
    }

    /// The ratio of two candidates, round by round: a drift of the machine affects both candidates of a round.
    pub(crate) fn ratio<T>(ours: &[T], floor: &[T], value: impl Fn(&T) -> f64) -> Self {
        Self::of(ours.iter().zip(floor).map(|(ours, floor)| value(ours) / value(floor)))
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As many digits as are meaningful for a value of this size.
        let digits = if self.median < 10.0 { 3 } else { usize::from(self.median < 1_000.0) };
        let Self { least, median, most, rounds } = self;
        write!(f, "{median:.digits$} ({least:.digits$} to {most:.digits$} in {rounds} rounds)")
    }
}

/// Jain's index of fairness: 1 when all shares are equal, 1/n when a single thread has everything.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Runs all candidates once in each round, beginning with a different candidate each time. Returns the values of each
/// candidate, round by round.
pub(crate) fn in_turns<T>(rounds: usize, candidates: &mut [&mut dyn FnMut() -> T]) -> Vec<Vec<T>> {
    let mut values: Vec<Vec<T>> = candidates.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        one_turn(round, candidates, &mut values);
        crate::report::progress(round + 1, rounds);
    }
    values
}

/// Like [`in_turns`], for candidates that return nanoseconds and are very short: the candidates change places after
/// every single run, and a round is `batch` of these turns.
pub(crate) fn in_short_turns(
    rounds: usize,
    batch: usize,
    candidates: &mut [&mut dyn FnMut() -> u64],
) -> Vec<Vec<Samples>> {
    for turn in 0..WARM_UPS {
        one_turn(turn, candidates, &mut vec![vec![]; candidates.len()]);
    }
    let mut samples: Vec<Vec<Samples>> = candidates.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        let mut nanos = vec![Vec::with_capacity(batch); candidates.len()];
        for turn in 0..batch {
            one_turn(turn, candidates, &mut nanos);
        }
        for (rounds, nanos) in samples.iter_mut().zip(nanos) {
            rounds.push(Samples::new(nanos));
        }
        crate::report::progress(round + 1, rounds);
    }
    samples
}

fn one_turn<T>(turn: usize, candidates: &mut [&mut dyn FnMut() -> T], values: &mut [Vec<T>]) {
    let count = candidates.len();
    for offset in 0..count {
        let candidate = (turn + offset) % count;
        values[candidate].push(candidates[candidate]());
    }
}

/// How long a run takes, in nanoseconds.
pub(crate) fn timed(run: impl FnOnce()) -> u64 {
    let started = Instant::now();
    run();
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Events in a second; the duration is never zero.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

const WARM_UPS: usize = 5;
