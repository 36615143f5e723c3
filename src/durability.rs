//! The copies without which a grant does not count: at replicas of the server, or on a disk.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Refusal, Result};

/// What a lock must have reached before it counts as taken: replicas, or the disk of the server.
///
/// Without the setting a lock counts when granted by the server. A fail-over to a replica that lacks the grant gives
/// the lock to another client, and both believe that they hold it. With this setting the client waits for the replicas
/// after each grant, each re-entry, each [`extend`](crate::Hold::extend) and each renewal, by `WAIT` or
/// `WAITAOF` of Redis. A grant that does not reach them in time is given back, and the call fails with
/// [`ErrorKind::NotDurable`]; a renewal that does not reach them does not prolong the hold, so a holder that is cut off
/// with an old master loses its lock before the lock expires at the replicas.
///
/// `WAIT` is no consensus: a fail-over may promote a replica that lacks the grant. Wait for all replicas, or let the
/// fail-over choose the replica with the newest data, as Sentinel does among replicas of equal priority. A master
/// without enough replicas grants nothing, and holders lose their locks when their lease is over.
///
/// ```no_run
/// # use std::time::Duration;
/// # use lockson::{Client, Durability};
/// # let client = Client::connect("redis://localhost")?;
/// let copied = Durability::replicas(1).within(Duration::from_millis(200));
/// let guard = client.get_lock("payout:7").with_durability(copied).lock()?; // one replica has it
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Durability {
    replicas: u8,
    fsync: bool,
    /// The number of replicas that must have the grant on their disks.
    disks: u8,
    within: Duration,
    best_effort: bool,
    /// Whether the disk is wished for by a merged setting with best effort only, and the rest is needed.
    wishes_disk: bool,
}

impl Durability {
    /// Waits until so many replicas have the grant. Zero is for [`with_fsync`](Self::with_fsync) alone.
    ///
    /// ```
    /// # use lockson::Durability;
    /// let one = Durability::replicas(1);
    /// assert_ne!(one, Durability::replicas(2));
    /// ```
    #[must_use]
    pub const fn replicas(count: u8) -> Self {
        let within = Duration::from_secs(1);
        Self { replicas: count, fsync: false, disks: 0, within, best_effort: false, wishes_disk: false }
    }

    /// Waits also until the server, and each of the replicas, has written the grant to its append-only file, by
    /// `WAITAOF` of Redis 7.2 and later. All of them need `appendonly yes`; with `appendfsync everysec` a write takes
    /// up to two seconds, so give [`within`](Self::within) more.
    ///
    /// ```
    /// # use lockson::Durability;
    /// let on_disk = Durability::replicas(0).with_fsync(); // outlives a crash of a server without replicas
    /// ```
    #[must_use]
    pub const fn with_fsync(self) -> Self {
        Self { fsync: true, disks: self.replicas, ..self }
    }

    /// Sets how long a grant may take to reach them: 1 millisecond to half of the time to live of the lock. Defaults to
    /// 1 second.
    ///
    /// The time is added to the bounds of every call that takes, re-enters or extends a lock, and half a second more
    /// where the server falls silent meanwhile.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockson::Durability;
    /// let quick = Durability::replicas(1).within(Duration::from_millis(100));
    /// ```
    #[must_use]
    pub const fn within(self, limit: Duration) -> Self {
        Self { within: limit, ..self }
    }

    /// Grants locks all the same where the server has no such command, or the user has no right to it; a replica that
    /// is late still fails the call. The first time at each server is told to
    /// [`Observer::durability_missing`](crate::Observer::durability_missing).
    ///
    /// ```
    /// # use lockson::Durability;
    /// let if_possible = Durability::replicas(1).with_best_effort();
    /// ```
    #[must_use]
    pub const fn with_best_effort(self) -> Self {
        Self { best_effort: true, ..self }
    }

    /// Refuses a setting without meaning, and one that takes longer than half of `lease`.
    pub(crate) fn checked(self, kind: ErrorKind, lease: Duration) -> Result<Self> {
        if self.replicas == 0 && !self.fsync {
            let text = "Durability::replicas(0) waits for nothing; give the number of replicas, or add with_fsync()";
            return Err(Error::new(kind, text));
        }
        if self.within < SHORTEST || self.within > lease / 2 {
            let text = format!("Durability::within() cannot be {:?} for a lock that lives for {lease:?}", self.within);
            return Err(Error::new(kind, text).advising(&format!("give 1 ms to {:?}", lease / 2)));
        }
        Ok(self)
    }

    /// The setting that fulfils both.
    pub(crate) fn and(self, other: Self) -> Self {
        let (fsync, best_effort) = (self.fsync || other.fsync, self.best_effort && other.best_effort);
        Self {
            replicas: self.replicas.max(other.replicas),
            fsync,
            disks: self.disks.max(other.disks),
            within: self.within.max(other.within),
            best_effort,
            wishes_disk: fsync && !best_effort && !self.needs_disk() && !other.needs_disk(),
        }
    }

    fn needs_disk(self) -> bool {
        self.fsync && !self.best_effort && !self.wishes_disk
    }

    /// What is waited for where the server cannot wait for its disk; `None` where that is no use.
    pub(crate) fn without_disk(self) -> Option<Self> {
        if self.needs_disk() { None } else { self.of_memory(0) }
    }

    /// What is waited for before the disks: replicas whose disks nobody needs.
    pub(crate) fn besides_disks(self) -> Option<Self> {
        self.of_memory(self.disks)
    }

    fn of_memory(self, known: u8) -> Option<Self> {
        (self.fsync && self.replicas > known).then_some(Self { fsync: false, disks: 0, ..self })
    }

    /// The setting that fulfils all of them.
    pub(crate) fn all(settings: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        settings.into_iter().flatten().reduce(Self::and)
    }

    /// Shortens the wait to `limit`, but not below the shortest one.
    pub(crate) fn at_most(self, limit: Duration) -> Self {
        Self { within: self.within.min(limit).max(SHORTEST), ..self }
    }

    /// The rest of the wait when so much of it has passed, and a moment at least.
    pub(crate) fn after(self, passed: Duration) -> Self {
        self.at_most(self.within.saturating_sub(passed).max(MOMENT))
    }

    /// The time for the wait and its replies.
    pub(crate) fn bound(self) -> Duration {
        self.within.saturating_add(GRACE)
    }

    /// The words of the command that waits.
    pub(crate) fn words(self) -> Vec<String> {
        let ms = self.within.as_millis().max(1).to_string();
        if self.fsync {
            return vec!["WAITAOF".into(), "1".into(), self.disks.to_string(), ms];
        }
        vec!["WAIT".into(), self.replicas.to_string(), ms]
    }

    /// Judges what a request has reached. Without the command, `Ok` has the refusal if the caller asked for no more
    /// than the possible. `consequence` tells what becomes of the lock.
    pub(crate) fn judge(self, copies: Option<&Copies>, server: &str, consequence: &str) -> Result<Option<Error>> {
        match copies {
            Some(Copies::WithoutDisk { refusal, replicas }) => {
                let counted = Copies::Counted { on_disk: false, disks: 0, replicas: *replicas };
                let Some(rest) = self.without_disk() else {
                    let lacks_disk = Copies::Refused(refusal.clone());
                    return self.judge(Some(if self.fsync { &lacks_disk } else { &counted }), server, consequence);
                };
                rest.judge(Some(&counted), server, consequence)?;
                return Ok(Some(Error::refused(refusal.clone().at(server))));
            }
            Some(Copies::Refused(refusal)) => {
                let error = Error::refused(refusal.clone().at(server));
                return match (refusal.lacks_command(), self.best_effort) {
                    (true, true) => Ok(Some(error)),
                    (true, false) => {
                        let word = self.words().swap_remove(0);
                        let text =
                            format!("its Durability needs {word}, and {error}; {consequence}; see with_best_effort()");
                        Err(Error::new(ErrorKind::Unsupported, text))
                    }
                    (false, _) => Err(error),
                };
            }
            Some(Copies::Counted { .. } | Copies::Gone) | None => {}
        }
        let shortfall = self.shortfall(copies, &format!(" of redis at {server}"));
        let text = shortfall.map(|shortfall| format!("{shortfall}, so {consequence}; {ADVICE}"));
        text.map_or(Ok(None), |text| Err(Error::new(ErrorKind::NotDurable, text)))
    }

    /// The shortfall in words, if there is one; `whose` follows the server and its replicas, and may be empty.
    pub(crate) fn shortfall(self, copies: Option<&Copies>, whose: &str) -> Option<String> {
        let within = self.within;
        let (on_disk, disks, replicas) = match copies {
            Some(Copies::Counted { on_disk, disks, replicas }) => (*on_disk, *disks, *replicas),
            Some(Copies::WithoutDisk { replicas, .. }) => (!self.needs_disk(), 0, *replicas),
            _ => (false, 0, 0),
        };
        if self.fsync && !on_disk {
            return Some(format!("the disk{whose} did not have it within {within:?}"));
        }
        if self.fsync && disks < self.disks.into() {
            return Some(format!("{disks} of {} replicas{whose} had it on their disks within {within:?}", self.disks));
        }
        let is_short = replicas < self.replicas.into();
        is_short.then(|| format!("{replicas} of {} replicas{whose} had it within {within:?}", self.replicas))
    }
}

/// What a request has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Whether the disk of the server has the request and on how many disks of replicas it is, where that was asked
    /// for, and how many replicas have it.
    Counted { on_disk: bool, disks: u64, replicas: u64 },
    /// The server refused to wait for its disk, and so many replicas have the request.
    WithoutDisk { refusal: Refusal, replicas: u64 },
    /// The key was deleted meanwhile.
    Gone,
    /// The server refused to wait.
    Refused(Refusal),
}

impl Copies {
    /// The copies that two waits have reached, one for replicas and one for disks.
    pub(crate) fn and(self, later: Self) -> Self {
        match (self, later) {
            (Self::Counted { replicas, .. }, Self::Counted { on_disk, disks, .. }) => {
                Self::Counted { on_disk, disks, replicas: replicas.max(disks) }
            }
            (Self::Refused(refusal), Self::Counted { on_disk: false, replicas, .. })
            | (Self::Counted { replicas, .. }, Self::Refused(refusal))
                if refusal.lacks_command() =>
            {
                Self::WithoutDisk { refusal, replicas }
            }
            (_, later) => later,
        }
    }
}

/// The time for the replies in addition to the wait. The clock of a server that waits ticks ten times a second.
const GRACE: Duration = Duration::from_millis(500);
const SHORTEST: Duration = Duration::from_millis(1);
const MOMENT: Duration = Duration::from_millis(50);
const ADVICE: &str = "INFO replication shows its replicas; bring them back, or ask for fewer or for more time";

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn counted(on_disk: bool, replicas: u64) -> Copies {
        Copies::Counted { on_disk, disks: if on_disk { replicas } else { 0 }, replicas }
    }

    #[test]
    fn settings_without_meaning_are_refused() {
        let fails = |setting: Durability| setting.checked(ErrorKind::BadInput, LEASE).is_err();
        assert!(fails(Durability::replicas(0)));
        assert!(fails(Durability::replicas(1).within(Duration::ZERO)));
        assert!(fails(Durability::replicas(1).within(LEASE)));
        assert!(!fails(Durability::replicas(0).with_fsync()));
        assert!(!fails(Durability::replicas(1).within(LEASE / 2)));
    }

    #[test]
    fn each_setting_judges_what_was_reached() {
        let check = |setting: Durability, copies: Option<&Copies>| {
            setting.judge(copies, "h:1/0", "it was given back").map_err(|error| error.kind())
        };
        let one = Durability::replicas(1);
        assert!(check(one, Some(&counted(false, 1))).is_ok());
        assert_eq!(
            check(one.and(Durability::replicas(2)), Some(&counted(false, 1))).unwrap_err(),
            ErrorKind::NotDurable
        );
        assert_eq!(check(one.with_fsync(), Some(&counted(false, 1))).unwrap_err(), ErrorKind::NotDurable);
        assert!(check(one.with_fsync(), Some(&counted(true, 1))).is_ok());
        for nothing in [None, Some(&Copies::Gone)] {
            assert_eq!(check(one, nothing).unwrap_err(), ErrorKind::NotDurable, "{nothing:?}");
        }
    }

    #[test]
    fn best_effort_bears_a_missing_command_only() {
        let check = |setting: Durability, word| {
            let copies = Copies::Refused(Refusal::for_test(word));
            setting.judge(Some(&copies), "h:1/0", "it was given back").map_err(|error| error.kind())
        };
        let one = Durability::replicas(1);
        assert_eq!(check(one, "NOPERM").unwrap_err(), ErrorKind::Unsupported);
        assert!(check(one.with_best_effort(), "NOPERM").unwrap().is_some());
        assert_eq!(check(one.with_best_effort(), "LOADING").unwrap_err(), ErrorKind::Refused);
        assert_eq!(check(one.with_best_effort().and(one), "NOPERM").unwrap_err(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_disk_that_is_wished_for_is_not_needed_by_others() {
        let copied = Durability::replicas(1);
        let wished = Durability::replicas(0).with_fsync().with_best_effort();
        let merged = copied.and(wished);
        assert_eq!(merged.without_disk().unwrap().words()[0], "WAIT");
        assert_eq!(copied.and(wished.and(wished)), wished.and(copied));
        let check = |setting: Durability, replicas| {
            let copies = Copies::WithoutDisk { refusal: Refusal::for_test("ERR"), replicas };
            let judged = setting.judge(Some(&copies), "h:1/0", "it was given back");
            judged.map(|missing| missing.is_some()).map_err(|error| error.kind())
        };
        for setting in [merged, wished] {
            assert_eq!(check(setting, 1), Ok(true), "the missing disk is told");
        }
        assert_eq!((check(copied, 1), check(copied, 0)), (Ok(false), Err(ErrorKind::NotDurable)));
        assert_eq!(check(merged, 0), Err(ErrorKind::NotDurable));
        let needed = copied.with_fsync();
        assert_eq!(check(needed, 1), Err(ErrorKind::Unsupported));
        assert_eq!(merged.and(needed).without_disk(), None);
    }
}
