//! One round of a lock on several servers: what the votes of the nodes mean together.

use std::time::Duration;

use crate::time::{Instant, up_to};

/// The answer of one node in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// The hold at this node is good until then.
    Granted { until: Instant },
    /// Another owner holds the lock at this node, for this time at most.
    Busy(Duration),
    /// No answer in time, so that the request may have run, or run later; an error; or a node that must not vote.
    Absent,
}

/// The meaning of a round. In all cases but the first, every node is told to give back, also the silent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Taken,
    /// Callers share the votes: ask again after this time, which no message shortens.
    Split {
        pause: Duration,
    },
    /// Another owner has the lock: ask again after a message of any node, or after this time.
    Busy {
        wait: Duration,
    },
    /// Too few nodes answered: an error if the time of the caller is up, else ask again after this time.
    TooFew {
        pause: Duration,
    },
}

/// More than half of the servers, so that two owners cannot both have them.
pub(super) fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// The rounds of one take.
#[derive(Clone, Debug)]
pub(crate) struct Votes {
    /// The number of grants that make a majority.
    pub(super) needed: usize,
    /// The bound of the next random pause.
    bound: Duration,
    /// The number of split votes in a row.
    splits: u32,
}

impl Votes {
    pub(crate) fn new(needed: usize) -> Self {
        Self { needed, bound: FIRST_BOUND, splits: 0 }
    }

    /// Judges a round that began at `sent`, by the votes of all nodes at one moment.
    pub(crate) fn verdict(
        &mut self,
        votes: &[Vote],
        sent: Instant,
        now: Instant,
        random: impl FnOnce() -> u64,
    ) -> Verdict {
        let needed = self.needed;
        let granted = votes.iter().filter(|vote| matches!(vote, Vote::Granted { until } if *until > now)).count();
        let busy = votes.iter().filter(|vote| matches!(vote, Vote::Busy(_))).count();
        let absent = votes.iter().filter(|vote| **vote == Vote::Absent).count();
        if granted >= needed {
            return Verdict::Taken;
        }
        if votes.len() - absent < needed {
            return Verdict::TooFew { pause: self.pause(sent.until(now), random) };
        }
        // A holder usually has all nodes that answer. A caller with some votes therefore met other callers, whose
        // messages would wake all of them at the same moment. Only a split that lasts is a holder without these nodes.
        if busy >= needed && (granted == 0 || self.splits >= MOST_SPLITS) {
            (self.splits, self.bound) = (0, FIRST_BOUND);
            return Verdict::Busy { wait: free_in(votes, needed).min(LONGEST_WAIT) };
        }
        self.splits += 1;
        Verdict::Split { pause: self.pause(sent.until(now), random) }
    }

    /// A pause after a round that took so long: callers with shorter pauses than rounds would meet again.
    fn pause(&mut self, took: Duration, random: impl FnOnce() -> u64) -> Duration {
        let most = self.bound.max(took * 2).min(LONGEST_BOUND);
        let least = most / 10;
        self.bound = (most * 2).min(LONGEST_BOUND);
        least + up_to(most - least, random())
    }
}

/// The time after which so many nodes are free at the latest.
fn free_in(votes: &[Vote], needed: usize) -> Duration {
    let free_in = |vote: &Vote| match vote {
        Vote::Granted { .. } => Some(Duration::ZERO),
        Vote::Busy(free_in) => Some(*free_in),
        Vote::Absent => None,
    };
    let mut times: Vec<Duration> = votes.iter().filter_map(free_in).collect();
    times.sort_unstable();
    times.get(needed - 1).copied().unwrap_or(LONGEST_WAIT)
}

/// The largest first pause: enough for a round of each of several callers on a fast link. The smallest is a tenth of
/// it. A caller meets an unfinished release as well, and a longer pause would leave the lock to others for many holds.
const FIRST_BOUND: Duration = Duration::from_millis(8);
const LONGEST_BOUND: Duration = Duration::from_millis(500);
/// The longest wait for a message, also when the message was lost.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Callers that share the votes part ways in fewer rounds.
const MOST_SPLITS: u32 = 5;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
