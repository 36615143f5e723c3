//! Lockson against real servers.

mod campaign;
mod contract;
mod examples;
mod faults;
mod kinds;
mod servers;
mod soak;
mod support;
mod telemetry;
mod topology;

use peak_alloc::PeakAlloc;

/// Counts the bytes in use, for the tests that look for leaks.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;
