//! The watchdog of one server: its thread, its inbox, its renewal rounds.

pub(super) mod inbox;
pub(super) mod renewer;
pub(super) mod thread;
mod worker;
