//! From the first handle of a client to its end: operations, idle connections, closing.

pub(super) mod handle;
mod housekeeping;
pub(super) mod under_way;
