//! Both languages under load on the same names.

mod fairness;
mod grants;
mod handover;
mod soak;

use lockson_harness::RedisServer;

use crate::peer::{Answer, Cast, Peer, Seat};
use crate::verdict::{Score, Verdict};

pub(crate) use fairness::fairness;
pub(crate) use handover::handover;
pub(crate) use soak::soak;

/// A peer with one client.
fn open(server: &RedisServer, cast: &Cast, seat: Seat, options: &str) -> Peer {
    let address = crate::percent::encode(&server.url());
    Peer::open(cast.of(seat), &format!("address={address}{options}"))
}

/// A claim about a load, and what came of it.
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

/// What load loops answered, added up.
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
    fn add(&mut self, answer: &Answer) {
        self.grants += answer.number("grants");
        self.lost += answer.number("lost");
        self.errors += answer.number("errors");
        self.violations += answer.number("violations");
        self.takeovers += answer.number("takeovers");
        let longest = u64::try_from(answer.number("longest_wait_ns")).unwrap_or(0);
        self.longest_wait_ms = self.longest_wait_ms.max(crate::clock::millis_between(0, longest));
    }
}
