//! The life of a client: operations, idle connections, closing.

mod examination;
pub(super) mod handle;
mod housekeeping;
pub(super) mod under_way;
