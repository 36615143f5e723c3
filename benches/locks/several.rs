//! Several free locks at once, in times of one free lock.

use lockson::{Client, Lock};
use lockson_harness::RedisServer;

use crate::figure::{Spread, in_short_turns, timed};
use crate::placement::in_each_mostly_apart;
use crate::plan::Plan;
use crate::report::Report;

/// A multi-lock of ten locks on one server, and of five on each of two servers.
pub(crate) fn multi(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let client = connect(server);
    let locks = |client: &Client, count| (0..count).map(|n| client.get_lock(format!("bench:multi:{n}"))).collect();
    let one: Vec<Lock> = locks(&client, 1);
    compare("multi-10", &[server], &one[0], &Lock::multi(locks(&client, 10)), plan, report);

    let other_server = RedisServer::start();
    let other = connect(&other_server);
    let both = [locks(&client, 5), locks(&other, 5)].concat();
    compare("multi-10-two-servers", &[server, &other_server], &one[0], &Lock::multi(both), plan, report);
}

/// Takes and releases both, one after the other.
fn compare(name: &str, servers: &[&RedisServer], one: &Lock, several: &Lock, plan: &Plan, report: &mut Report) {
    in_each_mostly_apart(servers, report, name, |placement, report| {
        let candidates: &mut [&mut dyn FnMut() -> u64] = &mut [&mut || pair(several), &mut || pair(one)];
        let values = in_short_turns(plan.pair_rounds, plan.pair_batch, candidates);
        for (candidate, rounds) in [("all", &values[0]), ("one lock", &values[1])] {
            let p50 = rounds.iter().map(|samples| samples.quantile(0.5));
            report.figure(&format!("{candidate}, p50"), Spread::of(p50), "us");
        }
        let ratio = Spread::ratio(&values[0], &values[1], |samples| samples.quantile(0.5));
        report.ratio(&format!("{name}{}", placement.suffix()), ratio);
        ratio
    });
}

fn pair(lock: &Lock) -> u64 {
    timed(|| lock.lock().and_then(|guard| guard.unlock()).expect("works"))
}

fn connect(server: &RedisServer) -> Client {
    Client::connect(&server.url()).expect("redis is reached")
}
