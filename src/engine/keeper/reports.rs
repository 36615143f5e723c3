//! What listening connections report beyond the wake of a waiter.

use std::sync::{Arc, Weak};

use crate::conn::Server;
use crate::engine::cells::hub::{Report, Reports};
use crate::engine::keeper::Keeper;
use crate::event::{ListeningFailed, ListeningRecovered};

impl Reports for Weak<Keeper> {
    fn take(&self, server: &Arc<Server>, report: Report) {
        let Some(keeper) = self.upgrade() else { return };
        let Keeper { config, sender, cells, .. } = &*keeper;
        match report {
            Report::Announced(name) => {
                cells.stand_backs.heard(&name);
                keeper.verify_holds(&name);
            }
            Report::Counted { channel, payload, announced } => {
                if let Some(name) = announced {
                    cells.stand_backs.heard(&name);
                }
                cells.counted_queues.message(&channel, &payload);
            }
            Report::Invalidated(None) => keeper.watchdog(server).put(|events| events.flushed = true),
            Report::Invalidated(Some(keys)) => {
                let names = cells.registry.watched(&keys);
                if !names.is_empty() {
                    keeper.watchdog(server).verify(names);
                }
            }
            Report::TrackingChannelChanged => keeper.watchdog(server).put(|_| ()),
            Report::Elsewhere(refusal) => _ = sender.topology.redirect(server.number(), &refusal),
            Report::Lost(error) => {
                keeper.watchdog(server).put(|events| events.lost = true);
                sender.topology.doubt(server.number());
                let event = ListeningFailed { server: server.label(), error };
                config.observe(|observer| observer.listening_failed(&event));
            }
            Report::Recovered(outage) => {
                let event = ListeningRecovered { server: server.label(), outage };
                config.observe(|observer| observer.listening_recovered(&event));
            }
        }
    }
}
