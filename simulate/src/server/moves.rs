//! Slots of a cluster that move.

use std::sync::Arc;
use std::time::Duration;

use lockson_world::World;

use super::cluster::{Cluster, Moving, has_counter, slot_of};
use super::{Server, State};

impl State {
    /// The slot of some key begins to move, or nothing does.
    pub(super) fn move_slot(&mut self, server: &Arc<Server>, world: &Arc<World>) {
        let names = self.scripts.data().lock().names();
        let may_move = |cluster: &&mut Cluster| cluster.has_masters() && !cluster.moves() && !names.is_empty();
        let Some(cluster) = self.cluster.as_mut().filter(may_move) else { return };
        let slot = slot_of(names[world.below(names.len() as u64) as usize].as_bytes());
        let by = 1 + world.below(cluster.masters.len() as u64 - 1) as usize;
        let to = (cluster.shard(slot) + by) % cluster.masters.len();
        // Nobody waits until what comes with a slot has its copies, also not for counters, which are there for ever.
        let lacks_copies = cluster.lagging.as_ref().is_some_and(|lagging| lagging.shard == to);
        if lacks_copies && has_counter(slot) {
            return;
        }
        let [from, to] = cluster.begin_to_move(slot, by);
        world.tell(format_args!("slot {slot} moves from {from} to {to}"));
        // Most slots move fast; some stay half moved.
        let most = if world.below(4) == 0 { 8_000 } else { 100 };
        for is_over in [false, true] {
            let server = Arc::clone(server);
            let delay = Duration::from_millis(world.below(most) + if is_over { most } else { 0 });
            world.at(delay, move |world| server.0.lock().move_keys(&server, world, is_over));
        }
    }

    /// Some keys of the moving slot arrive, or all, with which the slot has moved.
    fn move_keys(&mut self, server: &Arc<Server>, world: &Arc<World>, is_over: bool) {
        let names = self.scripts.data().lock().names();
        let Some(moving) = self.cluster.as_mut().and_then(|cluster| cluster.moving.as_mut()) else { return };
        let slot = moving.slot;
        let left = names.into_iter().map(String::into_bytes).filter(|name| slot_of(name) == slot);
        let left = left.filter(|name| !moving.arrived.contains(name));
        let gone: Vec<Vec<u8>> = left.filter(|_| is_over || world.below(2) == 0).collect();
        moving.arrived.extend(gone.iter().cloned());
        for key in gone {
            self.tell_of_change(server, world, key, None);
        }
        if !is_over {
            return;
        }
        let Some(cluster) = &mut self.cluster else { return };
        if let Some(Moving { from, to, .. }) = cluster.moving.take() {
            cluster.moved.insert(slot, to);
            if let Some(lagging) = cluster.lagging.as_mut().filter(|lagging| lagging.shard == to) {
                lagging.came.insert(slot);
            }
            cluster.epoch += 1;
            cluster.unheard = Some((slot, from, world.now() + world.below(2_000_000_000)));
            world.tell(format_args!("slot {slot} has moved"));
            let former = cluster.masters[from];
            self.end_subscriptions(server, world, former, |channel| slot_of(channel) == slot);
        }
    }
}
