//! Who held which lock, how many waited, and whose time ran out, as far as looks at the locks saw.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use lockson::Inspection;
use serde_json::{Value, json};

use crate::output::{place, waiting};

/// What the looks of the last five minutes saw.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The time of the first look.
    began: Option<Instant>,
    /// Nothing is known of a longer time between two looks.
    longest_gap: Duration,
    locks: BTreeMap<String, History>,
}

#[derive(Debug, Default)]
struct History {
    /// By the owners; an empty text while the lock was free.
    holds: VecDeque<Stretch>,
    waits: VecDeque<Stretch>,
    ran_out: VecDeque<(String, Instant)>,
    /// When the present hold ends unless it is renewed.
    end: Option<Instant>,
}

/// A time in which each look saw the same.
#[derive(Debug)]
struct Stretch {
    what: String,
    /// The process of an only owner.
    at: Option<String>,
    from: Instant,
    to: Instant,
}

/// What a look saw of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    name: String,
    owners: String,
    /// The process of an only owner.
    at: Option<String>,
    waiting: u64,
    /// The time to live of an only holder.
    remaining: Option<Duration>,
}

impl Look {
    pub(crate) fn of(inspection: &Inspection) -> Self {
        let mut holders: Vec<_> = inspection.holders().iter().collect();
        holders.sort_unstable_by_key(|holder| holder.owner());
        let at = if let [only] = holders[..] { only.client().map(|client| place(Some(client))) } else { None };
        let mut owners: Vec<_> = holders.iter().map(|holder| holder.owner()).collect();
        let more = owners.len().saturating_sub(MOST_OWNERS);
        owners.truncate(MOST_OWNERS);
        let more = if more > 0 { format!(" and {more} others") } else { String::new() };
        let remaining = match inspection.holders() {
            [only] => only.remaining().or(inspection.remaining()),
            _ => None,
        };
        let name = inspection.name().to_owned();
        Self { name, owners: owners.join(", ") + &more, at, waiting: waiting(inspection), remaining }
    }
}

impl Seen {
    pub(crate) fn new(longest_gap: Duration) -> Self {
        Self { began: None, longest_gap, locks: BTreeMap::new() }
    }

    /// Adds a look that was asked for and answered at these times. A lock that a look at all locks did not find is free;
    /// a lock that a cut list lacks keeps its last state.
    pub(crate) fn add(&mut self, asked: Instant, now: Instant, found: impl Iterator<Item = Look>, is_cut: bool) {
        self.began.get_or_insert(now);
        let mut found: BTreeMap<_, _> = found.map(|look| (look.name.clone(), look)).collect();
        self.locks.retain(|name, history| {
            let look = found.remove(name);
            if look.is_none() && is_cut {
                history.end = None;
                return history.holds.back().is_some_and(|last| last.to + KEPT >= now);
            }
            history.add(asked, now, look, self.longest_gap);
            !history.is_over()
        });
        for (name, look) in found {
            self.locks.entry(name).or_default().add(asked, now, Some(look), self.longest_gap);
        }
    }

    /// How long each look has seen the present holders.
    pub(crate) fn held_for(&self, name: &str) -> Option<Duration> {
        let last = self.locks.get(name)?.holds.back()?;
        (!last.what.is_empty()).then(|| last.to.duration_since(last.from))
    }

    /// How often a second others became the holders.
    pub(crate) fn hand_overs(&self, name: &str, now: Instant) -> f64 {
        let holds = self.locks.get(name).into_iter().flat_map(|history| &history.holds);
        let began = self.began.unwrap_or(now);
        let is_new = |hold: &&Stretch| !hold.what.is_empty() && hold.from > began && hold.from + KEPT > now;
        let time = now.duration_since(began).min(KEPT);
        holds.filter(is_new).count() as f64 / time.as_secs_f64().max(1.0)
    }

    /// The history of a lock, with times in milliseconds before now.
    pub(crate) fn json(&self, name: &str, now: Instant) -> Value {
        let ago = |at: Instant| u64::try_from(now.duration_since(at).as_millis()).unwrap_or(u64::MAX);
        let part = |it: &Stretch| json!({ "what": it.what, "at": it.at, "from_ms": ago(it.from), "to_ms": ago(it.to) });
        let Some(history) = self.locks.get(name) else { return json!({ "holds": [], "waits": [], "ran_out": [] }) };
        json!({
            "holds": history.holds.iter().map(part).collect::<Vec<_>>(),
            "waits": history.waits.iter().map(part).collect::<Vec<_>>(),
            "ran_out": history.ran_out.iter().map(|(owner, at)| json!({ "owner": owner, "ms": ago(*at) })).collect::<Vec<_>>(),
        })
    }
}

impl History {
    fn add(&mut self, asked: Instant, now: Instant, look: Option<Look>, longest_gap: Duration) {
        let free = Look { name: String::new(), owners: String::new(), at: None, waiting: 0, remaining: None };
        let look = look.unwrap_or(free);
        if let (Some(last), Some(end)) = (self.holds.back(), self.end)
            && last.what != look.owners
            && end <= now
            && now.duration_since(last.to) <= longest_gap
        {
            self.ran_out.push_back((last.what.clone(), end));
        }
        // The server looked after it was asked, so its hold does not end before this.
        self.end = look.remaining.and_then(|left| asked.checked_add(left));
        let waits = if look.waiting > 0 { format!("{} waiting", look.waiting) } else { String::new() };
        for (stretches, what, at) in [(&mut self.holds, look.owners, look.at), (&mut self.waits, waits, None)] {
            let last = stretches.back_mut().filter(|last| now.duration_since(last.to) <= longest_gap);
            let is_same = last.as_ref().is_some_and(|last| last.what == what);
            if let Some(last) = last {
                last.to = now;
                if is_same && last.at.is_none() {
                    last.at.clone_from(&at);
                }
            }
            if !is_same {
                stretches.push_back(Stretch { what, at, from: now, to: now });
            }
            while stretches.front().is_some_and(|first| first.to + KEPT < now) {
                stretches.pop_front();
            }
        }
        while self.ran_out.front().is_some_and(|(_, at)| *at + KEPT < now) {
            self.ran_out.pop_front();
        }
    }

    /// Whether there is nothing left to tell.
    fn is_over(&self) -> bool {
        self.ran_out.is_empty() && self.holds.iter().chain(&self.waits).all(|stretch| stretch.what.is_empty())
    }
}

pub(crate) const KEPT: Duration = Duration::from_secs(300);
const MOST_OWNERS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn look(owners: &str, waiting: u64, remaining: u64) -> Look {
        let remaining = Some(Duration::from_secs(remaining));
        let at = (!owners.is_empty()).then_some("till-3");
        Look { name: "a".into(), owners: owners.into(), at: at.map(str::to_owned), waiting, remaining }
    }

    /// Plays looks at these seconds. Returns what was seen at the last one.
    fn seen(looks: &[(u64, Option<Look>)]) -> (Seen, Instant) {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut seen = Seen::new(Duration::from_secs(5));
        for (seconds, look) in looks {
            seen.add(at(*seconds), at(*seconds), look.iter().cloned(), false);
        }
        (seen, at(looks.last().unwrap().0))
    }

    #[test]
    fn a_history_tells_who_held_and_who_waited() {
        let looks = [(0, Some(look("x", 0, 30))), (2, Some(look("x", 2, 30))), (3, Some(look("y", 0, 30))), (5, None)];
        let (seen, now) = seen(&looks);
        let part = |what: &str, from: u64, to: u64| {
            let at = ["x", "y"].contains(&what).then_some("till-3");
            json!({ "what": what, "at": at, "from_ms": from, "to_ms": to })
        };
        let told = seen.json("a", now);
        assert_eq!(told["holds"], json!([part("x", 5_000, 2_000), part("y", 2_000, 0), part("", 0, 0)]));
        assert_eq!(told["waits"], json!([part("", 5_000, 3_000), part("2 waiting", 3_000, 2_000), part("", 2_000, 0)]));
        assert_eq!((told["ran_out"].clone(), seen.held_for("a")), (json!([]), None));
    }

    #[test]
    fn only_a_hold_past_its_time_ran_out() {
        let (seen, now) = seen(&[(0, Some(look("x", 0, 3))), (2, Some(look("y", 0, 3))), (5, None)]);
        assert_eq!(seen.json("a", now)["ran_out"], json!([{ "owner": "y", "ms": 0 }]));
    }

    #[test]
    fn a_hold_that_a_slow_look_saw_ran_out() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut seen = Seen::new(Duration::from_secs(5));
        seen.add(at(0), at(2), [look("x", 0, 3)].into_iter(), false);
        seen.add(at(3), at(4), [].into_iter(), false);
        assert_eq!(seen.json("a", at(4))["ran_out"], json!([{ "owner": "x", "ms": 1_000 }]));
    }

    #[test]
    fn nothing_is_told_of_a_time_without_looks() {
        let (seen, now) =
            seen(&[(0, Some(look("x", 0, 90))), (1, Some(look("x", 0, 90))), (60, Some(look("x", 0, 30)))]);
        let told = seen.json("a", now);
        let part = |from: u64, to: u64| json!({ "what": "x", "at": "till-3", "from_ms": from, "to_ms": to });
        assert_eq!(told["holds"], json!([part(60_000, 59_000), part(0, 0)]));
        assert_eq!(seen.held_for("a"), Some(Duration::ZERO));
    }

    #[test]
    fn a_list_that_was_cut_frees_no_lock() {
        let (mut seen, now) = seen(&[(0, Some(look("x", 0, 90))), (2, Some(look("x", 0, 90)))]);
        let second = Duration::from_secs(1);
        seen.add(now, now + second, [].into_iter(), true);
        seen.add(now + second, now + 2 * second, [look("x", 0, 90)].into_iter(), false);
        assert_eq!(seen.held_for("a"), Some(4 * second));
        seen.add(now + 2 * KEPT, now + 2 * KEPT, [].into_iter(), true);
        assert!(seen.locks.is_empty());
    }

    #[test]
    fn hand_overs_are_those_of_the_last_minutes() {
        let others = [(0, Some(look("x", 0, 9))), (2, Some(look("y", 0, 9))), (3, None), (4, Some(look("y", 0, 9)))];
        let (seen, now) = seen(&others);
        assert_eq!(seen.hand_overs("a", now), 0.5);
        assert_eq!(seen.hand_overs("a", now + KEPT), 0.0);
    }

    #[test]
    fn the_holder_at_the_first_look_took_over_from_nobody() {
        let (seen, now) = seen(&[(1, Some(look("x", 0, 9))), (2, Some(look("x", 0, 9)))]);
        assert_eq!(seen.hand_overs("a", now), 0.0);
    }

    #[test]
    fn a_lock_that_was_free_for_long_is_forgotten() {
        let mut looks = vec![(0, Some(look("x", 0, 30))), (1, None)];
        looks.extend((2..310).map(|second| (second, None)));
        assert!(seen(&looks[..300]).0.locks.contains_key("a"));
        assert!(seen(&looks).0.locks.is_empty());
    }
}
