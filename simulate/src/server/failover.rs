//! Copies that lack the last writes to a master, and members that go on without these.

use std::sync::Arc;
use std::time::Duration;

use lockson_world::World;

use super::cluster::{Backup, Cluster, Form, Former, Lagging, slot_of};
use super::queue::Queue;
use super::{Server, State};

impl State {
    /// A replica or a disk gets no writes for a while, at whose end nothing else may be left.
    pub(super) fn lag(&mut self, server: &Arc<Server>, world: &Arc<World>) {
        let may_lag =
            |cluster: &&mut Cluster| cluster.has_masters() && cluster.lagging.is_none() && !cluster.moves_counter();
        let Some(cluster) = self.cluster.as_mut().filter(may_lag) else { return };
        let shard = world.below(cluster.masters.len() as u64) as usize;
        let backup = match &cluster.form {
            Form::Alone => Backup::Disk,
            _ if self.faults.disks => [Backup::Disk, Backup::Replica, Backup::DiskOfReplica][world.below(3) as usize],
            _ => Backup::Replica,
        };
        cluster.begin_to_lag(shard, backup, &self.scripts.data().lock(), self.queue.clone());
        world.tell(format_args!("{backup:?} of shard {shard} lags"));
        // Disks are written once a second, most of the time.
        let most = if backup == Backup::Replica || world.below(2) == 0 { 8_000 } else { 1_000 };
        let server = Arc::clone(server);
        world.at(Duration::from_millis(world.below(most)), move |world| {
            let mut state = server.0.lock();
            let Some(cluster) = &mut state.cluster else { return };
            // A master that ends while a slot moves leaves the slot to people.
            if cluster.lacks_master || cluster.moves() || world.below(2) == 0 {
                cluster.lagging = None;
                world.tell(format_args!("{backup:?} of shard {shard} has all writes"));
                state.end_waits(&server, world);
            } else if backup == Backup::Disk {
                state.crash(world, shard);
            } else {
                let soon = Duration::from_millis(100 + world.below(500));
                let goes_on = (world.below(2) == 0).then(|| Duration::from_millis(world.below(20_000)));
                state.end_master(&server, world, shard, soon, goes_on);
            }
        });
    }

    /// A master crashes, and comes back with what is on its disk before its replica takes over.
    fn crash(&mut self, world: &World, shard: usize) {
        let Some(cluster) = &self.cluster else { return };
        let (place, away) = (cluster.masters[shard], Duration::from_millis(world.below(3_000)));
        world.tell(format_args!("the master of shard {shard} crashes, and is back in {away:?}"));
        self.end(world, place, away);
        self.lose_writes(world, shard);
    }

    /// A master ends, and its replica takes over a while later.
    pub(super) fn replace(&mut self, server: &Arc<Server>, world: &Arc<World>) {
        if let Some(cluster) = self.cluster.as_ref().filter(|cluster| cluster.is_calm()) {
            let shard = world.below(cluster.masters.len() as u64) as usize;
            let delay = Duration::from_millis(100 + world.below(5_000));
            self.end_master(server, world, shard, delay, None);
        }
    }

    /// A master ends, at once or a while after its replica has taken over.
    fn end_master(
        &mut self,
        server: &Arc<Server>,
        world: &Arc<World>,
        shard: usize,
        delay: Duration,
        goes_on: Option<Duration>,
    ) {
        let Some(cluster) = &mut self.cluster else { return };
        let place = cluster.masters[shard];
        cluster.lacks_master = true;
        cluster.is_down = world.below(3) == 0;
        cluster.tell_sentinels(world, place, true);
        world.tell(format_args!("the master of shard {shard} ends, and its replica takes over in {delay:?}"));
        let away = delay + Duration::from_millis(world.below(15_000));
        if goes_on.is_none() {
            self.end(world, place, away);
        }
        let server = Arc::clone(server);
        world.at(delay, move |world| {
            let mut state = server.0.lock();
            let state = &mut *state;
            let Some(cluster) = &mut state.cluster else { return };
            cluster.masters[shard] = std::mem::replace(&mut cluster.replica, place);
            cluster.epoch += 1;
            (cluster.lacks_master, cluster.is_down) = (false, false);
            cluster.tell_sentinels(world, cluster.masters[shard], false);
            world.tell(format_args!("the replica of shard {shard} has taken over"));
            let mut data = state.scripts.data().lock().clone();
            data.is_full = false;
            let former = Former { place, shard, data };
            if let Some(goes_on) = goes_on {
                state.go_on(&server, world, former, goes_on, away);
            } else if matches!(cluster.form, Form::Nodes) && state.faults.lags > 0 {
                // Nobody has told it that it is a replica by now.
                let server = Arc::clone(&server);
                world.at(away, move |world| {
                    let goes_on = Duration::from_millis(world.below(5_000));
                    server.0.lock().go_on(&server, world, former, goes_on, Duration::ZERO);
                });
            }
            state.lose_writes(world, shard);
        });
    }

    /// A former master goes on, if there is no other one.
    fn go_on(&mut self, server: &Arc<Server>, world: &Arc<World>, former: Former, goes_on: Duration, away: Duration) {
        let is_one = |cluster: &&mut Cluster| cluster.has_masters() && cluster.replica == former.place;
        let Some(cluster) = self.cluster.as_mut().filter(is_one) else { return };
        world.tell(format_args!("the former master goes on for {goes_on:?}"));
        cluster.former = Some(former);
        let server = Arc::clone(server);
        world.at(goes_on, move |world| server.0.lock().end_former(world, away));
    }

    fn end_former(&mut self, world: &World, away: Duration) {
        if let Some(former) = self.cluster.as_mut().and_then(|cluster| cluster.former.take()) {
            world.tell(format_args!("the former master ends at {}", former.place));
            self.end(world, former.place, away);
        }
    }

    /// What the copy of a shard lacked is lost, if it lagged.
    fn lose_writes(&mut self, world: &World, shard: usize) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let Some(lagging) = cluster.lagging.take_if(|lagging| lagging.shard == shard) else { return };
        let Lagging { data, queue, came, .. } = lagging;
        let is_here = |key: &[u8]| cluster.shard(slot_of(key)) == shard;
        let is_new = |key: &[u8]| came.contains(&slot_of(key));
        let mut all = self.scripts.data().lock();
        let lost = all.clear(is_new);
        all.restore(&data, is_here);
        drop(all);
        if is_here(b"fair") {
            self.queue = if is_new(b"fair") { Queue::default() } else { queue };
        }
        // They had copies at the shard that they came from.
        self.take_away(world, lost.into_iter());
    }
}
