//! The output: progress, figures with a spread, and at the end the ratios in a form for programs.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use lockson_harness::RedisServer;

use crate::figure::Spread;
use crate::picture;

/// Collects the ratios of a run.
#[derive(Debug)]
pub(crate) struct Report {
    started: Instant,
    ratios: Vec<(String, Spread)>,
}

impl Report {
    /// Prints the conditions that the figures depend on.
    pub(crate) fn new(server: &RedisServer, quick: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        let redis = server.info("redis_version").unwrap_or_default();
        println!("{} run, redis {redis} on loopback, {processors} processors", if quick { "quick" } else { "full" });
        Self { started: Instant::now(), ratios: vec![] }
    }

    pub(crate) fn heading(&self, name: &str) {
        println!("\n== {name} (at {:.0} s, load {})", self.started.elapsed().as_secs_f64(), load());
    }

    /// Prints a figure without a comparison.
    pub(crate) fn figure(&self, name: &str, value: impl std::fmt::Display, unit: &str) {
        println!("  {name:44} {value} {unit}");
    }

    /// Prints a ratio and keeps the ratio for the end. The line at the end has the median.
    pub(crate) fn ratio(&mut self, name: &str, spread: Spread) {
        self.figure(name, spread, "(ratio)");
        self.ratios.push((name.to_owned(), spread));
    }

    /// As [`Report::ratio`], with another value than the median of the rounds for the end.
    pub(crate) fn ratio_of(&mut self, name: &str, value: f64, spread: Spread) {
        self.figure(name, format!("{value:.3}, by rounds {spread}"), "(ratio)");
        self.ratios.push((name.to_owned(), Spread { median: value, ..spread }));
    }

    pub(crate) fn close(self) {
        println!("\nspreads: least, value, most of the rounds; {:.0} s in all", self.started.elapsed().as_secs_f64());
        for (name, Spread { least, median, most, .. }) in &self.ratios {
            println!("spread {name} {least:.3} {median:.3} {most:.3}");
        }
        println!();
        for (name, spread) in &self.ratios {
            println!("ratio {name} {:.3}", spread.median);
        }
        match picture::save(&self.ratios) {
            Ok(path) => println!("\nas a picture: {}", path.display()),
            Err(error) => println!("\nno picture: {error}"),
        }
    }
}

/// Prints progress if the output is a terminal.
pub(crate) fn progress(done: usize, of: usize) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        // A closed terminal does not end the measurement.
        let _ = write!(out, "\r  round {done} of {of}{}", if done == of { "\r\x1b[K" } else { "" });
        let _ = out.flush();
    }
}

/// The load of the machine in the last minute, including the load of this benchmark.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|word| !word.is_empty()).unwrap_or("unknown").to_owned()
}
