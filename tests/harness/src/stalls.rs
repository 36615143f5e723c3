//! Moments at which this process did not run: no program could have been in time then.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A thread that wakes after each nap and records each late wake-up.
#[derive(Debug)]
pub struct Stalls(Arc<Mutex<Seen>>);

#[derive(Debug)]
struct Seen {
    nap: Duration,
    /// Any sleep may take this much longer, so less does not count.
    noticed: Duration,
    /// From the due wake-up to the actual wake-up.
    stalls: Vec<(Instant, Instant)>,
    /// The next wake-up.
    due: Instant,
}

impl Stalls {
    /// Begins to watch, with naps of this length; notices what takes so much longer.
    pub fn watch(nap: Duration, noticed: Duration) -> Stalls {
        let seen = Arc::new(Mutex::new(Seen::new(nap, noticed, Instant::now())));
        let watched = Arc::downgrade(&seen);
        thread::spawn(move || {
            while let Some(seen) = watched.upgrade() {
                seen.lock().wake(Instant::now());
                drop(seen);
                thread::sleep(nap);
            }
        });
        Stalls(seen)
    }

    /// How long this process stood still between two moments.
    pub fn between(&self, from: Instant, to: Instant) -> Duration {
        let overlap = |(due, came): (Instant, Instant)| came.min(to).saturating_duration_since(due.max(from));
        self.0.lock().until(to).map(overlap).sum()
    }

    /// How long the stalls took that ended within this time, or have not ended.
    pub fn lately(&self, within: Duration) -> Duration {
        self.0.lock().lately(within, Instant::now())
    }
}

impl Seen {
    fn new(nap: Duration, noticed: Duration, now: Instant) -> Self {
        Self { nap, noticed, stalls: vec![], due: now + nap }
    }

    fn wake(&mut self, now: Instant) {
        self.stalls.extend(self.goes_on(now));
        self.due = now + self.nap;
    }

    /// The stall of this moment.
    fn goes_on(&self, now: Instant) -> Option<(Instant, Instant)> {
        (now > self.due + self.noticed).then_some((self.due, now))
    }

    fn until(&self, now: Instant) -> impl Iterator<Item = (Instant, Instant)> {
        self.stalls.iter().copied().chain(self.goes_on(now))
    }

    fn lately(&self, within: Duration, now: Instant) -> Duration {
        let of_late = self.until(now).filter(|(_, came)| now.saturating_duration_since(*came) < within);
        of_late.map(|(due, came)| came - due).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAP: Duration = Duration::from_millis(20);

    #[test]
    fn a_stall_counts_as_far_as_it_lies_between_the_moments() {
        let start = Instant::now() + Duration::from_secs(60);
        let at = |millis| start + Duration::from_millis(millis);
        let seen = Seen { stalls: vec![(at(0), at(50)), (at(100), at(130))], ..Seen::new(NAP, NAP, at(200)) };
        let stalls = Stalls(Arc::new(Mutex::new(seen)));
        assert_eq!(stalls.between(at(40), at(110)), Duration::from_millis(20));
        assert_eq!(stalls.between(at(50), at(100)), Duration::ZERO);
        assert_eq!(stalls.between(at(120), at(250)), Duration::from_millis(40), "the last one goes on");
    }

    #[test]
    fn only_a_stall_of_late_counts() {
        let start = Instant::now();
        let mut seen = Seen::new(NAP, NAP * 5, start);
        let mut lately = |millis| {
            let now = start + Duration::from_millis(millis);
            let before = seen.lately(Duration::from_secs(10), now);
            seen.wake(now);
            (before.as_millis(), seen.lately(Duration::from_secs(10), now).as_millis())
        };
        assert_eq!(lately(20), (0, 0));
        assert_eq!(lately(90), (0, 0));
        assert_eq!(lately(1_610), (1_500, 1_500));
        assert_eq!(lately(1_930), (1_800, 1_800));
        assert_eq!(lately(11_620), (9_970, 9_970));
    }
}
