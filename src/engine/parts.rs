//! The parts of one client.

use std::ptr;
use std::sync::Arc;

use crate::config::Config;
use crate::conn::Topology;
use crate::engine::cells::Cells;
use crate::engine::keeper::Keeper;
use crate::engine::life::Life;
use crate::engine::sender::Sender;
use crate::error::Result;
use crate::kinds::Kind;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, Owners, ThreadId, ThreadNumber};
use crate::time::Lease;
use crate::transport::Slot;

/// The parts of one client.
pub(crate) struct Engine {
    pub(crate) config: Arc<Config>,
    pub(crate) owners: Owners,
    /// What decides about locks: the server of the client, or the whole cluster.
    pub(crate) authority: String,
    pub(crate) fair_patience: Lease,
    pub(crate) life: Arc<Life>,
    pub(crate) sender: Arc<Sender>,
    pub(crate) cells: Arc<Cells>,
    pub(crate) keeper: Arc<Keeper>,
}

impl Engine {
    pub(crate) fn new(
        config: Config,
        owners: Owners,
        authority: String,
        topology: Box<dyn Topology>,
    ) -> Result<Arc<Self>> {
        let fair_patience = Lease::new(config.fair_patience)?;
        let (config, life) = (Arc::new(config), Arc::new(Life::default()));
        let sender = Sender::new(Arc::clone(&config), Arc::clone(&life), owners.client(), topology);
        let keeper = Keeper::new(Arc::clone(&config), Arc::clone(&life), Arc::clone(&sender))?;
        let cells = Arc::clone(&keeper.cells);
        Ok(Arc::new(Self { config, owners, authority, fair_patience, life, sender, cells, keeper }))
    }

    /// Adds the prefix to a name. An empty name stays empty, because the prefix alone is not a valid lock name.
    pub(crate) fn full_name(&self, name: &str) -> Arc<str> {
        if name.is_empty() { name.into() } else { format!("{}{name}", self.config.name_prefix).into() }
    }

    pub(crate) fn draw_owner(&self, kind: &dyn Kind, thread: Option<&ThreadId>) -> (HoldNumber, OwnerId) {
        // An owned hold belongs to no thread; no thread has the number zero.
        let (number, owner) = self.owners.draw(thread.map_or(ThreadNumber(0), ThreadId::number));
        (number, kind.encode_owner(owner))
    }

    /// The key of locks that a single request can take; `None` for a kind that is asked for one at a time.
    pub(crate) fn bundle_of(&self, kind: &dyn Kind, name: &LockName) -> Option<Bundle> {
        let slot = self.sender.topology.slot(name.key());
        kind.bundles().then(|| Bundle { engine: ptr::from_ref(self).addr(), slot, family: kind.family() })
    }
}

/// A client, a part of its keys that is on one server at all times, and the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bundle {
    /// The address in memory, which identifies the client.
    engine: usize,
    slot: Slot,
    family: &'static str,
}
