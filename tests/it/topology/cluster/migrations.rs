//! A slot goes there and back under load, with a pause in the middle: no two holders, and nobody is stuck.

use std::sync::atomic::AtomicU64;

use lockson::Result;
use lockson_harness::Witness;

use super::kinds::{LEASE, brisk, names};
use crate::campaign::Campaign;
use crate::support::prelude::*;

#[test]
#[ignore = "make topology"]
fn slots_go_there_and_back_under_load() {
    let mut campaign = Campaign::start("moves of a slot under load, every kind", 40, 15);
    let mut all = Told::default();
    while campaign.goes_on() {
        all.add(&there_and_back(ms(1_500)));
        campaign.passed(2);
    }
    campaign.end(&all);
}

#[test]
fn a_slot_goes_there_and_back_under_load() {
    there_and_back(ms(300));
}

/// What the workers counted.
#[derive(Debug, Default)]
struct Told {
    sections: AtomicU64,
    /// Requests that did not reach an answer in their time.
    refused: AtomicU64,
    lost: AtomicU64,
    /// The longest time that a worker was without a section after the last move, in ms.
    stuck_ms: AtomicU64,
}

impl Told {
    fn add(&mut self, other: &Told) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        *self.sections.get_mut() += load(&other.sections);
        *self.refused.get_mut() += load(&other.refused);
        *self.lost.get_mut() += load(&other.lost);
        self.stuck_ms.fetch_max(load(&other.stuck_ms), Ordering::Relaxed);
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Told { sections, refused, lost, stuck_ms } = self;
        write!(f, "{sections:?} sections, {refused:?} refused in time, {lost:?} lost and told, {stuck_ms:?} ms stuck")
    }
}

/// The threads that want the read side of one lock; the writer excludes each of them.
const READERS: usize = 3;

/// One move there and one back. The witness sees no overlap.
fn there_and_back(pause: Duration) -> Told {
    let cluster = RedisCluster::start(2, 0);
    let witness = Witness::at(cluster.node(0).data_folder().join("witness"));
    let (tag, told) = (fresh("migration"), Told::default());
    let (moved, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let clients = [(); 2].map(|()| brisk(&cluster).command_timeout(ms(1_000)).connect().unwrap());
    let (permits, count) = (format!("{{{tag}}}:permits"), format!("{{{tag}}}:count"));
    thread::scope(|scope| {
        let mut workers = vec![];
        for client in &clients {
            for (kind, name) in names(&tag) {
                let lock = (kind.lock)(client, &name);
                let places = vec![name];
                workers.push(Worker { lock, places });
            }
            let both = format!("{{{tag}}}:both");
            let sides = client.get_read_write_lock(&both);
            let place = |reader: usize| format!("{both}:{reader}");
            workers.push(Worker { lock: sides.write(), places: (0..READERS).map(place).collect() });
        }
        // Each reader has a place of its own, so that readers do not disturb each other.
        for reader in 0..READERS {
            let both = format!("{{{tag}}}:both");
            let lock = clients[reader % 2].get_read_write_lock(&both).read();
            workers.push(Worker { lock, places: vec![format!("{both}:{reader}")] });
        }
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(|| worker.works(&witness, &told, &moved, &ended))).collect();
        clients[0].get_permit_expirable_semaphore(&permits).set_permits(1).unwrap();
        clients[0].get_semaphore(&count).set_permits_once(1).unwrap();
        let counted: Vec<_> = clients
            .iter()
            .flat_map(|client| {
                let (witness, ended, of_permits, of_count) = (&witness, &ended, &permits, &count);
                let take_permit = move || {
                    let taken = client.get_permit_expirable_semaphore(of_permits).try_acquire_for(1, ms(500))?;
                    taken.map_or(Ok(()), |permit| {
                        drop(witness.enter(of_permits));
                        assert_eq!(permit.lost(), None);
                        permit.release()
                    })
                };
                let take_of_count = move || {
                    let taken = client.get_semaphore(of_count).try_acquire_for(1, ms(500))?;
                    taken.map_or(Ok(()), |permit| {
                        drop(witness.enter(of_count));
                        permit.release()
                    })
                };
                [scope.spawn(move || repeat(ended, take_permit)), scope.spawn(move || repeat(ended, take_of_count))]
            })
            .collect();
        let slot = slot_of(&tag);
        for _ in 0..2 {
            let to = 1 - cluster.owner_of(slot);
            thread::sleep(pause / 2);
            cluster.begin_move(slot, to);
            cluster.move_keys(slot, to, |key| key.len() % 2 == 0);
            thread::sleep(pause);
            cluster.finish_move(slot, to);
        }
        moved.store(true, Ordering::Relaxed);
        thread::sleep(SETTLING);
        ended.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(joined);
        counted.into_iter().for_each(joined);
        eventually(SOON, "no permit is gone or there twice", || {
            let [permits, count] = [
                clients[0].get_permit_expirable_semaphore(&permits).available(),
                clients[0].get_semaphore(&count).available(),
            ];
            permits.unwrap() == 1 && count.unwrap() == 1
        });
    });
    witness.assert_no_violation();
    assert_eq!(told.lost.load(Ordering::Relaxed), 0, "no master died, so no hold is lost");
    told
}

/// Repeats the section until the end. A slot that moves may fail it for a while, or leave it in doubt.
fn repeat(ended: &AtomicBool, section: impl Fn() -> Result<()>) {
    while !ended.load(Ordering::Relaxed) {
        if let Err(error) = section() {
            assert!(error.is_transient() || error.is_in_doubt(), "{error}");
        }
    }
}

struct Worker {
    lock: Lock,
    places: Vec<String>,
}

impl Worker {
    fn works(self, witness: &Witness, told: &Told, moved: &AtomicBool, ended: &AtomicBool) {
        // The writer among readers may starve, so only its overlaps count.
        let must_go_on = self.places.len() == 1;
        let mut since_moved = None;
        while !ended.load(Ordering::Relaxed) {
            if moved.load(Ordering::Relaxed) {
                since_moved.get_or_insert_with(Instant::now);
            }
            match self.section(witness) {
                Ok(Some(lost)) => {
                    told.sections.fetch_add(1, Ordering::Relaxed);
                    told.lost.fetch_add(u64::from(lost), Ordering::Relaxed);
                    if let Some(since) = since_moved.filter(|_| must_go_on) {
                        told.stuck_ms.fetch_max(since.elapsed().as_millis() as u64, Ordering::Relaxed);
                        assert!(since.elapsed() < SETTLING + SOON, "{} was stuck", self.lock.name());
                        // From here on each section counts by itself.
                        since_moved = Some(Instant::now());
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    assert!(error.is_transient() || error.is_in_doubt(), "{}: {error}", self.lock.name());
                    told.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// One section. Returns whether its hold was lost; `None` if there was none.
    fn section(&self, witness: &Witness) -> Result<Option<bool>> {
        let Some(guard) = self.lock.try_lock_for(ms(500))? else { return Ok(None) };
        let granted = Instant::now();
        let inside: Vec<_> = self.places.iter().map(|place| witness.enter(place)).collect();
        thread::sleep(ms(2));
        drop(inside);
        let lost = guard.lost().is_some();
        if let Err(error) = guard.unlock() {
            // A release that is refused for most of a lease may find the lock expired; this is told, too.
            let late = error.is_lost() && granted.elapsed() > LEASE / 3;
            assert!(late || lost || error.is_in_doubt() || error.is_transient(), "{}: {error}", self.lock.name());
        }
        Ok(Some(lost))
    }
}

/// The time in which every worker must have had a section after the last move.
const SETTLING: Duration = Duration::from_secs(2);
