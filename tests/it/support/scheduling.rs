//! The delay that the machine may add to a time that the library promises.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::{Add, Div, Mul};
use std::sync::{LazyLock, Mutex, PoisonError};

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
        self.0 + stood_still()
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

/// The times in which a thread that sleeps a little was kept from waking for a while.
struct Standstills {
    seen: VecDeque<(Instant, Duration)>,
    /// The last time at which the thread was awake.
    awake: Instant,
}

static SEEN: LazyLock<Mutex<Standstills>> = LazyLock::new(|| {
    thread::spawn(watch);
    Mutex::new(Standstills { seen: VecDeque::new(), awake: Instant::now() })
});

/// Begins to notice when the machine stands still; called before the times that count.
pub(crate) fn watch_the_machine() {
    LazyLock::force(&SEEN);
}

fn watch() {
    loop {
        thread::sleep(NAP);
        let mut standstills = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        standstills.awake(Instant::now());
    }
}

fn stood_still() -> Duration {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).lately(Instant::now())
}

impl Standstills {
    fn awake(&mut self, now: Instant) {
        let late = self.late(now);
        if !late.is_zero() {
            self.seen.push_back((now, late));
        }
        self.awake = now;
        self.seen.retain(|(when, _)| now.duration_since(*when) < LATELY);
    }

    /// How much longer than usual the thread has slept.
    fn late(&self, now: Instant) -> Duration {
        let late = now.saturating_duration_since(self.awake).saturating_sub(NAP);
        if late < USUAL { Duration::ZERO } else { late }
    }

    fn lately(&self, now: Instant) -> Duration {
        self.seen.iter().map(|(_, late)| *late).sum::<Duration>() + self.late(now)
    }
}

const NAP: Duration = Duration::from_millis(20);
/// The delay that two busy cores cause all the time.
const USUAL: Duration = Duration::from_millis(100);
/// As long as most of the times that are judged.
const LATELY: Duration = Duration::from_secs(10);

#[test]
fn only_a_standstill_of_late_counts() {
    let start = Instant::now();
    let mut standstills = Standstills { seen: VecDeque::new(), awake: start };
    let mut lately = |millis| {
        let now = start + Duration::from_millis(millis);
        let before = standstills.lately(now);
        standstills.awake(now);
        (before.as_millis(), standstills.lately(now).as_millis())
    };
    assert_eq!(lately(20), (0, 0));
    assert_eq!(lately(90), (0, 0));
    assert_eq!(lately(1_610), (1_500, 1_500));
    assert_eq!(lately(1_930), (1_800, 1_800));
    assert_eq!(lately(11_620), (11_470, 9_970));
}
