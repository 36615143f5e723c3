//! Lockson against real servers.

mod contract;
mod faults;
mod kinds;
mod servers;
mod soak;
mod support;
