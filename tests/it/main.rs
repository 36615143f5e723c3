//! Lockson against real servers.

mod campaign;
mod contract;
mod faults;
mod kinds;
mod servers;
mod soak;
mod support;
mod topology;
