//! Examines the servers of a client, inspects names, and lists the names of locks.

use std::collections::BTreeSet;
use std::result;
use std::sync::Arc;
use std::time::Duration;

use crate::conn::{Redirect, Server};
use crate::engine::caller::closed;
use crate::engine::hold::HoldState;
use crate::engine::parts::Engine;
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::inspection::Inspection;
use crate::name::{GivenName, LockName};
use crate::script::examination::{ClientSettings, Examination, examine};
use crate::script::inspection::{Connections, certain_locks, inspect, page};
use crate::system::thread;
use crate::time::Instant;
use crate::transport::{Fault, PubSub, ServerNumber};

impl Engine {
    /// Examines each server within one command time-out.
    pub(crate) fn examine(&self) -> Vec<(String, Result<Examination>)> {
        self.servers().iter().map(|server| (server.label(), self.examine_one(server))).collect()
    }

    /// Asks what Redis knows of a name. The list of all connections of a server is long, so each server is asked once
    /// for it.
    pub(crate) fn inspect(&self, name: &LockName, told: &mut Vec<(ServerNumber, Connections)>) -> Result<Inspection> {
        let answer = self.sender.ask(&inspect(name, self.config.peer_clock_skew));
        let mut found = self.sender.of_lock(name, answer)?;
        if !found.holders.is_empty() || !found.waiters.is_empty() {
            let server = self.sender.server(name);
            if !told.iter().any(|(number, _)| *number == server.number()) {
                let deadline = self.command_deadline();
                let answer = server.connection().for_long_replies().round_trips(deadline, Connections::ask);
                let answer = answer.unwrap_or_else(|fault| Connections::unknown(fault.into_error().to_string()));
                told.push((server.number(), answer));
            }
            let of_server = told.iter().find(|(number, _)| *number == server.number());
            of_server.inspect(|(_, connections)| connections.add_to(&mut found));
        }
        Ok(found)
    }

    /// Lists at most `limit` names of held locks that begin with this. Each page of a scan has one command time-out.
    pub(crate) fn scan(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let prefix = format!("{}{prefix}", self.config.name_prefix);
        let (mut names, mut asked) = (BTreeSet::new(), vec![]);
        // Masters may come and go meanwhile, so what has become one since is asked, and what is none any more may fail.
        for _ in 0..MOST_LOOKS {
            let mut left = self.servers();
            left.retain(|server| !asked.contains(&server.number()));
            if left.is_empty() {
                break;
            }
            while let Some(server) = left.pop() {
                if asked.contains(&server.number()) {
                    continue;
                }
                asked.push(server.number());
                match self.scan_one(&server, &prefix, limit, &mut names) {
                    Ok(others) => left.extend(others),
                    Err(error) if self.is_replaced(&server, &error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(names.into_iter().take(limit).collect())
    }

    /// Whether a server that failed is no master any more. Its successor may not be known to all members so far.
    fn is_replaced(&self, server: &Server, error: &Error) -> bool {
        let end = self.command_deadline();
        while self.sender.topology.has_slots() && error.kind() != ErrorKind::Closed && !self.life.is_closed() {
            if self.servers().iter().all(|master| master.number() != server.number()) {
                return true;
            }
            if error.kind() != ErrorKind::Connection || Instant::now() >= end {
                break;
            }
            thread::sleep(PAUSE_OF_LOOKS);
        }
        false
    }

    /// Adds the names at one server. Returns the servers that have keys in its place by now.
    fn scan_one(
        &self,
        server: &Arc<Server>,
        prefix: &str,
        limit: usize,
        found: &mut BTreeSet<String>,
    ) -> Result<Vec<Arc<Server>>> {
        let (mut pages, mut questions) = (server.connection().for_long_replies(), server.connection());
        let (mut cursor, mut process, mut others, mut restarts) = ("0".to_owned(), None, vec![], 0);
        while found.len() < limit {
            let (next, mut names) =
                self.patiently(server, |deadline| pages.round_trips(deadline, |send| page(send, &cursor, prefix)))?;
            loop {
                let ask = |deadline| questions.round_trips(deadline, |send| certain_locks(send, &mut names));
                match self.patiently(server, ask) {
                    Ok((locks, moved)) => {
                        found.extend(locks);
                        others.extend(moved.and_then(|moved| self.place_of(server, &moved)));
                        break;
                    }
                    Err(error) if error.kind() == ErrorKind::OtherKind => {}
                    Err(error) => return Err(error),
                }
            }
            // A new connection may lead to another process, which knows no cursor of the one before.
            let is_same = process.replace(pages.generation()).is_none_or(|before| before == pages.generation());
            restarts += u32::from(!is_same);
            if restarts == MOST_RESTARTS {
                let text = "the connection was lost again and again before the scan came to its end";
                return Err(Error::new(ErrorKind::Connection, text).at(&server.label()));
            }
            cursor = if is_same { next } else { "0".to_owned() };
            if is_same && cursor == "0" {
                break;
            }
        }
        Ok(others)
    }

    /// Asks one server, and again while it refuses for a reason that passes, for one command time-out in all.
    fn patiently<T>(&self, server: &Server, mut ask: impl FnMut(Instant) -> result::Result<T, Fault>) -> Result<T> {
        let end = self.command_deadline();
        loop {
            if self.life.is_closed() {
                return Err(closed());
            }
            match ask(end) {
                Err(Fault::Refused(refusal))
                    if refusal.is_transient() && Instant::now().after(PAUSE_OF_LOOKS) < end =>
                {
                    // A cluster may have another master by now.
                    self.place_of(server, &refusal);
                    thread::sleep(PAUSE_OF_LOOKS);
                }
                answer => return answer.map_err(Fault::into_error),
            }
        }
    }

    /// The server that has a key by the word of another one.
    fn place_of(&self, server: &Server, moved: &Refusal) -> Option<Arc<Server>> {
        match self.sender.topology.redirect(server.number(), moved) {
            Redirect::Elsewhere(route) => Some(route.server),
            _ => None,
        }
    }

    fn command_deadline(&self) -> Instant {
        Instant::now().after(self.config.command_timeout)
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
        let deadline = self.command_deadline();
        // The connection is closed afterwards, because a transaction may be open on it.
        let mut connection = server.connection();
        connection.round_trips(deadline, |send| examine(send, &locks, sample, client)).map_err(Fault::into_error)
    }
}

/// The name behind the prefix for which rights are asked.
const SAMPLE: &str = "lockson:doctor";
/// So often the masters of a cluster are looked up within one scan.
const MOST_LOOKS: usize = 8;
/// So often a scan of one server begins anew. Where a proxy closes each connection, it would never end.
const MOST_RESTARTS: u32 = 8;
const PAUSE_OF_LOOKS: Duration = Duration::from_millis(50);
