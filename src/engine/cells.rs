//! What this process knows of its locks: who holds, who waits, whose turn it is, who listens.

pub(crate) mod counted_queues;
pub(crate) mod hub;
pub(crate) mod local_queues;
pub(crate) mod registry;
pub(crate) mod stand_backs;
pub(crate) mod taken;
pub(crate) mod waiters;
