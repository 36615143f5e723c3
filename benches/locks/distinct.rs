//! Many threads, each with a lock of its own: the waiting that the client itself causes.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Lock};
use lockson_harness::RedisServer;

use crate::bare::Bare;
use crate::figure::{Spread, in_turns, per_second};
use crate::plan::Plan;
use crate::report::Report;

pub(crate) fn run(server: &RedisServer, plan: &Plan, report: &mut Report) {
    for count in [1, 4, 16, 64] {
        let client = Client::connect(&server.url()).expect("redis is reached");
        let mut locks: Vec<Lock> = (0..count).map(|index| client.get_lock(format!("distinct:ours:{index}"))).collect();
        let mut bare: Vec<Bare> =
            (0..count).map(|index| Bare::new(&server.url(), &format!("distinct:bare:{index}"))).collect();
        let time = plan.distinct_time;
        let ours_pair = |lock: &mut Lock| lock.lock().and_then(|guard| guard.unlock()).expect("works");
        let values = in_turns(
            plan.distinct_rounds,
            &mut [&mut || pairs_a_second(&mut locks, time, ours_pair), &mut || {
                pairs_a_second(&mut bare, time, Bare::pair)
            }],
        );
        report.figure(&format!("{count} threads: lockson"), Spread::of(values[0].iter().copied()), "pairs a second");
        report.figure(&format!("{count} threads: bare"), Spread::of(values[1].iter().copied()), "pairs a second");
        // As the others: how many times as dear as the floor.
        report.ratio(&format!("distinct-{count}"), Spread::ratio(&values[1], &values[0], |rate| *rate));
    }
}

/// Runs pairs for a while, with one thread for each element of `those`, all at the same time.
fn pairs_a_second<T: Send>(those: &mut [T], time: Duration, pair: impl Fn(&mut T) + Sync) -> f64 {
    let ready = Barrier::new(those.len());
    let work = |one: &mut T| {
        // Opens the connection, where there is none yet.
        pair(one);
        ready.wait();
        let started = Instant::now();
        let mut count = 0_u64;
        while started.elapsed() < time {
            pair(one);
            count += 1;
        }
        count
    };
    let total: u64 = thread::scope(|scope| {
        let running: Vec<_> = those.iter_mut().map(|one| scope.spawn(|| work(one))).collect();
        running.into_iter().map(|thread| thread.join().expect("no thread fails")).sum()
    });
    per_second(total, time)
}
