//! Which master counts, by the opinions of the sentinels: the one that most of them name, and never an older epoch.

use crate::conn::address::Endpoint;

/// What one sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opinion {
    /// The id of the sentinel, which is the same under each of its addresses.
    pub(super) id: String,
    pub(super) master: Endpoint,
    /// The number of the fail-over that made the master.
    pub(super) epoch: u64,
    /// How many sentinels this sentinel knows, itself included. A sentinel that is gone counts until it is forgotten.
    pub(super) known: usize,
}

/// The master that was accepted last.
#[derive(Default)]
pub(super) struct Succession {
    epoch: Option<u64>,
}

/// Why no master is accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// So many sentinels answered, of those that are known.
    TooFew { answered: usize, known: usize },
    /// The masters, and how many sentinels name each.
    Disagreement { named: Vec<(Endpoint, usize)>, known: usize },
    /// Most sentinels name a master of an earlier epoch than the one that was accepted before.
    Older { master: Endpoint, epoch: u64, accepted: u64 },
}

impl Succession {
    /// Whether a master was ever accepted.
    pub(super) fn has_begun(&self) -> bool {
        self.epoch.is_some()
    }

    /// Counts the opinions; `configured` is the number of sentinels that the user named.
    ///
    /// More sentinels than the user named may exist, and one sentinel may not know all others. The largest number
    /// counts, so that two majorities always share a sentinel.
    pub(super) fn decide(&mut self, configured: usize, opinions: &[Opinion]) -> Result<Endpoint, Doubt> {
        let mut opinions: Vec<&Opinion> = opinions.iter().collect();
        opinions.sort_by(|one, other| one.id.cmp(&other.id));
        opinions.dedup_by(|one, other| one.id == other.id);
        let known = opinions.iter().map(|opinion| opinion.known).fold(configured, usize::max);
        let needed = most_of(known);
        if opinions.len() < needed {
            return Err(Doubt::TooFew { answered: opinions.len(), known });
        }
        let count = |master: &Endpoint| opinions.iter().filter(|opinion| opinion.master == *master).count();
        let Some(elected) = opinions.iter().find(|opinion| count(&opinion.master) >= needed) else {
            let mut named: Vec<(Endpoint, usize)> = vec![];
            for opinion in &opinions {
                if !named.iter().any(|(master, _)| *master == opinion.master) {
                    named.push((opinion.master.clone(), count(&opinion.master)));
                }
            }
            return Err(Doubt::Disagreement { named, known });
        };
        // Sentinels that restarted from an old file name an old master until another sentinel tells them.
        let mut epochs: Vec<_> =
            opinions.iter().filter(|opinion| opinion.master == elected.master).map(|opinion| opinion.epoch).collect();
        epochs.sort_unstable_by(|one, other| other.cmp(one));
        let epoch = epochs[needed - 1];
        match self.epoch {
            Some(accepted) if epoch < accepted => Err(Doubt::Older { master: elected.master.clone(), epoch, accepted }),
            _ => {
                self.epoch = Some(epoch);
                Ok(elected.master.clone())
            }
        }
    }
}

/// The smallest number that is more than half.
pub(super) fn most_of(known: usize) -> usize {
    known / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Endpoint {
        Endpoint::Tcp(host.into(), 1)
    }

    fn opinion(id: &str, master: &str, epoch: u64, known: usize) -> Opinion {
        Opinion { id: id.into(), master: at(master), epoch, known }
    }

    #[test]
    fn the_master_of_most_known_sentinels_counts() {
        let decide = |configured, opinions: &[Opinion]| Succession::default().decide(configured, opinions);
        let (a, b, c) = (opinion("1", "a", 0, 3), opinion("2", "a", 0, 3), opinion("3", "b", 0, 3));
        assert_eq!(decide(3, &[a.clone(), b.clone(), c.clone()]), Ok(at("a")));
        assert_eq!(decide(1, &[a.clone(), b.clone()]), Ok(at("a")));
        let named = vec![(at("a"), 1), (at("b"), 1)];
        assert_eq!(decide(3, &[a.clone(), c]), Err(Doubt::Disagreement { named, known: 3 }));
        assert_eq!(decide(1, std::slice::from_ref(&a)), Err(Doubt::TooFew { answered: 1, known: 3 }));
        assert_eq!(decide(5, &[a.clone(), b.clone()]), Err(Doubt::TooFew { answered: 2, known: 5 }));
        // A sentinel that was just started knows no other one.
        let fresh = Opinion { known: 1, ..b };
        assert_eq!(decide(1, &[a, fresh]), Ok(at("a")));
        assert_eq!(decide(1, &[opinion("1", "a", 0, 1)]), Ok(at("a")));
        assert_eq!(decide(4, &[]), Err(Doubt::TooFew { answered: 0, known: 4 }));
    }

    #[test]
    fn a_sentinel_with_two_addresses_counts_once() {
        let opinions = [opinion("1", "a", 0, 3), opinion("1", "a", 0, 3)];
        assert_eq!(Succession::default().decide(2, &opinions), Err(Doubt::TooFew { answered: 1, known: 3 }));
    }

    #[test]
    fn an_epoch_never_goes_back() {
        let mut succession = Succession::default();
        let opinions = |master: &str, epochs: [u64; 3]| {
            [0, 1, 2].map(|id| opinion(&id.to_string(), master, epochs[id], 3)).to_vec()
        };
        assert_eq!(succession.decide(3, &opinions("a", [4, 4, 4])), Ok(at("a")));
        assert_eq!(succession.decide(3, &opinions("b", [5, 5, 4])), Ok(at("b")));
        let older = |master: &str, epoch| Err(Doubt::Older { master: at(master), epoch, accepted: 5 });
        assert_eq!(succession.decide(3, &opinions("a", [4, 4, 4])), older("a", 4));
        // One sentinel with a new epoch makes no majority of it.
        assert_eq!(succession.decide(3, &opinions("a", [4, 4, 9])), older("a", 4));
        assert_eq!(succession.decide(3, &opinions("b", [5, 6, 6])), Ok(at("b")));
        assert_eq!(
            succession.decide(3, &opinions("b", [5, 5, 6])),
            Err(Doubt::Older { master: at("b"), epoch: 5, accepted: 6 })
        );
    }
}
