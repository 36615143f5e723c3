//! The watchdog of one server: its thread, its inbox, its renewal rounds.

pub(super) mod inbox;
pub(super) mod renewer;
mod routes;
mod server_round;
pub(super) mod thread;
mod worker;
