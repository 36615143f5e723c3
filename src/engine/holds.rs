//! The holds of a client: their owners, their deadlines, their losses.

pub(super) mod callbacks;
mod extend;
pub(super) mod heartbeat;
pub(crate) mod hold;
pub(super) mod in_turn;
pub(crate) mod loss;
pub(super) mod registry;
pub(super) mod requests;
