//! The things one can hold, one small file each:
//!
//! 1. `reentrant`: the plain lock; its holder may take it again.

mod reentrant;

pub(crate) use reentrant::Reentrant;
