//! Progress for people: one changing line on a terminal, else a new line now and then.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The line about the progress of the sale.
pub struct Progress {
    stock: u32,
    terminal: bool,
    counted_at: Instant,
    counted: usize,
    rate: f64,
    shown_at: Instant,
    line: String,
}

impl Progress {
    /// A progress line before the first output.
    pub fn new(stock: u32) -> Self {
        let (now, terminal) = (Instant::now(), std::io::stdout().is_terminal());
        Self { stock, terminal, counted_at: now, counted: 0, rate: 0.0, shown_at: now, line: String::new() }
    }

    /// Records the number of sold items and the state of the lock in Redis; prints both if enough time has passed.
    pub fn update(&mut self, sold: usize, lock: &str) {
        let passed = self.counted_at.elapsed();
        if passed >= Duration::from_millis(500) {
            self.rate = sold.saturating_sub(self.counted) as f64 / passed.as_secs_f64();
            (self.counted_at, self.counted) = (Instant::now(), sold);
        }
        let full = (sold * BAR / self.stock as usize).min(BAR);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
        let (sold, rate) = (thousands(sold), self.rate);
        self.line = format!("  [{bar}] {sold:>5} of {} sold, {rate:>3.0}/s; {lock}", thousands(self.stock as usize));
        if self.terminal {
            print!("\r\x1b[2K{:.79}", self.line); // a longer one would wrap and stay behind
            let _ = std::io::stdout().flush(); // a closed terminal is no reason to stop selling
        } else if self.shown_at.elapsed() >= Duration::from_secs(1) {
            self.show();
        }
    }

    /// Ends the line, so that later output goes below.
    pub fn settle(&mut self) {
        if self.terminal && !self.line.is_empty() {
            println!();
        } else if !self.line.is_empty() {
            self.show();
        }
        self.line.clear();
    }

    fn show(&mut self) {
        println!("{}", self.line);
        self.line.clear();
        self.shown_at = Instant::now();
    }
}

/// Writes 2000 as 2,000.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const BAR: usize = 10;
