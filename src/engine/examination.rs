//! Examines the servers of a client, inspects names, and lists the names of locks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::conn::Server;
use crate::engine::caller::closed;
use crate::engine::hold::HoldState;
use crate::engine::parts::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::inspection::Inspection;
use crate::name::{GivenName, LockName};
use crate::script::examination::{ClientSettings, Examination, examine};
use crate::script::inspection::{Connections, certain_locks, inspect, page};
use crate::system::thread;
use crate::time::Instant;
use crate::transport::{Fault, PubSub};

impl Engine {
    /// Examines each server within one command time-out.
    pub(crate) fn examine(&self) -> Vec<(String, Result<Examination>)> {
        self.servers().iter().map(|server| (server.label(), self.examine_one(server))).collect()
    }

    /// Asks what Redis knows of a name. The list of all connections of a server is long, so each server is asked once
    /// for it.
    pub(crate) fn inspect(&self, name: &LockName, told: &mut BTreeMap<usize, Connections>) -> Result<Inspection> {
        let deadline = self.command_deadline();
        let answer = self.sender.ask(&inspect(name, self.config.peer_clock_skew));
        let mut found = self.sender.of_lock(name, answer)?;
        if !found.holders.is_empty() || !found.waiters.is_empty() {
            let server = self.sender.server(name);
            let connections = told.entry(server.number().0).or_insert_with(|| {
                let mut connection = server.connection().for_long_replies();
                let answer = connection.round_trips(deadline, Connections::ask);
                answer.unwrap_or_else(|fault| Connections::unknown(fault.into_error().to_string()))
            });
            connections.add_to(&mut found);
        }
        Ok(found)
    }

    /// Lists at most `limit` names of held locks that begin with this. Each page of a scan has one command time-out.
    pub(crate) fn scan(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let prefix = format!("{}{prefix}", self.config.name_prefix);
        let numbers = |servers: &[Arc<Server>]| servers.iter().map(|server| server.number()).collect::<Vec<_>>();
        let (mut names, mut end, mut before) = (BTreeSet::new(), None, None);
        loop {
            let servers = self.servers();
            let scans = servers.iter().map(|server| self.scan_one(server, &prefix, limit, &mut names));
            let outcome = scans.collect::<Result<Vec<bool>>>();
            // Masters come and go, and keys with them: then all are asked again, for one more command time-out. A member
            // may list keys of a slot that it has given away for good; such a pass finds no more than the one before.
            let is_over = Instant::now() >= *end.get_or_insert_with(|| self.command_deadline());
            let found_no_more = outcome.is_ok() && before.replace(names.len()) == Some(names.len());
            match outcome {
                Err(error) if is_over || !error.is_transient() => return Err(error),
                Ok(moved)
                    if is_over
                        || (found_no_more || !moved.contains(&true))
                            && numbers(&servers) == numbers(&self.servers()) =>
                {
                    return Ok(names.into_iter().take(limit).collect());
                }
                _ => thread::sleep(PAUSE_OF_SCANS),
            }
        }
    }

    /// Adds the names at one server. Returns whether another server has some of the keys by now.
    fn scan_one(&self, server: &Arc<Server>, prefix: &str, limit: usize, found: &mut BTreeSet<String>) -> Result<bool> {
        let (mut pages, mut questions) = (server.connection().for_long_replies(), server.connection());
        let (mut cursor, mut has_moved) = ("0".to_owned(), false);
        while found.len() < limit {
            if self.life.is_closed() {
                return Err(closed());
            }
            let next = pages.round_trips(self.command_deadline(), |send| page(send, &cursor, prefix));
            let (next, mut names) = next.map_err(Fault::into_error)?;
            if pages.generation() > Some(1) {
                // A new connection may lead to another process, which knows no cursor of the one before.
                let text = "the connection was lost before the scan came to its end";
                return Err(Error::new(ErrorKind::Connection, text).at(&server.label()));
            }
            let (locks, moved) = loop {
                let ask = questions.round_trips(self.command_deadline(), |send| certain_locks(send, &mut names));
                match ask.map_err(Fault::into_error) {
                    Err(error) if error.kind() == ErrorKind::OtherKind => {}
                    locks => break locks?,
                }
            };
            found.extend(locks);
            has_moved |= moved.inspect(|moved| drop(self.sender.topology.redirect(server.number(), moved))).is_some();
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        Ok(has_moved)
    }

    fn command_deadline(&self) -> Instant {
        Instant::now().after(self.config.command_timeout)
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        // A client that was opened lazily does not know the members of a cluster so far.
        if self.sender.topology.has_slots() {
            let _ = self.sender.greet(Instant::now());
        }
        self.sender.topology.servers()
    }

    fn examine_one(&self, server: &Arc<Server>) -> Result<Examination> {
        let held = self.cells.registry.all();
        // Permits are held beside the key of their name, which needs no time to live.
        let has_key = |hold: &HoldState| hold.kind.held_under(&hold.name)[..] == *hold.name.key();
        let held = held.iter().filter(|hold| has_key(hold) && Arc::ptr_eq(server, &self.sender.server(&hold.name)));
        let locks: Vec<LockName> = held.map(|hold| hold.name.clone()).collect();
        // A prefix that makes invalid names has no locks.
        let (named, bare) = (GivenName::new(self.full_name(SAMPLE)), GivenName::new(SAMPLE.into()));
        let sample = named.checked().or_else(|_| bare.checked())?;
        let client = ClientSettings {
            watchdog_interval: self.config.watchdog_interval,
            // One connection listens, one renews and watches.
            connections: self.config.max_connections.saturating_add(2),
            sharded_pub_sub: server.pub_sub().map(|chosen| chosen == PubSub::Sharded),
        };
        let deadline = self.command_deadline();
        // The connection is closed afterwards, because a transaction may be open on it.
        let mut connection = server.connection();
        connection.round_trips(deadline, |send| examine(send, &locks, sample, client)).map_err(Fault::into_error)
    }
}

/// The name behind the prefix for which rights are asked.
const SAMPLE: &str = "lockson:doctor";
const PAUSE_OF_SCANS: Duration = Duration::from_millis(50);
