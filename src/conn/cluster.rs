//! A Redis Cluster: each slot is on one member, and moves between members.

mod late;
mod map;
mod member_view;
mod refresh;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::address::{Address, Endpoint};
use super::dialer::Dialer;
use super::master_finder::MakesDialers;
use super::pub_sub::{PubSubChoice, on_cluster};
use super::server::Server;
use super::{Redirect, Route, Topology};
use crate::error::{Refusal, Result};
use crate::sync::{Condvar, Mutex};
use crate::time::Instant;
use crate::transport::{Fault, Identity, ServerNumber, Slot};
use map::{Map, slot_of};
use member_view::place_in;
use refresh::Refreshing;

/// The members of a cluster, and the slots as the client knows them.
pub(crate) struct Cluster(Arc<Shared>);

struct Shared {
    /// An address with the login of all members.
    login: Address,
    dialer: Arc<MakesDialers>,
    most_connections: usize,
    pub_sub: Arc<PubSubChoice>,
    /// The members of the URL, as texts show them.
    label: String,
    command_timeout: Duration,
    state: Mutex<State>,
    /// Wakes background threads when the client closes.
    closing: Condvar,
}

#[derive(Default)]
struct State {
    map: Map,
    /// The number of each member.
    numbers: HashMap<Endpoint, ServerNumber>,
    /// Every member that this client heard of, by number.
    servers: Vec<Arc<Server>>,
    /// The number of members that the URL names; they have the first numbers.
    seeds: usize,
    /// The members of the accepted map, replicas among them.
    members: Vec<ServerNumber>,
    refreshing: Refreshing,
    /// The copies to fence, each with the time from which it matters no more.
    late: Vec<(Identity, Instant)>,
    /// Whether a thread fences them.
    fences_late: bool,
    closed: bool,
}

impl Cluster {
    /// `seeds` are some of the members, at least one, and `login` is an address with the login of all of them.
    pub(crate) fn new(
        login: Address,
        seeds: Vec<Endpoint>,
        dialer: Arc<MakesDialers>,
        most_connections: usize,
        is_sharded: Option<bool>,
        command_timeout: Duration,
    ) -> Self {
        let shared = Shared {
            label: super::Target::Cluster(login.clone(), seeds.clone()).label(),
            login,
            dialer,
            most_connections,
            pub_sub: Arc::new(on_cluster(is_sharded)),
            command_timeout,
            state: Mutex::new(State { seeds: seeds.len(), ..State::default() }),
            closing: Condvar::new(),
        };
        for seed in &seeds {
            shared.state.lock().number(seed, &shared);
        }
        Self(Arc::new(shared))
    }

    /// Follows the word of a member about the place of a slot. An address that nobody can dial is looked up in the map
    /// of another member.
    fn redirected(&self, from: ServerNumber, refusal: &Refusal) -> Redirect {
        let asking = refusal.word() == "ASK";
        if !asking {
            refresh::ask_for(&self.0, None);
        }
        let mut state = self.0.state.lock();
        let spoke = state.servers.get(from.0).map_or("", |server| server.dialer.host());
        let place = refusal.redirection().and_then(|(slot, text)| Some((slot, place_in(text, spoke)?)));
        let Some((slot, place)) = place else {
            return Redirect::Later;
        };
        let number = state.number(&place, &self.0);
        let server = Arc::clone(&state.servers[number.0]);
        if !asking {
            state.map.moved(Slot(slot), number);
        } else if !state.members.contains(&number) {
            // A node that was made anew there gets its first slot: the map does not name it before.
            *server.dialer.node.lock() = None;
        }
        Redirect::Elsewhere(Route { server, asking })
    }
}

impl Topology for Cluster {
    fn route(&self, key: &[u8]) -> Route {
        self.0.state.lock().route(slot_of(key))
    }

    fn redirect(&self, from: ServerNumber, refusal: &Refusal) -> Redirect {
        match refusal.word() {
            "MOVED" | "ASK" => self.redirected(from, refusal),
            "TRYAGAIN" => Redirect::Later,
            "CLUSTERDOWN" => {
                self.doubt(from);
                Redirect::Later
            }
            _ if refusal.is_of_foreign_key() => Redirect::Later,
            word => {
                // A login may be refused by another server, which has the address by now.
                if refusal.is_of_login() || matches!(word, "LOADING" | "MASTERDOWN" | "READONLY") {
                    self.doubt(from);
                }
                Redirect::AsItSays
            }
        }
    }

    fn doubt(&self, server: ServerNumber) {
        refresh::ask_for(&self.0, Some(server));
    }

    fn leave_behind(&self, copy: Identity) {
        late::fence_later(&self.0, copy);
    }

    fn slot(&self, key: &[u8]) -> Slot {
        slot_of(key)
    }

    fn has_slots(&self) -> bool {
        true
    }

    fn server(&self, number: ServerNumber) -> Option<Arc<Server>> {
        self.0.state.lock().servers.get(number.0).cloned()
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        let state = self.0.state.lock();
        let masters = state.map.masters();
        if masters.is_empty() {
            return state.servers.clone();
        }
        masters.into_iter().filter_map(|number| state.servers.get(number.0).cloned()).collect()
    }

    fn greet(&self, limit: Duration) -> Result<()> {
        refresh::look(&self.0, limit).map_err(Fault::into_error)
    }

    fn close(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let servers = state.servers.clone();
        drop(state);
        self.0.closing.notify_all();
        servers.iter().for_each(|server| server.close());
    }
}

impl State {
    fn route(&self, slot: Slot) -> Route {
        // A member without the slot knows the member with the slot; before the first map there is none.
        let turn = self.refreshing.turn;
        let number = self.map.master(slot).or_else(|| self.members.get(turn % self.members.len().max(1)).copied());
        let server = number.and_then(|number| self.servers.get(number.0));
        let server = server.unwrap_or_else(|| &self.servers[turn % self.servers.len()]);
        Route::to(server)
    }

    /// Returns the number of a member, which is made at the first use.
    fn number(&mut self, place: &Endpoint, shared: &Shared) -> ServerNumber {
        if let Some(number) = self.numbers.get(place) {
            return *number;
        }
        let number = ServerNumber(self.servers.len());
        let dialer = (shared.dialer)(shared.login.moved_to(place.clone()));
        let dialer = Dialer { number, in_cluster: true, pub_sub: Arc::clone(&shared.pub_sub), ..dialer };
        let server = Server::new(dialer, shared.most_connections);
        if self.closed {
            server.close();
        }
        self.servers.push(Arc::new(server));
        self.numbers.insert(place.clone(), number);
        number
    }
}

#[cfg(test)]
mod tests;
