//! Ten thousand held locks: the cost of renewal, and the lowest time to live that renewal allows.

use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Guard};
use lockson_harness::RedisServer;

use crate::figure::Spread;
use crate::plan::Plan;
use crate::report::{Report, progress};
use crate::usage::processor_time;

pub(crate) fn run(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let client = Client::builder(&server.url()).watchdog(LEASE, INTERVAL).connect().expect("redis is reached");
    let names: Vec<String> = (0..LOCKS).map(|index| format!("renewal:{index}")).collect();
    let started = Instant::now();
    let guards: Vec<Guard> = names.iter().map(|name| client.get_lock(name).lock().expect("the lock is free")).collect();
    report.figure("locks taken by one thread", format!("{LOCKS} in {:.2}", started.elapsed().as_secs_f64()), "s");

    // A span begins at any point of the watchdog's schedule: every span of this length contains one renewal of each
    // lock.
    let spans: Vec<Span> = (0..plan.renewal_rounds)
        .map(|round| {
            let span = Span::watch(server);
            progress(round as usize + 1, plan.renewal_rounds as usize);
            span
        })
        .collect();
    let spread = |value: &dyn Fn(&Span) -> f64| Spread::of(spans.iter().map(value));
    let part = |time: Duration| time.as_secs_f64() / INTERVAL.as_secs_f64() * 100.0;
    report.figure("this process, of one processor", spread(&|span| part(span.ours)), "%");
    report.figure("redis, of one processor", spread(&|span| part(span.redis)), "%");
    report.figure("scripts in a renewal round", spread(&|span| span.scripts as f64), "");
    let lowest: Vec<f64> = (0..plan.renewal_rounds).map(|_| lowest_in_a_round(server, &names)).collect();
    report.figure(&format!("lowest time to live, of {} ms", LEASE.as_millis()), Spread::of(lowest), "ms");

    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    report.figure("locks lost", lost, "");
    report.ratio("renewal-kept", Spread::of([1.0 - lost as f64 / LOCKS as f64]));
    let started = Instant::now();
    drop(guards);
    report.figure("released by one thread", format!("in {:.2}", started.elapsed().as_secs_f64()), "s");
}

/// One renewal interval.
struct Span {
    ours: Duration,
    redis: Duration,
    scripts: u64,
}

impl Span {
    fn watch(server: &RedisServer) -> Self {
        let [ours, redis] = [std::process::id(), server.pid()];
        let scripts = server.calls_of("evalsha");
        let before = [ours, redis].map(processor_time);
        thread::sleep(INTERVAL);
        let after = [ours, redis].map(processor_time);
        Self { ours: after[0] - before[0], redis: after[1] - before[1], scripts: server.calls_of("evalsha") - scripts }
    }
}

/// Reads the time to live of every lock repeatedly for one interval.
fn lowest_in_a_round(server: &RedisServer, names: &[String]) -> f64 {
    let mut connection = server.connection();
    let script = redis::Script::new(LOWEST);
    let mut look = script.prepare_invoke();
    look.key(names);
    let started = Instant::now();
    let mut lowest = i64::MAX;
    while started.elapsed() < INTERVAL {
        lowest = lowest.min(look.invoke(&mut connection).expect("redis answers"));
        thread::sleep(PROBE_INTERVAL);
    }
    lowest as f64
}

const LOWEST: &str = "
local lowest = redis.call('pttl', KEYS[1])
for _, key in ipairs(KEYS) do lowest = math.min(lowest, redis.call('pttl', key)) end
return lowest";
const LOCKS: usize = 10_000;
const LEASE: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_secs(1);
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
