//! The cost of messages about one lock beside many held locks: the many must not raise the cost.

use std::thread;
use std::time::{Duration, Instant};

use lockson::{Cancel, Client, OwnedGuard};
use lockson_harness::{RedisServer, eventually};

use crate::figure::Spread;
use crate::plan::Plan;
use crate::report::{Report, progress};
use crate::usage::time_of_threads;

pub(crate) fn run(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let (mut few, mut many) = (vec![], vec![]);
    let client = Client::connect(&server.url()).expect("redis is reached");
    // The holds are leased, so that no renewal mixes with the messages.
    let take = |index: usize| {
        client.get_lock(format!("held:{index}")).with_lease(LEASE).owned().lock().expect("the lock is free")
    };
    let one = take(0);
    for round in 0..plan.announcement_rounds {
        few.push(part_of_a_processor(server, &client, &one, plan.announcement_time));
        progress(round + 1, 2 * plan.announcement_rounds);
    }
    let share = HOLDS / TAKERS;
    let others: Vec<OwnedGuard> = thread::scope(|scope| {
        let take = &take;
        let takers: Vec<_> = (0..TAKERS)
            .map(|taker| scope.spawn(move || (1..=share).map(|index| take(taker * share + index)).collect::<Vec<_>>()))
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().expect("all are free")).collect()
    });
    eventually(PATIENCE, "all are watched", || server.tracked_keys() >= others.len());
    for round in 0..plan.announcement_rounds {
        many.push(part_of_a_processor(server, &client, &one, plan.announcement_time));
        progress(plan.announcement_rounds + round + 1, 2 * plan.announcement_rounds);
    }
    let rate = format!("{A_SECOND} a second");
    report.figure(&format!("{rate} beside 1 hold, of one processor"), Spread::of(few.iter().copied()), "%");
    report.figure(&format!("{rate} beside {HOLDS} holds"), Spread::of(many.iter().copied()), "%");
    report.ratio("announcements-beside-holds", Spread::ratio(&many, &few, |part| *part));
    let lost = others.iter().filter(|guard| !guard.is_held()).count();
    report.figure("locks lost", lost, "");
    drop((one, others));
}

/// Measures the processor time of the listening and the renewing thread while a thread waits for a held lock and the
/// lock's channel is busy.
fn part_of_a_processor(server: &RedisServer, client: &Client, held: &OwnedGuard, time: Duration) -> f64 {
    let cancel = Cancel::new();
    let channel = format!("redisson_lock__channel:{{{}}}", held.name());
    thread::scope(|scope| {
        scope.spawn(|| client.get_lock(held.name()).with_cancel(&cancel).lock().map(drop));
        eventually(PATIENCE, "somebody listens", || server.subscribers(&channel) == 1);
        let mut connection = server.connection();
        let (before, started) = (time_of_threads(WORKERS), Instant::now());
        let mut next = started;
        while started.elapsed() < time {
            redis::cmd("PUBLISH").arg(&channel).arg("0").query::<()>(&mut connection).expect("redis answers");
            next += Duration::from_secs(1) / A_SECOND;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let used = time_of_threads(WORKERS) - before;
        let part = used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
        cancel.cancel();
        part
    })
}

const WORKERS: &[&str] = &["lockson-listen", "lockson-watchdog"];
const HOLDS: usize = 50_000;
const TAKERS: usize = 8;
const A_SECOND: u32 = 100;
const LEASE: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(30);
