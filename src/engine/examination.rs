//! Examines the servers of a client, inspects names, and lists the names of locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::conn::Server;
use crate::engine::caller::closed;
use crate::engine::hold::HoldState;
use crate::engine::parts::Engine;
use crate::error::Result;
use crate::inspection::Inspection;
use crate::name::{GivenName, LockName};
use crate::script::examination::{ClientSettings, Examination, examine};
use crate::script::inspection::{find_connections, inspect, scan};
use crate::time::Instant;
use crate::transport::{Fault, PubSub};

impl Engine {
    /// Examines each server within one command time-out.
    pub(crate) fn examine(&self) -> Vec<(String, Result<Examination>)> {
        self.servers().iter().map(|server| (server.label(), self.examine_one(server))).collect()
    }

    /// Asks what Redis knows of a name. The connections of holders and waiters are a long list.
    pub(crate) fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let answer = self.sender.ask(&inspect(name, self.config.peer_clock_skew));
        let mut found = self.sender.of_lock(name, answer)?;
        if !found.holders.is_empty() || !found.waiters.is_empty() {
            let deadline = Instant::now().after(self.config.command_timeout);
            let mut connection = self.sender.server(name).connection().for_long_replies();
            let asked = connection.round_trips(deadline, |send| find_connections(send, &mut found));
            asked.map_err(Fault::into_error)?;
        }
        Ok(found)
    }

    /// Lists at most `limit` names of held locks that begin with this. Each page of a scan has one command time-out.
    pub(crate) fn scan(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let prefix = format!("{}{prefix}", self.config.name_prefix);
        let mut names = BTreeSet::new();
        for server in self.servers() {
            let (mut connection, mut cursor) = (server.connection().for_long_replies(), "0".to_owned());
            while names.len() < limit {
                if self.life.is_closed() {
                    return Err(closed());
                }
                let deadline = Instant::now().after(self.config.command_timeout);
                let page = connection.round_trips(deadline, |send| scan(send, &cursor, &prefix));
                let (next, found) = page.map_err(Fault::into_error)?;
                names.extend(found);
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok(names.into_iter().take(limit).collect())
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        // A client that was opened lazily does not know the members of a cluster so far.
        if self.sender.topology.has_slots() {
            let _ = self.sender.greet();
        }
        self.sender.topology.servers()
    }

    fn examine_one(&self, server: &Arc<Server>) -> Result<Examination> {
        let held = self.cells.registry.all();
        // Permits are held beside the key of their name, which needs no time to live.
        let has_key = |hold: &HoldState| hold.kind.held_under(&hold.name)[..] == *hold.name.key();
        let held = held.iter().filter(|hold| has_key(hold) && self.sender.is_on(server, &hold.name));
        let locks: Vec<LockName> = held.map(|hold| hold.name.clone()).collect();
        // A prefix that makes invalid names has no locks.
        let (named, bare) = (GivenName::new(self.full_name(SAMPLE)), GivenName::new(SAMPLE.into()));
        let sample = named.checked().or_else(|_| bare.checked())?;
        let client = ClientSettings {
            watchdog_interval: self.config.watchdog_interval,
            // One connection listens, one renews and watches.
            connections: self.config.max_connections.saturating_add(2),
            sharded_pub_sub: server.pub_sub_if_chosen().map(|chosen| chosen == PubSub::Sharded),
        };
        let deadline = Instant::now().after(self.config.command_timeout);
        // The connection is closed afterwards, because a transaction may be open on it.
        let mut connection = server.connection();
        connection.round_trips(deadline, |send| examine(send, &locks, sample, client)).map_err(Fault::into_error)
    }
}

/// The name behind the prefix for which rights are asked.
const SAMPLE: &str = "lockson:doctor";
