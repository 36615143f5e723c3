//! The locks to check: at once, unless a lock was checked a moment ago.

use std::time::Duration;

use crate::name::LockName;
use crate::system::{HashMap, HashSet};
use crate::time::Instant;

/// The locks of one server whose keys changed.
///
/// Where a client writes to a key all the time, one check covers all changes while the name rests.
#[derive(Debug, Default)]
pub(crate) struct CheckLimiter {
    waiting: HashSet<LockName>,
    /// The names that were checked lately, with the time of the check and the number of their holds.
    resting: HashMap<LockName, (Instant, usize)>,
}

impl CheckLimiter {
    /// Adds names to check. Returns whether one of them is due at once.
    pub(crate) fn add(&mut self, names: impl IntoIterator<Item = LockName>) -> bool {
        let mut at_once = false;
        for name in names {
            at_once |= !self.resting.contains_key(&name);
            self.waiting.insert(name);
        }
        at_once
    }

    /// Takes the names that are due now; `holds` counts the holds that the check of a name asks about.
    pub(crate) fn take(&mut self, now: Instant, mut holds: impl FnMut(&LockName) -> usize) -> Vec<LockName> {
        let rest = self.rest();
        self.resting.retain(|_, (asked, _)| asked.after(rest) > now);
        let due: Vec<LockName> = self.waiting.extract_if(|name| !self.resting.contains_key(name)).collect();
        self.resting.extend(due.iter().map(|name| (name.clone(), (now, holds(name).max(1)))));
        due
    }

    /// Returns the end of the first rest, when changes meanwhile are checked; `None` if no name rests.
    pub(crate) fn next(&self) -> Option<Instant> {
        let first = self.resting.values().map(|(asked, _)| *asked).min()?;
        Some(first.after(self.rest()))
    }

    /// The rest grows with the number of holds of the resting names, so that all checks together are bounded, too.
    fn rest(&self) -> Duration {
        let others: usize = self.resting.values().map(|(_, holds)| holds).sum();
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        REST + SHARE.saturating_mul(others)
    }
}

/// Allows 25 checks a second of a busy name.
const REST: Duration = Duration::from_millis(40);
/// Allows 5,000 checks a second of all holds of busy names together.
const SHARE: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> LockName {
        LockName::new(&format!("n{number}")).unwrap()
    }

    fn at(micros: u64) -> Instant {
        Instant::from_millis(1_000_000).after(Duration::from_micros(micros))
    }

    /// The number of checks in a second in which each of so many names, with so many holds, changes all the time.
    fn questions_in_a_second(names: usize, holds: usize) -> usize {
        let mut questions = CheckLimiter::default();
        let mut asked = 0;
        for step in 0..200 {
            questions.add((0..names).map(name));
            asked += questions.take(at(step * 5_000), |_| holds).len() * holds;
        }
        asked
    }

    #[test]
    fn the_first_question_is_asked_at_once_and_the_next_one_rests() {
        let mut questions = CheckLimiter::default();
        assert_eq!(questions.next(), None);
        assert!(questions.add([name(1), name(1)]), "at once");
        assert_eq!(questions.take(at(0), |_| 1), [name(1)]);
        assert_eq!(questions.take(at(0), |_| 1), []);
        assert!(!questions.add([name(1)]), "it rests");
        assert!(questions.add([name(1), name(2)]));
        assert_eq!(questions.take(at(1), |_| 1), [name(2)], "another name does not rest for it");
        let next = questions.next().expect("one waits");
        assert!(next > at(1) && next < at(50_000), "{next:?}");
        assert_eq!(questions.take(next.before(Duration::from_micros(1)), |_| 1), []);
        assert_eq!(questions.take(next, |_| 1), [name(1)]);
        let rested = questions.next().expect("both rest");
        assert_eq!(questions.take(rested.after(REST * 2), |_| 1), []);
        assert_eq!(questions.next(), None, "nobody rests");
    }

    #[test]
    fn a_busy_name_costs_a_bounded_number_of_questions() {
        let asked = questions_in_a_second(1, 1);
        assert!((20..=26).contains(&asked), "{asked}");
    }

    #[test]
    fn many_busy_names_share_what_a_server_can_bear() {
        let asked = questions_in_a_second(1_000, 1);
        assert!((4_000..=8_000).contains(&asked), "{asked}");
    }

    #[test]
    fn holds_of_one_busy_name_share_it_too() {
        let asked = questions_in_a_second(1, 1_000);
        assert!((4_000..=8_000).contains(&asked), "{asked}");
    }

    #[test]
    fn no_name_is_forgotten_and_nothing_is_kept() {
        let mut questions = CheckLimiter::default();
        questions.add((0..10_000).map(name));
        assert_eq!(questions.take(at(0), |_| 1).len(), 10_000);
        questions.add((0..10_000).map(name));
        let next = questions.next().expect("all wait");
        assert_eq!(questions.take(next, |_| 1).len(), 10_000);
        questions.add([name(0)]);
        questions.take(at(100_000_000), |_| 1);
        assert_eq!(questions.resting.into_values().collect::<Vec<_>>(), [(at(100_000_000), 1)]);
    }
}
