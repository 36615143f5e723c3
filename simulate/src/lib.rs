//! One world of clients, threads and a server, in which the sources and the scripts of Lockson run under a seed.

mod data;
mod reply;
mod scripts;
mod server;
pub mod story;

pub use data::Data;
pub use reply::Reply;
pub use server::Faults;
