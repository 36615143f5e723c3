//! The watchdog of one server: its thread and inbox, its renewal rounds.

pub(crate) mod renewer;
mod server_round;
pub(crate) mod thread;
mod worker;
