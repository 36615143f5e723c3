//! Connections that wait for copies of what they wrote.

use std::sync::Arc;
use std::time::Duration;

use lockson_world::{Nanos, World};

use super::cluster::place_of;
use super::{Server, State};
use crate::reply::Reply;

/// A request that waits, and until when.
pub(super) struct Wait {
    request: Vec<Vec<u8>>,
    until: Nanos,
}

impl State {
    /// The reply to `WAIT` or `WAITAOF`, and whether the request waits for no more.
    fn copies(&self, number: u64, request: &[Vec<u8>]) -> Option<(Reply, bool)> {
        let is_wait = request[0].eq_ignore_ascii_case(b"WAIT") || request[0].eq_ignore_ascii_case(b"WAITAOF");
        Some(self.cluster.as_ref().filter(|_| is_wait)?.copies(place_of(number), request))
    }

    /// Answers a request that waits for copies, if it is one, when they are there or its time is up.
    pub(super) fn waits(&mut self, server: &Arc<Server>, world: &Arc<World>, number: u64, request: &[Vec<u8>]) -> bool {
        let Some((reply, suffices)) = self.copies(number, request) else { return false };
        if suffices {
            world.tell(format_args!("{}: {number}: {} -> {reply:?}", self.name, super::Shown(request)));
            self.send_to(server, world, number, &reply);
            return true;
        }
        let Some(connection) = self.connections.get_mut(&number) else { return true };
        let millis = request.last().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        let limit = Duration::from_millis(millis.unwrap_or(0));
        let until = world.now() + u64::try_from(limit.as_nanos()).unwrap_or(0);
        connection.waits = Some(Wait { request: request.to_vec(), until });
        let server = Arc::clone(server);
        world.at(limit, move |world| server.0.lock().end_waits(&server, world));
        true
    }

    /// Answers those whose copies are there, or whose time is up.
    pub(super) fn end_waits(&mut self, server: &Arc<Server>, world: &Arc<World>) {
        let waiting = self.connections.iter().filter_map(|(number, connection)| {
            let Wait { request, until } = connection.waits.as_ref()?;
            let (reply, suffices) = self.copies(*number, request)?;
            (suffices || *until <= world.now()).then_some((*number, reply))
        });
        for (number, reply) in waiting.collect::<Vec<_>>() {
            world.tell(format_args!("{}: {number} has waited -> {reply:?}", self.name));
            self.connections.entry(number).and_modify(|connection| connection.waits = None);
            self.send_to(server, world, number, &reply);
            server.arrive_in(world, Duration::ZERO, number);
        }
    }
}
