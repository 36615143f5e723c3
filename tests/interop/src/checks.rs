//! The checks behind the columns of the matrix; a failed check panics.

mod ending;
mod holding;
mod queries;
pub(crate) mod sequence;
mod waking;

use std::time::Duration;

use crate::kind::{Column, Kind};
use crate::program::Seat;
use crate::stage::Stage;

pub(crate) use waking::{excludes, release_wakes, wakes};

/// Runs one check for one kind.
pub(crate) fn check(column: Column, stage: &Stage<'_>, kind: &'static Kind) {
    match column {
        Column::JavaWoken => wakes(stage, stage.pair(kind, Seat::Rust)),
        Column::RustWoken => wakes(stage, stage.pair(kind, Seat::Java)),
        Column::Exclusion => Seat::BOTH.iter().for_each(|seat| excludes(stage.pair(kind, *seat))),
        Column::Reentry => Seat::BOTH.iter().for_each(|seat| holding::reenters(stage.pair(kind, *seat))),
        Column::PartialRelease => Seat::BOTH.iter().for_each(|seat| holding::keeps_the_rest(stage.pair(kind, *seat))),
        Column::RustRenews => holding::renews(stage.pair(kind, Seat::Rust)),
        Column::JavaRenews => holding::renews(stage.pair(kind, Seat::Java)),
        Column::LeaseExpiry => Seat::BOTH.iter().for_each(|seat| ending::expires(stage, stage.pair(kind, *seat))),
        Column::ForceUnlock => Seat::BOTH.iter().for_each(|seat| ending::is_forced_open(stage, kind, *seat)),
        Column::RustKilled => ending::outlives(stage, kind, Seat::Rust),
        Column::JavaKilled => ending::outlives(stage, kind, Seat::Java),
        Column::Queries => Seat::BOTH.iter().for_each(|seat| queries::agree(stage.pair(kind, *seat))),
        Column::Sequence => (kind.sequence.expect("the kind has a sequence").check)(stage, kind),
    }
}

/// How long a waiter waits before the waiter counts as stuck.
const PATIENCE: Duration = Duration::from_secs(4);
/// From a release to the grant of a woken waiter. Without a message, Lockson asks again each second, and Redisson after
/// the time to live: both are later.
const WOKEN: Duration = Duration::from_millis(500);
