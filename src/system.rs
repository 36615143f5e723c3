//! What the system does for this crate, or a simulator under `--cfg simulated`: threads, sockets, random numbers, tables.

#[cfg(simulated)]
pub(crate) use lockson_world::system::*;
#[cfg(not(simulated))]
pub(crate) use real::*;

#[cfg(not(simulated))]
mod real {
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher;
    pub(crate) use std::net::TcpStream;
    pub(crate) use std::thread;

    pub(crate) use foldhash::{HashMap, HashSet};
    pub(crate) use rustix::event::poll;
    pub(crate) use rustix::net::{recv, send, shutdown, sockopt};
    use uuid::Uuid;

    pub(crate) fn random() -> u64 {
        RandomState::new().hash_one(())
    }

    pub(crate) fn new_uuid() -> Uuid {
        Uuid::new_v4()
    }
}
