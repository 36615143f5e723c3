//! Slots that move from master to master, with a pause in the middle, while others use their keys.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lockson_harness::{RedisCluster, slot_of};

/// Moves the slots of these names, one after the other, while `work` runs. A cluster has three masters.
pub(super) fn while_slots_move<T: Send>(cluster: &RedisCluster, names: &[String], work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut moves = 0;
            for name in names.iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                move_one(cluster, slot_of(name));
                moves += 1;
            }
            moves
        });
        let end = EndsMoves(&over);
        let outcome = work();
        drop(end);
        let moves: u32 = mover.join().expect("the slots move");
        println!("soak: {moves} slots moved");
        outcome
    })
}

fn move_one(cluster: &RedisCluster, slot: u16) {
    let to = (cluster.owner_of(slot) + 1) % cluster.nodes().len();
    cluster.begin_move(slot, to);
    cluster.move_keys(slot, to, |key| key.len() % 2 == 0);
    thread::sleep(PAUSE);
    cluster.finish_move(slot, to);
    thread::sleep(PAUSE);
}

/// Ends the moves, also after a panic.
struct EndsMoves<'a>(&'a AtomicBool);

impl Drop for EndsMoves<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const PAUSE: Duration = Duration::from_millis(150);
