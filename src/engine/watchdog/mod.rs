//! The watchdog of one server: its thread, its inbox, its renewal rounds.

pub(super) mod inbox;
pub(super) mod lane;
pub(super) mod renewer;
mod worker;
