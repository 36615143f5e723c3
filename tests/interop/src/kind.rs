//! Every object of Redisson's lock family, and the checks for each object.

use crate::checks::sequence;
use crate::stage::Stage;

/// One object of the family: a row of the matrix.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The kind's name in the peer protocol.
    pub(crate) word: &'static str,
    pub(crate) title: &'static str,
    pub(crate) family: Family,
    pub(crate) shape: Shape,
    /// The kind of the same name that a holder excludes; its own if none is named.
    rival: Option<&'static str>,
    /// The columns that say nothing about the kind.
    lacks: &'static [Column],
    pub(crate) reentry: Reentry,
    pub(crate) queries: &'static [Query],
    /// Waiters ask again after a pause, without any message.
    pub(crate) polls: bool,
    /// Redisson's mistakes, which cannot be required of both sides.
    pub(crate) flaws: &'static [Flaw],
    /// The kind's special feature, as one sequence.
    pub(crate) sequence: Option<Sequence>,
    /// Whether the row is also filled with the last Redisson 3.
    pub(crate) with_redisson3: bool,
    /// Whether hand-overs are timed.
    pub(crate) is_timed: bool,
    /// Whether the kind takes part in the soak.
    pub(crate) is_soaked: bool,
    /// Whether all waiters are in one queue.
    pub(crate) is_queue: bool,
}

/// A check of a feature that only one kind has: title and function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    pub(crate) title: &'static str,
    pub(crate) check: fn(&Stage<'_>, &'static Kind),
}

/// Kinds with the same verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Lock,
    Semaphore,
    Permits,
    Latch,
}

/// How many names an object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One name.
    Single,
    /// Several locks with separate names.
    Several,
    /// Values under one name.
    Group,
}

/// The effect of a second take by the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reentry {
    Counted,
    Refused,
}

/// A mistake of Redisson that a check must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The release of a lost hold is no error.
    HidesLoss,
    /// The answer to a forced release does not show whether the lock was held.
    ForcesInSilence,
    /// A grant in the last millisecond of another lease ends with that lease.
    TakesADyingKey,
}

/// A question about a lock that both sides answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Locked,
    Held,
    HoldCount,
    Ttl,
    /// Free permits, or the remaining counts of a latch.
    Level,
}

/// One check for every kind where Redisson defines the behaviour: a column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    JavaWoken,
    RustWoken,
    Exclusion,
    Reentry,
    PartialRelease,
    RustRenews,
    JavaRenews,
    LeaseExpiry,
    ForceUnlock,
    RustKilled,
    JavaKilled,
    Queries,
    Sequence,
}

impl Kind {
    pub(crate) fn rival(&self) -> &'static str {
        self.rival.unwrap_or(self.word)
    }

    pub(crate) fn named(word: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.word == word)
    }

    pub(crate) fn has(&self, column: Column) -> bool {
        match column {
            Column::Sequence => self.sequence.is_some(),
            _ => !self.lacks.contains(&column),
        }
    }
}

pub(crate) const KINDS: &[Kind] = &[
    Kind { word: "plain", title: "Lock", with_redisson3: true, is_timed: true, is_soaked: true, ..LOCK },
    Kind {
        word: "fair",
        title: "Fair lock",
        sequence: Some(sequence::FAIR_ORDER),
        is_queue: true,
        with_redisson3: true,
        is_timed: true,
        is_soaked: true,
        ..LOCK
    },
    Kind { word: "spin", title: "Spin lock", polls: true, ..LOCK },
    Kind { word: "non_reentrant", title: "Non-reentrant lock", ..NON_REENTRANT },
    Kind {
        word: "non_reentrant_fair",
        title: "Non-reentrant fair lock",
        sequence: Some(sequence::FAIR_ORDER),
        is_queue: true,
        ..NON_REENTRANT
    },
    Kind { word: "fenced", title: "Fenced lock", sequence: Some(sequence::TOKENS), is_soaked: true, ..LOCK },
    Kind {
        word: "read",
        title: "Read lock",
        rival: Some("write"),
        sequence: Some(sequence::READERS),
        with_redisson3: true,
        ..LOCK
    },
    Kind {
        word: "write",
        title: "Write lock",
        sequence: Some(sequence::DOWNGRADE),
        with_redisson3: true,
        is_soaked: true,
        ..LOCK
    },
    Kind { word: "multi", title: "Multi-lock", sequence: Some(sequence::OVERLAP), is_soaked: true, ..COMPOSITE },
    Kind { word: "red", title: "Red lock", flaws: &[Flaw::HidesLoss], ..COMPOSITE },
    Kind {
        word: "faster_multi",
        title: "Faster multi-lock",
        shape: Shape::Group,
        queries: &[Query::Locked],
        flaws: &[Flaw::ForcesInSilence, Flaw::TakesADyingKey],
        sequence: Some(sequence::VALUES),
        is_soaked: true,
        ..LOCK
    },
    Kind {
        word: "semaphore",
        title: "Semaphore",
        family: Family::Semaphore,
        lacks: OF_LOCKS,
        queries: &[Query::Level],
        sequence: Some(sequence::SEMAPHORE),
        is_soaked: true,
        ..LOCK
    },
    Kind {
        word: "permits",
        title: "Expirable permits",
        family: Family::Permits,
        lacks: &[Column::Reentry, Column::PartialRelease, Column::RustRenews, Column::JavaRenews, Column::ForceUnlock],
        queries: &[Query::Level],
        sequence: Some(sequence::PERMITS),
        is_soaked: true,
        ..LOCK
    },
    Kind {
        word: "latch",
        title: "Count-down latch",
        family: Family::Latch,
        lacks: OF_LOCKS,
        queries: &[Query::Level],
        sequence: Some(sequence::LATCH),
        ..LOCK
    },
];

/// The properties of most kinds; other kinds list their differences.
const LOCK: Kind = Kind {
    word: "plain",
    title: "",
    family: Family::Lock,
    shape: Shape::Single,
    rival: None,
    lacks: &[],
    reentry: Reentry::Counted,
    queries: &[Query::Locked, Query::Held, Query::HoldCount, Query::Ttl],
    polls: false,
    flaws: &[],
    sequence: None,
    with_redisson3: false,
    is_timed: false,
    is_soaked: false,
    is_queue: false,
};

const NON_REENTRANT: Kind = Kind { lacks: &[Column::PartialRelease], reentry: Reentry::Refused, ..LOCK };

/// What only a lock has, or only what is held.
const OF_LOCKS: &[Column] = &[
    Column::Reentry,
    Column::PartialRelease,
    Column::RustRenews,
    Column::JavaRenews,
    Column::LeaseExpiry,
    Column::ForceUnlock,
    Column::RustKilled,
    Column::JavaKilled,
];

/// Made of other locks: Redisson cannot force such a lock open and answers few questions about it.
const COMPOSITE: Kind =
    Kind { shape: Shape::Several, lacks: &[Column::ForceUnlock, Column::Queries], queries: &[], ..LOCK };

impl Column {
    pub(crate) const ALL: &'static [Self] = &[
        Self::JavaWoken,
        Self::RustWoken,
        Self::Exclusion,
        Self::Reentry,
        Self::PartialRelease,
        Self::RustRenews,
        Self::JavaRenews,
        Self::LeaseExpiry,
        Self::ForceUnlock,
        Self::RustKilled,
        Self::JavaKilled,
        Self::Queries,
        Self::Sequence,
    ];

    /// The columns of the matrix on a cluster: what depends on the server that has a lock.
    pub(crate) const ON_CLUSTER: &'static [Self] = &[
        Self::JavaWoken,
        Self::RustWoken,
        Self::Exclusion,
        Self::Reentry,
        Self::RustRenews,
        Self::JavaRenews,
        Self::ForceUnlock,
        Self::Queries,
        Self::Sequence,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::JavaWoken => "Rust holds, Java is woken",
            Self::RustWoken => "Java holds, Rust is woken",
            Self::Exclusion => "each keeps the other out",
            Self::Reentry => "re-entry",
            Self::PartialRelease => "partial release",
            Self::RustRenews => "Rust renews, Java stays out",
            Self::JavaRenews => "Java renews, Rust stays out",
            Self::LeaseExpiry => "lease ends",
            Self::ForceUnlock => "forced open",
            Self::RustKilled => "Rust holder killed",
            Self::JavaKilled => "Java holder killed",
            Self::Queries => "queries agree",
            Self::Sequence => "special",
        }
    }
}
