//! The figures of a run: a row for each thing measured, a cell for each candidate.

use std::collections::BTreeMap;

/// What is measured, in the order of the page.
pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) less_is_better: bool,
}

const fn less(key: &'static str, title: &'static str, unit: &'static str) -> Row {
    Row { key, title, unit, less_is_better: true }
}

const fn more(key: &'static str, title: &'static str, unit: &'static str) -> Row {
    Row { key, title, unit, less_is_better: false }
}

pub(crate) const ROWS: &[Row] = &[
    less("pair", "take and release a free lock", "us"),
    less("reentry", "the same while this thread holds it", "us"),
    less("multi", "take and release 10 locks at once", "us"),
    less("semaphore", "take and release a permit of a semaphore", "us"),
    less("red", "take and release a lock on 5 servers", "us"),
    less("hand-over", "release to the next process's grant, p50", "us"),
    less("hand-over-p99", "release to the next process's grant, p99", "us"),
    more("hot-1x8-0", "8 threads of a process, no hold: sections", "1/s"),
    more("jain-1x8-0", "8 threads of a process, no hold: fairness (Jain's index)", "of 1"),
    less("longest-1x8-0", "8 threads of a process, no hold: longest wait", "ms"),
    more("hot-1x8-1", "8 threads of a process, holds of 1 ms: sections", "1/s"),
    more("jain-1x8-1", "8 threads of a process, holds of 1 ms: fairness (Jain's index)", "of 1"),
    less("longest-1x8-1", "8 threads of a process, holds of 1 ms: longest wait", "ms"),
    more("hot-1x8-10", "8 threads of a process, holds of 10 ms: sections", "1/s"),
    more("jain-1x8-10", "8 threads of a process, holds of 10 ms: fairness (Jain's index)", "of 1"),
    less("longest-1x8-10", "8 threads of a process, holds of 10 ms: longest wait", "ms"),
    more("hot-4x2-0", "4 processes of 2 threads, no hold: sections", "1/s"),
    more("jain-4x2-0", "4 processes of 2 threads, no hold: fairness (Jain's index)", "of 1"),
    less("longest-4x2-0", "4 processes of 2 threads, no hold: longest wait", "ms"),
    more("hot-4x2-1", "4 processes of 2 threads, holds of 1 ms: sections", "1/s"),
    more("jain-4x2-1", "4 processes of 2 threads, holds of 1 ms: fairness (Jain's index)", "of 1"),
    less("longest-4x2-1", "4 processes of 2 threads, holds of 1 ms: longest wait", "ms"),
    more("hot-4x2-10", "4 processes of 2 threads, holds of 10 ms: sections", "1/s"),
    more("jain-4x2-10", "4 processes of 2 threads, holds of 10 ms: fairness (Jain's index)", "of 1"),
    less("longest-4x2-10", "4 processes of 2 threads, holds of 10 ms: longest wait", "ms"),
    less("crowd-connections", "1,000 threads wait for one lock: connections", ""),
    less("crowd-threads", "1,000 threads wait for one lock: threads", ""),
    less("crowd-served", "1,000 threads wait for one lock: until all were served", "s"),
    less("many-bytes", "a held lock: memory", "bytes"),
    less("many-processor", "renewal of all held locks: part of a processor", "%"),
    less("start", "new process: connect, first take and release", "ms"),
    less("lost", "a lost wake-up: longest until the waiter has the lock", "s"),
    less("two-believe", "after `FLUSHALL`: two believe to hold the lock", "s"),
];

/// The values of the rounds, or the reason why there are none.
pub(crate) type Cell = Result<Vec<f64>, String>;

#[derive(Default)]
pub(crate) struct Table {
    /// By the key of a row and the name of a candidate.
    cells: BTreeMap<(&'static str, &'static str), Cell>,
    pub(crate) versions: BTreeMap<&'static str, String>,
    /// Servers, machine and the like.
    pub(crate) conditions: String,
}

impl Table {
    /// Adds a value of a round. The first reason ends the values.
    pub(crate) fn add(&mut self, key: &str, candidate: &'static str, value: Result<f64, String>) {
        let row = ROWS.iter().find(|row| row.key == key).unwrap_or_else(|| panic!("no row {key}"));
        let cell = self.cells.entry((row.key, candidate)).or_insert_with(|| Ok(vec![]));
        match (cell, value) {
            (Ok(values), Ok(value)) => values.push(value),
            (cell, Err(reason)) => *cell = Err(reason),
            (Err(_), Ok(_)) => {}
        }
    }

    pub(crate) fn cell(&self, key: &'static str, candidate: &'static str) -> Result<&[f64], &str> {
        match self.cells.get(&(key, candidate)) {
            Some(Ok(values)) if !values.is_empty() => Ok(values),
            Some(Err(reason)) => Err(reason),
            _ => Err("not measured"),
        }
    }

    /// The middle of the rounds.
    pub(crate) fn middle(&self, key: &'static str, candidate: &'static str) -> Option<f64> {
        self.cell(key, candidate).ok().map(middle)
    }
}

pub(crate) fn middle(values: &[f64]) -> f64 {
    part_of(values, 0.5)
}

/// The value that this part of the values does not exceed.
pub(crate) fn part_of(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part).round() as usize]
}

/// As many digits as mean something.
pub(crate) fn shown(value: f64) -> String {
    match value {
        value if value >= 999.5 => {
            let value = value.round();
            let thousands = (value / 1_000.0).floor();
            format!("{thousands:.0},{:03.0}", value - thousands * 1_000.0)
        }
        value if value >= 99.5 => format!("{value:.0}"),
        value if value >= 9.95 => format!("{value:.1}"),
        value if value == 0.0 || (value.fract() == 0.0 && value < 10.0) => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

/// Jain's index of fairness: 1 when all shares are equal, 1/n when one has everything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) = (shares.iter().sum(), shares.iter().map(|share| share * share).sum());
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_middle_of_its_rounds_or_a_reason() {
        let mut table = Table::default();
        for value in [3.0, 1.0, 2.0] {
            table.add("pair", "Lockson", Ok(value));
        }
        assert_eq!(table.middle("pair", "Lockson"), Some(2.0));
        table.add("pair", "Lockson", Err("ended".to_owned()));
        table.add("pair", "Lockson", Ok(9.0));
        assert_eq!(table.cell("pair", "Lockson"), Err("ended"));
        assert_eq!(table.cell("red", "Lockson"), Err("not measured"));
    }

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let all = [0.0, 0.123, 1.0, 12.34, 123.4, 9_999.9, 1_234_567.8].map(shown);
        assert_eq!(all, ["0", "0.12", "1", "12.3", "123", "10,000", "1234,568"]);
        assert_eq!((jain(&[2.0, 2.0]), jain(&[4.0, 0.0])), (1.0, 0.5));
    }
}
