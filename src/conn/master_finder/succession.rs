//! Which master counts, by the opinions of the sentinels: the master that most sentinels name, and never an older
//! epoch.

use std::collections::BTreeSet;

use crate::conn::address::Endpoint;

/// What one sentinel says.
pub(super) struct Opinion {
    /// The id of the sentinel, which is the same under each of its addresses.
    pub(super) id: String,
    pub(super) master: Endpoint,
    /// The number of the fail-over that made the master.
    pub(super) epoch: u64,
    /// How many sentinels this sentinel knows, itself included. A sentinel that is gone counts until it is forgotten.
    pub(super) known: usize,
    /// Whether the master answers the sentinel, and is not being replaced.
    pub(super) is_calm: bool,
    /// The ids and the places of the others; `None` where the sentinel does not tell.
    pub(super) others: Option<Vec<(String, Endpoint)>>,
}

/// The sentinels that must agree, and the master that was accepted last.
pub(super) struct Succession {
    /// The number of sentinels that the user named.
    named: usize,
    /// How many sentinels there are, by those that answered last.
    pub(super) known: usize,
    /// That of the last accepted master.
    pub(super) epoch: Option<u64>,
}

impl Succession {
    pub(super) fn among(named: usize) -> Self {
        Self { named, known: named, epoch: None }
    }

    /// Counts the sentinels, where any answered. More than the user named may exist, and one sentinel may not know all
    /// others: the largest number counts, so that two majorities always share a sentinel.
    pub(super) fn count(&mut self, opinions: &[Opinion]) {
        if let Some(known) = opinions.iter().map(|opinion| opinion.known).max() {
            self.known = known.max(self.named);
        }
    }

    /// Returns the master that counts, or why there is none. `opinions` has one opinion of each sentinel at most.
    pub(super) fn decide(&mut self, opinions: &[Opinion]) -> Result<Endpoint, String> {
        self.count(opinions);
        let (known, answered, needed) = (self.known, opinions.len(), most_of(self.known));
        if answered < needed {
            return Err(format!("{answered} of {known} sentinels answer, and {needed} must agree"));
        }
        let count = |master: &Endpoint| opinions.iter().filter(|opinion| opinion.master == *master).count();
        let Some(Opinion { master, .. }) = opinions.iter().find(|opinion| count(&opinion.master) >= needed) else {
            let named = |Opinion { master, .. }: &Opinion| format!("{} name {master}", count(master));
            let named: Vec<_> = opinions.iter().map(named).collect::<BTreeSet<_>>().into_iter().collect();
            return Err(format!("of {known} sentinels {}, and {needed} must agree", named.join(", ")));
        };
        // Sentinels that restarted from an old file name an old master until another sentinel tells them.
        let epochs = opinions.iter().filter(|opinion| opinion.master == *master).map(|opinion| opinion.epoch);
        let mut epochs: Vec<_> = epochs.collect();
        epochs.sort_unstable_by(|one, other| other.cmp(one));
        let epoch = epochs[needed - 1];
        match self.epoch {
            Some(accepted) if epoch < accepted => Err(format!(
                "the sentinels name {master} of epoch {epoch}, but a master of epoch {accepted} was known before; \
                 where the sentinels were set up anew, open the client anew, too"
            )),
            _ => {
                self.epoch = Some(epoch);
                Ok(master.clone())
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

    impl Opinion {
        pub(in crate::conn::master_finder) fn of(id: &str, master: &str, epoch: u64, known: usize) -> Self {
            Self { id: id.into(), master: at(master), epoch, known, is_calm: true, others: None }
        }
    }

    fn at(host: &str) -> Endpoint {
        Endpoint::Tcp(host.into(), 1)
    }

    #[test]
    fn the_master_of_most_known_sentinels_counts() {
        let check = |named, opinions: &[(&str, &str, usize)], wanted: Result<&str, &str>| {
            let opinions: Vec<_> =
                opinions.iter().map(|(id, master, known)| Opinion::of(id, master, 0, *known)).collect();
            assert_eq!(Succession::among(named).decide(&opinions), wanted.map(at).map_err(str::to_owned));
        };
        let (a, b, c) = (("1", "a", 3), ("2", "a", 3), ("3", "b", 3));
        check(3, &[a, b, c], Ok("a"));
        check(1, &[a, b], Ok("a"));
        check(3, &[a, c], Err("of 3 sentinels 1 name a:1, 1 name b:1, and 2 must agree"));
        check(1, &[a], Err("1 of 3 sentinels answer, and 2 must agree"));
        check(5, &[a, b], Err("2 of 5 sentinels answer, and 3 must agree"));
        check(1, &[a, ("2", "a", 1)], Ok("a")); // one that was just started knows no other one
        check(1, &[("1", "a", 1)], Ok("a"));
        check(4, &[], Err("0 of 4 sentinels answer, and 3 must agree"));
    }

    #[test]
    fn an_epoch_never_goes_back() {
        let mut succession = Succession::among(3);
        let mut check = |master: &str, epochs: [u64; 3], older_than: Option<u64>| {
            let decided = succession.decide(&[0, 1, 2].map(|id| Opinion::of(&id.to_string(), master, epochs[id], 3)));
            match older_than {
                None => assert_eq!(decided, Ok(at(master))),
                Some(epoch) => assert!(decided.unwrap_err().contains(&format!("a master of epoch {epoch} was known"))),
            }
        };
        check("a", [4, 4, 4], None);
        check("b", [5, 5, 4], None);
        check("a", [4, 4, 4], Some(5));
        check("a", [4, 4, 9], Some(5)); // one sentinel with a new epoch makes no majority of it
        check("b", [5, 6, 6], None);
        check("b", [5, 5, 6], Some(6));
    }
}
