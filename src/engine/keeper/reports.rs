//! What listening connections report beyond the wake of a waiter.

use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;

use crate::conn::Server;
use crate::engine::cells::hub::Reports;
use crate::engine::keeper::Keeper;
use crate::error::{Error, Refusal};
use crate::event::ListeningFailed;
use crate::name::LockName;

/// Passes the reports of listening connections to the keeper, once there is one.
#[derive(Debug, Default)]
pub(crate) struct ToKeeper(OnceCell<Weak<Keeper>>);

impl ToKeeper {
    pub(crate) fn to(&self, keeper: &Arc<Keeper>) {
        let _ = self.0.set(Arc::downgrade(keeper));
    }

    fn with(&self, report: impl FnOnce(&Keeper)) {
        if let Some(keeper) = self.0.get().and_then(Weak::upgrade) {
            report(&keeper);
        }
    }
}

impl Reports for ToKeeper {
    fn announced(&self, name: &LockName) {
        self.with(|keeper| {
            keeper.cells.stand_backs.heard(name);
            keeper.verify_holds(name);
        });
    }

    fn counted(&self, channel: &str, payload: &[u8], announced: Option<&LockName>) {
        self.with(|keeper| {
            if let Some(name) = announced {
                keeper.cells.stand_backs.heard(name);
            }
            keeper.cells.counted_queues.message(channel, payload);
        });
    }

    fn invalidated(&self, server: &Arc<Server>, keys: Option<&[String]>) {
        self.with(|keeper| {
            let watchdog = keeper.watchdog(server);
            let Some(keys) = keys else { return watchdog.put(|events| events.flushed = true) };
            let names = keeper.cells.registry.watched(keys);
            if !names.is_empty() {
                watchdog.verify(names);
            }
        });
    }

    fn tracking_channel_changed(&self, server: &Arc<Server>, lost: bool) {
        self.with(|keeper| keeper.watchdog(server).put(|events| events.lost |= lost));
    }

    fn elsewhere(&self, server: &Server, refusal: &Refusal) {
        self.with(|keeper| _ = keeper.sender.topology.redirect(server.number(), refusal));
    }

    fn listening_failed(&self, server: &Server, error: Error) {
        self.with(|keeper| {
            keeper.sender.topology.doubt(server.number());
            let event = ListeningFailed { server: server.label(), error };
            keeper.config.observe(|observer| observer.listening_failed(&event));
        });
    }
}
