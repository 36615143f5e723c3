//! The delay that the machine may add to a time that the library promises.

use std::cmp::Ordering;
use std::ops::{Add, Div, Mul};
use std::sync::LazyLock;

use lockson_harness::Stalls;

use crate::support::prelude::*;

/// An allowance for a busy machine: a second, and the time for which this machine has just stood still. A machine that
/// stands still says nothing about the library, however long it does; a quiet machine gets no more than the second.
pub(crate) const SCHEDULING: Scheduling = Scheduling(Duration::from_secs(1));

/// As [`SCHEDULING`], without the second.
pub(crate) const STANDSTILLS: Scheduling = Scheduling(Duration::ZERO);

/// An allowance without the time of standing still; see [`SCHEDULING`].
#[derive(Clone, Copy)]
pub(crate) struct Scheduling(Duration);

impl Scheduling {
    /// The allowance at this moment.
    fn now(self) -> Duration {
        self.0 + SEEN.lately(LATELY)
    }
}

impl Add<Scheduling> for Duration {
    type Output = Self;

    fn add(self, allowance: Scheduling) -> Self {
        self + allowance.now()
    }
}

impl Mul<u32> for Scheduling {
    type Output = Self;

    fn mul(self, times: u32) -> Self {
        Self(self.0 * times)
    }
}

impl Div<u32> for Scheduling {
    type Output = Self;

    fn div(self, parts: u32) -> Self {
        Self(self.0 / parts)
    }
}

impl PartialEq<Scheduling> for Duration {
    fn eq(&self, allowance: &Scheduling) -> bool {
        *self == allowance.now()
    }
}

impl PartialOrd<Scheduling> for Duration {
    fn partial_cmp(&self, allowance: &Scheduling) -> Option<Ordering> {
        self.partial_cmp(&allowance.now())
    }
}

static SEEN: LazyLock<Stalls> = LazyLock::new(|| Stalls::watch(ms(20), USUAL));

/// Begins to notice when the machine stands still; called before the times that count.
pub(crate) fn watch_the_machine() {
    LazyLock::force(&SEEN);
}

/// The delay that two busy cores cause all the time.
const USUAL: Duration = ms(100);
/// As long as most of the times that are judged.
const LATELY: Duration = Duration::from_secs(10);
