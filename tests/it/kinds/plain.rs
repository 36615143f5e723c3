//! The special properties of the plain lock: its state in Redis, its leases, its servers, its limits.

mod leases;
mod limits;
mod races;
mod servers;
mod wakeup;
mod wire;
