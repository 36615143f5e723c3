//! The steps of moving a slot from one master to another.

use super::{BOUND, RedisCluster, SLOTS};

impl RedisCluster {
    /// Moves a slot with all its keys, and waits until all nodes agree.
    ///
    /// # Panics
    ///
    /// Panics when a step is refused.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.begin_move(slot, to);
        self.finish_move(slot, to);
    }

    /// Opens the slot on both sides: from now on the source answers ASK for keys that it does not have.
    ///
    /// # Panics
    ///
    /// Panics when a step is refused.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, to: usize) {
        assert!(slot < SLOTS, "slot {slot} is too high");
        let from = self.owner_of(slot);
        let number = slot.to_string();
        self.nodes[to].run(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &self.ids[from]]);
        self.nodes[from].run(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &self.ids[to]]);
    }

    /// Moves the chosen keys of the slot, and returns how many were moved.
    ///
    /// # Panics
    ///
    /// Panics when a step is refused.
    #[track_caller]
    pub fn move_keys(&self, slot: u16, to: usize, choose: impl Fn(&[u8]) -> bool) -> usize {
        let from = &self.nodes[self.owner_of(slot)];
        let mut connection = from.connection();
        let count = u32::MAX >> 1;
        let mut ask = redis::cmd("CLUSTER");
        ask.arg("GETKEYSINSLOT").arg(slot).arg(count);
        let mut keys: Vec<Vec<u8>> = ask.query(&mut connection).expect("a master lists the keys of its slot");
        keys.retain(|key| choose(key));
        let _alone = self.moving.lock();
        for some in keys.chunks(KEYS) {
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(self.nodes[to].port()).arg("").arg(0).arg(BOUND.as_millis() as u64);
            migrate.arg("KEYS").arg(some);
            let outcome: redis::RedisResult<String> = migrate.query(&mut connection);
            outcome.unwrap_or_else(|error| panic!("the keys of slot {slot} do not move: {error}"));
        }
        keys.len()
    }

    /// Moves the rest of the keys, gives the slot to the target, and waits until all nodes agree.
    ///
    /// # Panics
    ///
    /// Panics when a step is refused.
    #[track_caller]
    pub fn finish_move(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        // The source creates no key of the slot any more. It deletes keys that it still has when it hears of the new
        // owner, so none may be left.
        while self.move_keys(slot, to, |_| true) > 0 {}
        let _alone = self.moving.lock();
        // The target must know the newest epoch, so that its own is newer: a ping of the source that is on its way takes
        // the slot back else, at the target alone.
        self.wait_until_well();
        let masters = self.masters();
        let others = masters.into_iter().filter(|&node| node != to && node != from);
        for node in [to, from].into_iter().chain(others) {
            self.nodes[node].run(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.ids[to]]);
        }
        self.wait_until_well();
    }
}

/// So many keys in one MIGRATE: the source answers nobody meanwhile.
const KEYS: usize = 100;
