//! One thread, one lock: take and release, first on a free lock and then on a lock held by the same thread.

use lockson::Client;
use lockson_harness::{RedisCluster, RedisServer};

use crate::bare::Bare;
use crate::figure::{Samples, Spread, in_short_turns, timed};
use crate::placement::{Placement, in_each};
use crate::plan::Plan;
use crate::report::Report;

pub(crate) fn uncontended(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let client = Client::connect(&server.url()).expect("redis is reached");
    let lock = client.get_lock("bench:pair:ours");
    let mut bare = Bare::new(&server.url(), "bench:pair:bare");
    in_each(server, report, "pair", |placement, report| {
        let ours = || lock.lock().and_then(|guard| guard.unlock()).expect("works");
        compare("pair", placement, plan, report, ours, || bare.pair())
    });
}

/// The same on a cluster, beside bare requests to the member that has the slot.
pub(crate) fn on_a_cluster(_: &RedisServer, plan: &Plan, report: &mut Report) {
    let cluster = RedisCluster::start(3, 0);
    let client = Client::connect(&cluster.url()).expect("the cluster is reached");
    let lock = client.get_lock("{bench:pair-cluster}:ours");
    let member = cluster.node(cluster.node_of(lock.name()));
    let mut bare = Bare::sharded(&member.url(), "{bench:pair-cluster}:bare");
    in_each(member, report, "pair-cluster", |placement, report| {
        let ours = || lock.lock().and_then(|guard| guard.unlock()).expect("works");
        compare("pair-cluster", placement, plan, report, ours, || bare.pair())
    });
}

/// As [`uncontended`], over TLS: the floor is a session on one connection.
#[cfg(feature = "tls")]
pub(crate) fn over_tls(_: &RedisServer, plan: &Plan, report: &mut Report) {
    let (server, target, _authority) = crate::placement::secured();
    let lock = crate::wire::client(&target).get_lock("bench:pair-tls:ours");
    let mut bare = Bare::new(&target, "bench:pair-tls:bare");
    in_each(&server, report, "pair-tls", |placement, report| {
        let ours = || lock.lock().and_then(|guard| guard.unlock()).expect("works");
        compare("pair-tls", placement, plan, report, ours, || bare.pair())
    });
}

pub(crate) fn reentry(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let client = Client::connect(&server.url()).expect("redis is reached");
    let lock = client.get_lock("bench:re-entry:ours");
    let outer = lock.lock().expect("the lock is free");
    let mut bare = Bare::new(&server.url(), "bench:re-entry:bare");
    assert!(bare.acquire());
    in_each(server, report, "re-entry", |placement, report| {
        let ours = || lock.lock().and_then(|guard| guard.unlock()).expect("works");
        let floor = || {
            bare.reenter();
            bare.release_part();
        };
        compare("re-entry", placement, plan, report, ours, floor)
    });
    outer.unlock().expect("the lock was held");
    bare.release();
}

pub(crate) fn compare(
    name: &str,
    placement: Placement,
    plan: &Plan,
    report: &mut Report,
    mut ours: impl FnMut(),
    mut floor: impl FnMut(),
) -> Vec<Spread> {
    let candidates: &mut [&mut dyn FnMut() -> u64] = &mut [&mut || timed(&mut ours), &mut || timed(&mut floor)];
    let values = in_short_turns(plan.pair_rounds, plan.pair_batch, candidates);
    let (ours, floor) = (&values[0], &values[1]);
    let p50 = |samples: &Samples| samples.quantile(0.5);
    report.figure("lockson, p50", Spread::of(ours.iter().map(p50)), "us");
    report.figure("bare, p50", Spread::of(floor.iter().map(p50)), "us");
    let added = ours.iter().zip(floor).map(|(ours, floor)| p50(ours) - p50(floor));
    report.figure("added by the library, p50", Spread::of(added), "us");
    let [ours_p99, floor_p99] = [ours, floor].map(|rounds| Samples::pooled(rounds).quantile(0.99));
    report.figure("p99 of all rounds, lockson and bare", format!("{ours_p99:.1} and {floor_p99:.1}"), "us");
    let ratio = Spread::ratio(ours, floor, p50);
    report.ratio(&format!("{name}{}", placement.suffix()), ratio);
    vec![ratio]
}
