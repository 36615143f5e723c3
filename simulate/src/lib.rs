//! One world of clients, threads and a server, in which the sources and the scripts of Lockson run under a seed.

mod acts;
mod callbacks;
mod data;
pub mod engine_mistakes;
mod java;
pub mod kinds;
pub mod mistakes;
mod process;
mod reply;
mod scene;
mod scripts;
mod sections;
mod server;
pub mod story;
mod tracking;
pub mod trouble;

pub use data::{Data, Touch};
pub use reply::Reply;
pub use server::{Backup, Cluster, Queue, Sentinels, slot_of};
pub use tracking::Tracking;
