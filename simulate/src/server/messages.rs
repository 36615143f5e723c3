//! What a server sends: replies, what was published, and what has changed.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use lockson_world::World;

use super::cluster::place_of;
use super::commands::keys_of;
use super::{Connection, INVALIDATIONS, Server, State, clock, delay};
use crate::data::{Published, Touch};
use crate::reply::Reply;

impl State {
    /// Sends a message about keys to the connection that gets them.
    pub(super) fn tell(&mut self, server: &Arc<Server>, world: &Arc<World>, number: u64, message: &[Reply]) {
        let listens = |connection: &Connection| connection.channels.contains(INVALIDATIONS.as_bytes());
        if self.connections.get(&number).is_some_and(listens) {
            self.send_to(server, world, number, &Reply::List(message.to_vec()));
        }
    }

    /// Sends what was published to all who listen, and what has changed to all who watch.
    pub(super) fn spread(&mut self, server: &Arc<Server>, world: &Arc<World>, by: Option<(u64, &[Vec<u8>])>) {
        let mut data = self.scripts.data().lock();
        let (published, touched) = (std::mem::take(&mut data.published), std::mem::take(&mut data.touched));
        let next = data.expire();
        drop(data);
        self.look_at_locks(world);
        self.look_at_latch(world, by.is_some_and(|(_, request)| !self.scripts.is_forced(request)));
        for touch in touched {
            match touch {
                Touch::Read => {
                    if let Some((number, request)) = by {
                        self.tracking.read(number, keys_of(request));
                    }
                }
                Touch::Changed(key) => self.tell_of_change(server, world, key, by.map(|(number, _)| number)),
                Touch::Expired(key) => self.tell_of_change(server, world, key, None),
            }
        }
        self.expire_in_time(server, world, next);
        for Published { is_sharded, channel, message } in published {
            let listened = |connection: &Connection| {
                if is_sharded { &connection.sharded } else { &connection.channels }.contains(&channel)
            };
            let listeners = self.connections.iter().filter(|(_, connection)| listened(connection));
            let listeners: Vec<u64> = listeners.map(|(number, _)| *number).collect();
            let word = Reply::text(if is_sharded { "smessage" } else { "message" });
            let heard = Reply::List(vec![word, Reply::Bulk(channel), Reply::Bulk(message)]);
            for number in listeners {
                self.send_to(server, world, number, &heard);
            }
        }
    }

    /// Tells those who watch a key that somebody has changed it, or its end.
    pub(super) fn tell_of_change(&mut self, server: &Arc<Server>, world: &Arc<World>, key: Vec<u8>, by: Option<u64>) {
        let told = self.tracking.changed(&key, by);
        let message = [Reply::text("message"), Reply::text(INVALIDATIONS), Reply::List(vec![Reply::Bulk(key)])];
        for number in told {
            self.tell(server, world, number, &message);
        }
    }

    /// Ends the subscriptions to channels whose slot has left a member.
    pub(super) fn end_subscriptions(
        &mut self,
        server: &Arc<Server>,
        world: &Arc<World>,
        place: u64,
        has_left: impl Fn(&[u8]) -> bool,
    ) {
        let mut ended = vec![];
        for (number, connection) in self.connections.iter_mut().filter(|(number, _)| place_of(**number) == place) {
            connection.sharded.retain(|channel| {
                let stays = !has_left(channel);
                if !stays {
                    ended.push((*number, channel.clone()));
                }
                stays
            });
        }
        for (number, channel) in ended {
            let left = self.connections.get(&number).map_or(0, |connection| connection.sharded.len());
            let left = Reply::Int(i64::try_from(left).unwrap_or(0));
            let told = Reply::List(vec![Reply::text("sunsubscribe"), Reply::Bulk(channel), left]);
            self.send_to(server, world, number, &told);
        }
    }

    /// The server removes expired keys without a request, too, and somewhat later.
    pub(super) fn expire_in_time(&mut self, server: &Arc<Server>, world: &Arc<World>, next: Option<i64>) {
        let Some(next) = next else { return };
        let wait = u64::try_from(next - clock(world, self.faults) / 1_000).unwrap_or(0) + 1 + world.below(100);
        let at = world.now() + wait * 1_000_000;
        if self.next_expiry > world.now() && self.next_expiry <= at {
            return;
        }
        self.next_expiry = at;
        let server = Arc::clone(server);
        world.at(Duration::from_millis(wait), move |world| {
            let mut state = server.0.lock();
            let now = clock(world, state.faults);
            let mut data = state.scripts.data().lock();
            data.set_clock(now);
            data.expire();
            drop(data);
            state.spread(&server, world, None);
        });
    }

    /// Sends the parts of an answer.
    pub(super) fn send_answer(&mut self, server: &Arc<Server>, world: &Arc<World>, number: u64, answer: &[Reply]) {
        answer.iter().for_each(|reply| self.send_to(server, world, number, reply));
    }

    /// What is sent over one connection arrives in order.
    pub(super) fn send_to(&mut self, server: &Arc<Server>, world: &Arc<World>, number: u64, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut bytes = vec![];
        reply.write(&mut bytes);
        let now = world.now();
        connection.last = connection.last.max(now + u64::try_from(delay(world).as_nanos()).unwrap_or(0));
        let server = Arc::clone(server);
        world.at(Duration::from_nanos(connection.last - now), move |world| {
            if let Some(connection) = server.0.lock().connections.get_mut(&number) {
                // A client that has closed its end hears nothing.
                let _ = connection.stream.write_all(&bytes);
                world.moved(number);
            }
        });
    }
}
