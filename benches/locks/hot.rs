//! Many threads and one lock: throughput, fairness, and the longest waits.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Lock};
use lockson_harness::RedisServer;

use crate::figure::{Spread, in_turns, jain, per_second};
use crate::plan::Plan;
use crate::report::Report;

pub(crate) fn run(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let lone = Crowd::new(server, |client, name| client.get_lock(name), "hot:lone", 1, 1);
    let one_client = Crowd::new(server, |client, name| client.get_lock(name), "hot:one-client", 1, 8);
    let four_clients = Crowd::new(server, |client, name| client.get_lock(name), "hot:four-clients", 4, 2);
    let fair = Crowd::new(server, |client, name| client.get_fair_lock(name), "hot:fair", 1, 8);
    let time = plan.hot_time;
    let values = in_turns(
        plan.hot_rounds,
        &mut [&mut || lone.push(time / 4), &mut || one_client.push(time), &mut || four_clients.push(time), &mut || {
            fair.push(time)
        }],
    );
    let [lone, one_client, four_clients, fair] = &values[..] else { unreachable!("four candidates") };

    report.figure("one thread alone, pairs a second", Spread::of(lone.iter().map(Push::rate)), "");
    show(report, "8 threads in one client", one_client);
    report.ratio("hot-fairness", Spread::of(one_client.iter().map(|push| jain(&push.threads))));
    report.ratio("hot-throughput", Spread::ratio(one_client, lone, Push::rate));
    show(report, "4 clients of 2 threads", four_clients);
    report.ratio("hot-clients-fairness", Spread::of(four_clients.iter().map(|push| jain(&push.clients()))));
    report.ratio("hot-clients-throughput", Spread::ratio(four_clients, lone, Push::rate));
    show(report, "fair lock, 8 threads in one client", fair);
    report.ratio("hot-fair-fairness", Spread::of(fair.iter().map(|push| jain(&push.threads))));
    report.ratio("hot-fair-throughput", Spread::ratio(fair, lone, Push::rate));
}

fn show(report: &Report, what: &str, pushes: &[Push]) {
    let spread = |value: &dyn Fn(&Push) -> f64| Spread::of(pushes.iter().map(value));
    report.figure(&format!("{what}: a second"), spread(&Push::rate), "acquisitions");
    report.figure(&format!("{what}: each asks"), spread(&|push| push.requests as f64 / push.total() as f64), "scripts");
    report.figure(&format!("{what}: Jain of threads"), spread(&|push| jain(&push.threads)), "");
    report.figure(&format!("{what}: longest wait"), spread(&|push| push.longest_wait.as_secs_f64() * 1e3), "ms");
}

/// Clients that compete for one lock.
struct Crowd<'a> {
    server: &'a RedisServer,
    locks: Vec<Lock>,
    threads: usize,
}

/// The result of one span of competition.
struct Push {
    /// Acquisitions of each thread, client by client.
    threads: Vec<u64>,
    per_client: usize,
    longest_wait: Duration,
    time: Duration,
    requests: u64,
}

impl<'a> Crowd<'a> {
    fn new(
        server: &'a RedisServer,
        kind: fn(&Client, &str) -> Lock,
        name: &str,
        clients: usize,
        threads: usize,
    ) -> Self {
        let client = |_| Client::connect(&server.url()).expect("redis is reached");
        Self { server, locks: (0..clients).map(client).map(|client| kind(&client, name)).collect(), threads }
    }

    fn push(&self, time: Duration) -> Push {
        let before = self.server.calls_of("evalsha");
        let ready = Barrier::new(self.locks.len() * self.threads);
        let results: Vec<(u64, Duration)> = thread::scope(|scope| {
            let of_client = |lock| (0..self.threads).map(move |_| lock);
            let ready = &ready;
            let start = |lock| scope.spawn(move || push_alone(lock, ready, time));
            let running: Vec<_> = self.locks.iter().flat_map(of_client).map(start).collect();
            running.into_iter().map(|thread| thread.join().expect("no thread fails")).collect()
        });
        Push {
            threads: results.iter().map(|(count, _)| *count).collect(),
            per_client: self.threads,
            longest_wait: results.iter().map(|(_, wait)| *wait).max().unwrap_or_default(),
            time,
            requests: self.server.calls_of("evalsha") - before,
        }
    }
}

/// Takes and releases the lock for the given time; returns the number of pairs and the longest wait.
fn push_alone(lock: &Lock, ready: &Barrier, time: Duration) -> (u64, Duration) {
    ready.wait();
    let started = Instant::now();
    let (mut count, mut longest) = (0, Duration::ZERO);
    loop {
        let asked = Instant::now();
        let guard = lock.lock().expect("the lock becomes free");
        longest = longest.max(asked.elapsed());
        let over = started.elapsed() >= time;
        guard.unlock().expect("the lock was held");
        if over {
            return (count, longest);
        }
        count += 1;
    }
}

impl Push {
    fn total(&self) -> u64 {
        self.threads.iter().sum()
    }

    fn rate(&self) -> f64 {
        per_second(self.total(), self.time)
    }

    fn clients(&self) -> Vec<u64> {
        self.threads.chunks(self.per_client).map(|threads| threads.iter().sum()).collect()
    }
}
