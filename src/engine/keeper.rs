//! Holds are kept, or their losses told: deadlines, renewal, watching, callbacks.

pub(crate) mod callbacks;
pub(crate) mod extend;
pub(crate) mod heartbeat;
pub(crate) mod in_turn;
pub(crate) mod loss;
pub(crate) mod partial;
pub(crate) mod watchdog;
