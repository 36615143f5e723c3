//! Requests to the servers of a client, exactly once, and what requests in doubt leave behind.

pub(crate) mod cleanup;
pub(crate) mod exactly_once;
pub(crate) mod numbered;
pub(crate) mod side_by_side;
