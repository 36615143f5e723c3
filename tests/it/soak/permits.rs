//! Expiring permits, under cut and killed connections and killed processes: never more holders than permits.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, ErrorKind, ExpiringPermits, PermitExpirableSemaphore};
use lockson_harness::eventually;

use super::counted::{Done, cut_something, kill_connections};
use crate::campaign::Campaign;
use crate::faults::other_process::OtherProcess;
use crate::support::faults::{Rig, SOON, rig_without_fences};
use crate::support::{Random, joined, ms};

#[test]
#[ignore = "make soak"]
fn storm_of_expiring_permits() {
    let mut campaign = Campaign::start("takes of expiring permits, among cuts and kills", 50_000, 4);
    let rigs = [(Rig::start(), ""), (rig_without_fences(), "meek:secret@")];
    let (mut takes, mut disturbed) = (0, 0);
    while campaign.goes_on() {
        for (rig, user) in &rigs {
            let (faults, taken) = round(rig, user, &mut campaign.random());
            disturbed += faults;
            takes += taken;
            campaign.passed(THREADS * STEPS);
        }
    }
    campaign.end(format!("{disturbed} faults, {takes} grants, never more than {PERMITS} permits in use"));
}

#[test]
fn expiring_permits_keep_their_number_under_faults() {
    for (rig, user) in [(Rig::start(), ""), (rig_without_fences(), "meek:secret@")] {
        for seed in [3, 5] {
            let (_, taken) = round(&rig, user, &mut Random(seed));
            assert!(taken > THREADS as usize, "{taken} grants only");
        }
    }
}

/// The witness: by how much the number of permits in use changed, and when.
#[derive(Debug, Default)]
struct InUse(Mutex<Vec<(Instant, i64)>>);

impl InUse {
    fn add(&self, from: Instant, until: Instant, permits: i64) {
        self.0.lock().unwrap().extend([(from, permits), (until, -permits)]);
    }

    /// The most permits in use at one time, and the number of grants.
    fn most(self) -> (i64, usize) {
        let mut changes = self.0.into_inner().unwrap();
        changes.sort_unstable();
        let sums = changes.iter().scan(0, |sum, (_, change)| {
            *sum += change;
            Some(*sum)
        });
        (sums.max().unwrap_or(0), changes.len() / 2)
    }
}

/// Threads and a process take permits while connections break. Returns the number of faults and of grants.
fn round(rig: &Rig, user: &str, random: &mut Random) -> (usize, usize) {
    let url = format!("redis://{user}127.0.0.1:{}", rig.proxy.port());
    let name = format!("permits:{}", random.below(u64::MAX));
    let direct = rig.direct().get_permit_expirable_semaphore(&name);
    direct.set_permits(PERMITS).unwrap();
    let clients = [(); 2].map(|()| Client::builder(&url).command_timeout(ms(2_000)).connect().unwrap());
    let (in_use, done) = (InUse::default(), Done::default());
    let seeds: Vec<u64> = (0..THREADS).map(|_| random.below(u64::MAX - 1) + 1).collect();
    let mut process = OtherProcess::start(&rig.server);
    let faults = thread::scope(|scope| {
        let start = |(client, seed): (&Client, u64)| {
            let (calls, in_use) = (client.get_permit_expirable_semaphore(&name), &in_use);
            scope.spawn(move || work(rig, &calls, in_use, &mut Random(seed)))
        };
        let workers: Vec<_> = clients.iter().cycle().zip(seeds).map(start).collect();
        let killing = scope.spawn(|| kill_connections(rig, &done));
        let working = done.working();
        let asked = Instant::now();
        assert_eq!(process.ask(0, &format!("permits {name} 2")), "holds 2");
        let granted = Instant::now();
        thread::sleep(ms(200));
        let killed = Instant::now();
        process.kill();
        // A wait in that process is shorter than its lease, or nothing is certain.
        let believed = (asked + OTHERS_LEASE).min(killed);
        if granted < believed {
            in_use.add(granted, believed, 2);
        }
        let cuts: usize = workers.into_iter().map(joined).sum();
        drop(working);
        cuts + joined(killing)
    });
    rig.proxy.heal();
    clients.iter().for_each(Client::close);
    let (most, taken) = in_use.most();
    assert!((1..=i64::from(PERMITS)).contains(&most), "{most} permits in use");
    eventually(SOON, "all permits are back", || {
        direct.available().unwrap() == PERMITS.into() && direct.acquired().unwrap() == 0
    });
    assert_eq!(direct.permits().unwrap(), PERMITS.into());
    assert!(direct.delete().unwrap());
    (faults, taken)
}

/// Takes and gives back in every way there is. Returns the number of requests that were cut.
fn work(rig: &Rig, calls: &PermitExpirableSemaphore, in_use: &InUse, random: &mut Random) -> usize {
    let mut cuts = 0;
    for _ in 0..STEPS {
        cuts += usize::from(cut_something(rig, random));
        let wanted = u32::try_from(random.below(3)).unwrap() + 1;
        let leased = calls.with_lease(Duration::from_secs(60));
        let handle = if random.below(2) == 0 { calls } else { &leased };
        let taken = match random.below(3) {
            0 => handle.try_acquire(wanted),
            _ => handle.try_acquire_for(wanted, ms(300)),
        };
        match taken {
            Ok(Some(permits)) => use_permits(calls, permits, in_use, random),
            Ok(None) => {}
            Err(error) => assert!(in_doubt(error.kind()), "{error}"),
        }
    }
    cuts
}

fn use_permits(calls: &PermitExpirableSemaphore, permits: ExpiringPermits, in_use: &InUse, random: &mut Random) {
    let from = Instant::now();
    thread::sleep(Duration::from_micros(random.below(3_000)));
    assert_eq!(permits.lost(), None);
    let ids = permits.ids();
    in_use.add(from, Instant::now(), i64::try_from(ids.len()).unwrap());
    let outcome = match random.below(4) {
        0 => calls.release_by_id(&ids),
        1 => {
            drop(permits);
            Ok(())
        }
        _ => permits.release(),
    };
    if let Err(error) = outcome {
        assert!(in_doubt(error.kind()), "{error}");
    }
}

fn in_doubt(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unknown | ErrorKind::Connection)
}

const PERMITS: u32 = 5;
const THREADS: u64 = 6;
const STEPS: u64 = 20;
/// How long the permits of the other process last without a renewal.
const OTHERS_LEASE: Duration = Duration::from_secs(1);
