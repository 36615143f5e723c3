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
    pub(crate) use std::sync::mpsc;
    pub(crate) use std::thread;

    pub(crate) use foldhash::{HashMap, HashSet};
    pub(crate) use rustix::event::poll;
    pub(crate) use rustix::net::{recv, send, shutdown, sockopt};
    use uuid::{Builder, Uuid};

    pub(crate) fn random() -> u64 {
        RandomState::new().hash_one(())
    }

    /// Drawn from the system. Where another crate asks for the feature `fast-rng` of `uuid`, that one counts on in the
    /// process, and a forked child draws what its parent and other children draw.
    pub(crate) fn new_uuid() -> Uuid {
        let mut bytes = [0; 16];
        match getrandom::fill(&mut bytes) {
            Ok(()) => Builder::from_random_bytes(bytes).into_uuid(),
            Err(_) => Uuid::new_v4(),
        }
    }
}
