//! The rig of Lockson's tests: real servers, a fault proxy, child processes and a witness of overlaps.
//!
//! The rig does not depend on the `lockson` crate. Tests of services use the crate `lockson-test`, its smaller face.

mod cargo;
#[cfg(feature = "certificates")]
mod certificates;
pub mod clock;
mod cluster;
mod eventually;
mod example_server;
pub mod helper;
mod leash;
mod peer;
pub mod percent;
mod pids;
mod ports;
mod process;
pub mod proxy;
mod queue_witness;
mod sentinel;
mod server;
mod stalls;
mod usage;
mod witness;

pub use cargo::cargo;
#[cfg(feature = "certificates")]
pub use certificates::{Authority, Certificate, Validity};
pub use cluster::{RedisCluster, slot_of};
pub use eventually::eventually;
pub use example_server::ExampleServer;
pub use peer::{Answer, Peer, Ticket};
pub use pids::is_alive;
pub use process::HelperProcess;
pub use proxy::Proxy;
pub use queue_witness::{QueueStory, QueueWitness};
pub use sentinel::{SentinelSet, SentinelSetBuilder};
pub use server::{RedisServer, RedisServerBuilder, missing_server};
pub use stalls::Stalls;
pub use usage::{descriptors_of, resident_bytes, thread_names_of, threads_of};
pub use witness::{Inside, Witness};
