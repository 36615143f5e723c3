//! What is counted, under cut and killed connections: the sum is right in every round.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lockson::{Client, CountDownLatch, ErrorKind, Semaphore};
use lockson_harness::eventually;
use lockson_harness::proxy::{Then, When};

use crate::campaign::Campaign;
use crate::support::faults::{Rig, SOON, rig_without_fences};
use crate::support::{Random, joined, ms};

#[test]
#[ignore = "make soak"]
fn storm_of_counted_objects() {
    let mut campaign = Campaign::start("changes of semaphores and latches, among cuts and kills", 100_000, 6);
    let rigs = [Rig::start(), rig_without_fences()];
    let (mut doubts, mut disturbed) = (0, 0);
    while campaign.goes_on() {
        for (index, rig) in rigs.iter().enumerate() {
            let user = if index == 0 { "" } else { "meek:secret@" };
            let (cuts, doubtful) = round(rig, user, &mut campaign.random());
            disturbed += cuts;
            doubts += doubtful;
            campaign.passed(THREADS * STEPS);
        }
    }
    campaign.end(format!("{disturbed} faults, {doubts} calls in doubt, every sum right"));
}

#[test]
fn counted_objects_keep_their_sum_under_faults() {
    for (rig, user) in [(Rig::start(), ""), (rig_without_fences(), "meek:secret@")] {
        for seed in [3, 5, 7] {
            round(&rig, user, &mut Random(seed));
        }
    }
}

/// The changes that are certain, and those that may have run or not.
#[derive(Debug, Default)]
struct Sum {
    certain: i64,
    doubtful: Vec<i64>,
}

impl Sum {
    fn add(&mut self, change: i64, outcome: lockson::Result<()>) {
        match outcome {
            Ok(()) => self.certain += change,
            Err(error) if error.kind() == ErrorKind::Unknown => self.doubtful.push(change),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Connection, "{error}"),
        }
    }

    fn fits(&self, sum: i64) -> bool {
        let subsets = 1_u32 << self.doubtful.len();
        let of = |subset: u32| {
            let chosen = self.doubtful.iter().enumerate().filter(|(index, _)| subset & (1 << index) != 0);
            chosen.map(|(_, change)| change).sum::<i64>()
        };
        (0..subsets).any(|subset| self.certain + of(subset) == sum)
    }
}

/// Threads change a semaphore and a latch while connections break. Returns the number of faults and of calls in doubt.
fn round(rig: &Rig, user: &str, random: &mut Random) -> (usize, usize) {
    let url = format!("redis://{user}127.0.0.1:{}", rig.proxy.port());
    let client = Client::builder(&url).command_timeout(ms(2_000)).connect().unwrap();
    let name = format!("counted:{}", random.below(u64::MAX));
    let (semaphore, latch) = (client.get_semaphore(&name), client.get_count_down_latch(format!("{name}:latch")));
    let downs = THREADS * STEPS;
    let direct = rig.direct();
    direct.get_semaphore(&name).set_permits_once(100).unwrap();
    direct.get_count_down_latch(latch.name()).set_count_once(u32::try_from(downs).unwrap() + 1).unwrap();
    let (free, left) = (Mutex::new(Sum { certain: 100, ..Sum::default() }), Mutex::new(Sum::default()));
    left.lock().unwrap().certain = i64::try_from(downs).unwrap() + 1;
    let done = Done::default();
    let seeds: Vec<u64> = (0..THREADS).map(|_| random.below(u64::MAX - 1) + 1).collect();
    let faults = thread::scope(|scope| {
        let workers: Vec<_> = seeds
            .iter()
            .map(|&seed| {
                let (objects, sums) = ((&semaphore, &latch), (&free, &left));
                scope.spawn(move || work(rig, objects, sums, &mut Random(seed)))
            })
            .collect();
        let killing = scope.spawn(|| kill_connections(rig, &done));
        let working = done.working();
        let cuts: usize = workers.into_iter().map(joined).sum();
        drop(working);
        cuts + joined(killing)
    });
    rig.proxy.heal();
    client.close();
    let (free, left) = (free.into_inner().unwrap(), left.into_inner().unwrap());
    let now = || (direct.get_semaphore(&name).available().unwrap(), direct.get_count_down_latch(latch.name()).count());
    eventually(SOON, "the sums are right", || {
        let (semaphore, latch) = now();
        free.fits(semaphore) && left.fits(i64::try_from(latch.unwrap()).unwrap())
    });
    (faults, free.doubtful.len() + left.doubtful.len())
}

/// Changes both objects. Returns the number of requests that were cut.
fn work(
    rig: &Rig,
    (semaphore, latch): (&Semaphore, &CountDownLatch),
    (free, left): (&Mutex<Sum>, &Mutex<Sum>),
    random: &mut Random,
) -> usize {
    let mut cuts = 0;
    for _ in 0..STEPS {
        cuts += usize::from(cut_something(rig, random));
        let permits = i64::try_from(random.below(5)).unwrap() + 1;
        let wanted = u32::try_from(permits).unwrap();
        match random.below(6) {
            // Taken permits come back by themselves, whatever becomes of the calls.
            0 => drop(semaphore.try_acquire(wanted)),
            1 | 2 => drop(semaphore.try_acquire_for(wanted, ms(300)).map(|taken| taken.map(lockson::Permits::release))),
            3 => {
                let outcome = semaphore.add_permits(permits);
                free.lock().unwrap().add(permits, outcome);
            }
            4 => {
                let outcome = semaphore.add_permits(-permits);
                free.lock().unwrap().add(-permits, outcome);
            }
            // Permits of a drain without an answer come back, too.
            _ => {
                if let Ok(drained) = semaphore.drain() {
                    let drained = i64::try_from(drained).unwrap();
                    let mut sum = free.lock().unwrap();
                    sum.certain -= drained;
                    drop(sum);
                    let outcome = semaphore.add_permits(drained);
                    free.lock().unwrap().add(drained, outcome);
                }
            }
        }
        let outcome = latch.count_down();
        left.lock().unwrap().add(-1, outcome);
    }
    cuts
}

/// Cuts one of the next requests at a random byte, before or after its execution, or nothing.
pub(super) fn cut_something(rig: &Rig, random: &mut Random) -> bool {
    let byte = usize::try_from(random.below(400)).unwrap();
    rig.proxy.cut_by_reset(random.below(2) == 0);
    let then = match random.below(4) {
        0 => Then::CutRequestAfter(byte),
        1 => Then::CutReplyAfter(byte % 12),
        _ => return false,
    };
    drop(rig.proxy.rule(When::script(), then));
    true
}

/// Says that the workers are done, also where one of them panics.
#[derive(Debug, Default)]
pub(super) struct Done(AtomicBool);

/// Dropping it ends the killing.
pub(super) struct Working<'a>(&'a Done);

impl Done {
    pub(super) fn working(&self) -> Working<'_> {
        Working(self)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}

/// Kills every connection now and then. Returns how often.
pub(super) fn kill_connections(rig: &Rig, done: &Done) -> usize {
    let mut kills = 0;
    while !done.0.load(Ordering::Acquire) {
        rig.server.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        kills += 1;
        thread::sleep(ms(100));
    }
    kills
}

const THREADS: u64 = 4;
const STEPS: u64 = 25;
