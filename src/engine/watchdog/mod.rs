//! What keeps the holds of one server alive: the watchdog's thread, and what it is told.

pub(super) mod inbox;
pub(super) mod lane;
pub(super) mod renewer;
mod worker;
