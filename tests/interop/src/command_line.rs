//! The command line on locks that Java holds and waits for: each row of the table in `cli/README.md`, on one server,
//! behind sentinels and on a cluster.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use lockson_harness::clock;
use lockson_harness::percent::encode_all;
use lockson_harness::{Peer, RedisCluster, RedisServer, SentinelSet};

use crate::actor::{Actor, Object};
use crate::kind::{Family, KINDS, Kind, Shape};
use crate::program::{Cast, Seat};
use crate::site::Site;
use crate::verdict::{Score, Verdict};
use table::{Case, Lockson, Row};

#[path = "../../../cli/tests/eyes/table.rs"]
mod table;

/// Checks each row of a kind that Redisson has.
pub(crate) fn check(cast: &Cast, kinds: &[&'static Kind], score: &Score) {
    let (server, sentinels) = (RedisServer::start(), SentinelSet::start(1, 1));
    let cluster = RedisCluster::start(2, 0);
    let places: Vec<String> =
        sentinels.sentinels().iter().map(|sentinel| format!("redis://{}", sentinel.address())).collect();
    let behind = format!("mode=sentinel master_name=mymaster check_sentinels=false address={}", encode_all(&places));
    let sites = [
        ("one server", server.url(), Site::One(&server).options()),
        ("sentinels", sentinels.url(), behind),
        ("cluster", cluster.url(), Site::Cluster(&cluster).options()),
    ];
    thread::scope(|scope| {
        for (site, url, options) in &sites {
            scope.spawn(move || score.attempt(site, || rows(cast, kinds, site, (url, options), score)));
        }
    });
}

fn rows(cast: &Cast, kinds: &[&'static Kind], site: &str, (url, options): (&str, &str), score: &Score) {
    let program = &std::env::current_exe().expect("a running program has a path").with_file_name("lockson");
    let open = || Peer::open(cast.of(Seat::Java).command(), options);
    let java = RefCell::new(open());
    for row in Row::all().iter().filter(|row| row.options(OF_JAVA).is_some()) {
        let title = if row.lock == "Group lock" { "Faster multi-lock" } else { row.lock };
        let kind = KINDS.iter().find(|kind| kind.title == title).expect("Redisson has the kind");
        if kinds.iter().all(|wanted| wanted.word != kind.word) {
            continue;
        }
        let verdict = Verdict::of(|| check_row(&java, row, kind, Lockson { program, url }));
        if matches!(verdict, Verdict::Failed(_)) {
            java.replace(open()); // a thread of the last one may still wait
        }
        score.count(&format!("command line, {site}, {title}"), &verdict);
    }
    println!("command line: {site}");
}

/// A Java thread holds, another Java thread waits, and is woken where the command line frees the lock.
fn check_row(java: &RefCell<Peer>, row: &Row, kind: &'static Kind, lockson: Lockson<'_>) {
    let name = format!("cli:{}", kind.word);
    let holder = Actor::new(java, Seat::Java, Object::new(kind, &name));
    let waiter = Actor::new(java, Seat::Java, Object::rival_of(kind, &name)).on_thread(1);
    let names = if kind.shape == Shape::Several { holder.object.part_names().to_vec() } else { vec![name] };
    holder.prepare(1);
    holder.take();
    let waiting = waiter.start_waiting(WAIT);
    let case = Case {
        names: &names,
        values: &["one", "two"][..if kind.shape == Shape::Group { 2 } else { 1 }],
        process: None,
    };
    row.check(lockson, &case, || {
        let freed = clock::nanos();
        let granted = waiting.finish();
        assert!(granted.acquired(), "the waiter did not get in within {WAIT:?}");
        let delay = granted.millis_after(freed);
        assert!(delay <= WOKEN.as_secs_f64() * 1e3, "the waiter got in {delay:.0} ms after the lock was freed");
        if kind.family != Family::Latch {
            waiter.give_back().expect_ok();
        }
    });
}

/// The longest wait of a Java thread, which a hold of 30 s outlives.
const WAIT: Duration = Duration::from_secs(25);
/// From the end of `free` to the grant of a woken waiter. A waiter without a message gets in after 20 s at the earliest.
const WOKEN: Duration = Duration::from_secs(5);
/// The column that tells whether Redisson has the kind.
const OF_JAVA: usize = 6;
