//! Both languages under load on the same names.

mod fairness;
mod handover;
mod moves;
mod order;
mod soak;

use std::ops::AddAssign;

use crate::program::{Cast, Seat};
use crate::site::Site;
use crate::verdict::{Score, Verdict};
use lockson_harness::{Answer, Peer, clock};

pub(crate) use fairness::{Fairness, GRACE_MS, LEAST_SHARE, STARVED, THREADS, fairness};
pub(crate) use handover::handover;
pub(crate) use order::order;
pub(crate) use soak::soak;

/// A peer with one client.
fn open(site: Site<'_>, cast: &Cast, seat: Seat, options: &str) -> Peer {
    Peer::open(cast.of(seat).command(), &format!("{}{options}", site.options()))
}

/// A claim about a load, and the verdict.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) claim: String,
    pub(crate) verdict: Verdict,
}

impl Loaded {
    fn new(claim: String, verdict: Verdict, score: &Score) -> Self {
        score.count(&claim, &verdict);
        Self { claim, verdict }
    }
}

/// The sums of the load loops' answers.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    grants: i64,
    lost: i64,
    errors: i64,
    violations: i64,
    takeovers: i64,
    longest_wait_ms: f64,
}

impl Totals {
    fn of(answer: &Answer) -> Self {
        let longest = u64::try_from(answer.number("longest_wait_ns")).unwrap_or(0);
        Self {
            grants: answer.number("grants"),
            lost: answer.number("lost"),
            errors: answer.number("errors"),
            violations: answer.number("violations"),
            takeovers: answer.number("takeovers"),
            longest_wait_ms: clock::millis_between(0, longest),
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.grants += other.grants;
        self.lost += other.lost;
        self.errors += other.errors;
        self.violations += other.violations;
        self.takeovers += other.takeovers;
        self.longest_wait_ms = self.longest_wait_ms.max(other.longest_wait_ms);
    }
}
