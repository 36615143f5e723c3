//! The special feature of one kind, played as one sequence with both languages.

mod counters;
mod fair;
mod groups;
mod read_write;
mod tokens;

use crate::kind::Sequence;

pub(crate) const FAIR_ORDER: Sequence = Sequence { title: "order of a mixed queue", check: fair::order };
pub(crate) const TOKENS: Sequence = Sequence { title: "tokens rise over both", check: tokens::rise };
pub(crate) const READERS: Sequence =
    Sequence { title: "readers of both share, a release lets all in", check: read_write::readers };
pub(crate) const DOWNGRADE: Sequence =
    Sequence { title: "a writer reads and steps down", check: read_write::downgrade };
pub(crate) const OVERLAP: Sequence = Sequence { title: "overlapping sets and plain locks", check: groups::overlap };
pub(crate) const VALUES: Sequence = Sequence { title: "values of one group", check: groups::values };
pub(crate) const SEMAPHORE: Sequence = Sequence { title: "permits counted over both", check: counters::semaphore };
pub(crate) const PERMITS: Sequence = Sequence { title: "permit ids and leases of both", check: counters::permits };
pub(crate) const LATCH: Sequence = Sequence { title: "both count down, both are let through", check: counters::latch };
