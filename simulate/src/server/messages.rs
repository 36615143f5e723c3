//! What a server sends: replies, what was published, and what has changed.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use lockson_world::World;

use super::commands::keys_of;
use super::{Connection, INVALIDATIONS, Server, State, clock, delay};
use crate::data::Touch;
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
            let (told, key) = match touch {
                Touch::Read => {
                    if let Some((number, request)) = by {
                        self.tracking.read(number, keys_of(request));
                    }
                    continue;
                }
                Touch::Changed(key) => (self.tracking.changed(&key, by.map(|(number, _)| number)), key),
                Touch::Expired(key) => (self.tracking.changed(&key, None), key),
            };
            let message = [Reply::text("message"), Reply::text(INVALIDATIONS), Reply::List(vec![Reply::Bulk(key)])];
            for number in told {
                self.tell(server, world, number, &message);
            }
        }
        self.expire_in_time(server, world, next);
        for (channel, message) in published {
            let listeners = self.connections.iter().filter(|(_, connection)| connection.channels.contains(&channel));
            let listeners: Vec<u64> = listeners.map(|(number, _)| *number).collect();
            let heard = Reply::List(vec![Reply::text("message"), Reply::Bulk(channel), Reply::Bulk(message)]);
            for number in listeners {
                self.send_to(server, world, number, &heard);
            }
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
