//! The life of a client: operations, idle connections, closing.

pub(super) mod handle;
mod housekeeping;
pub(super) mod under_way;
