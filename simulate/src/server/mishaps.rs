//! What happens to a server and its data.

use std::sync::Arc;
use std::time::Duration;

use lockson_world::World;

use super::cluster::place_of;
use super::queue::Queue;
use super::{INVALIDATIONS, LATCH, Member, Server, State, clock};
use crate::reply::Reply;

impl State {
    /// The process of the server ends, and another one starts, with the data or without.
    pub(super) fn restart(&mut self, server: &Arc<Server>, world: &Arc<World>, place: u64, is_empty: bool) {
        world.tell(format_args!("{}: {place} restarts", self.name));
        let is_away = self.stays_away && world.below(2) == 0;
        self.end(world, place, Duration::from_nanos(if is_away { world.below(20_000_000_000) } else { 0 }));
        if is_empty {
            self.clear(server, world, Some(place));
        }
    }

    /// The process of a server ends; another one starts after a while.
    pub(super) fn end(&mut self, world: &World, place: u64, away: Duration) {
        self.scripts.forget(place);
        let ended: Vec<u64> = self.connections.keys().copied().filter(|number| place_of(*number) == place).collect();
        ended.into_iter().for_each(|number| _ = self.remove(world, number));
        let started = clock(world, self.faults) + i64::try_from(away.as_micros()).unwrap_or(0);
        if let Some(member) = self.members.get_mut(&place) {
            let away_until = world.now() + u64::try_from(away.as_nanos()).unwrap_or(0);
            *member = Member { away_until, run_id: member.run_id + 1, started };
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
        self.clear(server, world, None);
    }

    /// The data of a member goes, or all data.
    fn clear(&mut self, server: &Arc<Server>, world: &Arc<World>, place: Option<u64>) {
        let cluster = self.cluster.as_ref();
        let goes = |key: &[u8]| place.zip(cluster).is_none_or(|(place, cluster)| cluster.is_at(place, key));
        let owners = self.scripts.data().lock().clear(goes);
        self.take_away(world, owners.into_iter());
        self.deleted = Some(world.now());
        let message = [Reply::text("message"), Reply::text(INVALIDATIONS), Reply::NoList];
        for number in self.tracking.flushed() {
            self.tell(server, world, number, &message);
        }
        self.look_at_locks(world);
        self.look_at_latch(world, false);
        if !self.scripts.data().lock().has(b"redisson_lock_queue:{fair}") {
            self.queue = Queue::default();
        }
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
