//! The red lock: most of several locks, on servers that know nothing of each other.

pub(crate) mod most;
mod votes;
