//! What happens to a server and its data.

use std::sync::Arc;
use std::time::Duration;

use lockson_world::World;

use super::queue::Queue;
use super::{INVALIDATIONS, LATCH, Server, State, clock};
use crate::reply::Reply;
use crate::tracking::Tracking;

impl State {
    /// The process of the server ends, and another one starts, with the data or without.
    pub(super) fn restart(&mut self, server: &Arc<Server>, world: &Arc<World>, is_empty: bool) {
        world.tell(format_args!("{}: restarts", self.name));
        self.scripts.forget();
        std::mem::take(&mut self.connections).into_keys().for_each(|number| world.moved(number));
        self.tracking = Tracking::default();
        if self.stays_away && world.below(2) == 0 {
            self.away_until = world.now() + world.below(20_000_000_000);
        }
        self.run_id += 1;
        self.started =
            clock(world, self.faults) + i64::try_from(self.away_until.saturating_sub(world.now()) / 1_000).unwrap_or(0);
        if is_empty {
            self.flush(server, world);
        }
    }

    /// Somebody deletes a lock that is held.
    pub(super) fn delete_one(&mut self, server: &Arc<Server>, world: &Arc<World>) {
        let mut held = self.held();
        held.extend(self.latch.0.is_some().then_some(LATCH));
        if held.is_empty() {
            return;
        }
        let name = held[usize::try_from(world.below(held.len() as u64)).unwrap_or(0)];
        let owners = self.scripts.data().lock().owners(name.as_bytes());
        world.tell(format_args!("somebody deletes {name:?}, held by {owners:?}"));
        self.take_away(world, owners.into_iter());
        self.deleted = Some(world.now());
        let _ = self.run(world, &[b"DEL".to_vec(), name.as_bytes().to_vec()]);
        self.spread(server, world, None);
    }

    /// Somebody deletes all keys.
    pub(super) fn flush(&mut self, server: &Arc<Server>, world: &Arc<World>) {
        world.tell("somebody deletes everything");
        let mut data = self.scripts.data().lock();
        let owners = data.all_owners();
        data.clear();
        drop(data);
        self.take_away(world, owners.into_iter());
        self.deleted = Some(world.now());
        let message = [Reply::text("message"), Reply::text(INVALIDATIONS), Reply::NoList];
        for number in self.tracking.flushed() {
            self.tell(server, world, number, &message);
        }
        self.look_at_locks(world);
        self.look_at_latch(world, false);
        self.queue = Queue::default();
    }

    /// Memory is full for a while.
    pub(super) fn fill(&mut self, server: &Arc<Server>, world: &Arc<World>) {
        let time = Duration::from_millis(world.below(20_000));
        world.tell(format_args!("{}: memory is full for {time:?}", self.name));
        self.scripts.data().lock().is_full = true;
        let server = Arc::clone(server);
        world.at(time, move |_| server.0.lock().scripts.data().lock().is_full = false);
    }
}
