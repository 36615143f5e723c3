//! The intended differences between the states that Lockson and Redisson leave, and the reasons.

mod exclusive;
mod fair;
mod fenced;
mod permits;
mod read_write;
mod reason;
mod several;

use crate::kind::Kind;

/// One intended difference: exactly these two outcomes, and no other.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) label: &'static str,
    pub(crate) rust: &'static str,
    pub(crate) java: &'static str,
    pub(crate) reason: &'static str,
}

pub(crate) fn find(kind: &Kind, label: &str) -> Option<&'static Difference> {
    let of_kind = LISTS.iter().filter(|(kinds, _)| kinds.contains(&kind.word));
    of_kind.flat_map(|(_, differences)| *differences).find(|difference| difference.label == label)
}

/// Kinds, and the differences of each kind.
const LISTS: &[(&[&str], &[Difference])] = &[
    (&["plain", "fair", "spin"], exclusive::COUNTED),
    (&["plain", "fair", "spin", "non_reentrant", "non_reentrant_fair"], exclusive::RENEWED),
    (&["plain", "non_reentrant"], exclusive::CLOSED_ALOUD),
    (&["fair", "spin", "non_reentrant_fair"], exclusive::CLOSED_IN_SILENCE),
    (&["fair", "non_reentrant_fair"], fair::QUEUED),
    (&["fenced"], fenced::FENCED),
    (&["faster_multi"], several::GROUP),
    (&["red"], several::RED),
    (&["read"], read_write::READ),
    (&["write"], read_write::WRITE),
    (&["permits"], permits::PERMITS),
    (&["semaphore"], permits::SEMAPHORE),
];
