//! The cost of waiting and of idleness: connections, threads, processor time.

use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockson::{Client, Guard, Lock};
use lockson_harness::{RedisServer, eventually, thread_names_of};

use crate::child;
use crate::figure::{Spread, per_second};
use crate::plan::Plan;
use crate::report::{Report, progress};
use crate::usage::processor_time;

/// A thousand threads wait for a thousand locks.
pub(crate) fn run(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let holder = Client::builder(&server.url()).client_name("bench-holder").connect().expect("redis is reached");
    let guards: Vec<Guard> =
        (0..THREADS).map(|index| holder.get_lock(name(index)).lock().expect("the lock is free")).collect();
    let threads_before = threads_of_the_library();
    let waiter = Client::builder(&server.url()).client_name(WAITER).connect().expect("redis is reached");

    let started = Instant::now();
    let (waiters, grants) = let_wait(THREADS, |index| waiter.get_lock(name(index)));
    let mut connections = 0;
    eventually(PATIENCE, "all threads wait", || {
        connections = connections.max(server.clients_named(WAITER));
        server.channels().len() >= THREADS
    });
    report.figure("until all listen", format!("{:.0}", started.elapsed().as_secs_f64() * 1e3), "ms");
    watch(server, plan.waiting_time, &mut connections, report);
    report.figure(&format!("most connections of the waiting client, of {ALLOWED}"), connections, "");
    report.figure("threads of the waiting client", threads_of_the_library() - threads_before, "");
    report.ratio("waiting-connections", Spread::of([connections as f64 / ALLOWED as f64]));

    let released = Instant::now();
    drop(guards);
    let last = grants.iter().take(THREADS).last().expect("all are granted");
    report.figure(
        "from the first release to the last grant",
        format!("{:.0}", (last - released).as_secs_f64() * 1e3),
        "ms",
    );
    waiters.into_iter().for_each(|waiter| waiter.join().expect("no thread fails"));
}

/// Two thousand threads wait for one fair lock, and then are served in order.
pub(crate) fn in_a_queue(_: &RedisServer, plan: &Plan, report: &mut Report) {
    // A separate server, so that the server's processor time belongs to the queue alone.
    let server = RedisServer::start();
    let client = || Client::builder(&server.url()).client_name(WAITER).connect().expect("redis is reached");
    let guard = client().get_fair_lock(QUEUE).lock().expect("the lock is free");
    let waiter = client();
    let started = Instant::now();
    let (waiters, grants) = let_wait(QUEUED, |_| waiter.get_fair_lock(QUEUE));
    let queue = format!("redisson_lock_queue:{{{QUEUE}}}");
    let listening = || server.channels().len() >= QUEUED && server.query::<usize>(&["LLEN", &queue]) == QUEUED;
    eventually(PATIENCE, "all threads wait in the queue", listening);
    report.figure("until all wait", format!("{:.0}", started.elapsed().as_secs_f64() * 1e3), "ms");
    let (before, asked) = (server_time_of_scripts(&server), server.calls_of("evalsha"));
    watch(&server, plan.waiting_time, &mut 0, report);
    let (after, asked) = (server_time_of_scripts(&server), server.calls_of("evalsha") - asked);
    report.figure("server time for a question", format!("{:.0}", (after - before) / asked.max(1) as f64), "us");

    let released = Instant::now();
    drop(guard);
    let last = grants.iter().take(QUEUED).last().expect("all are granted");
    waiters.into_iter().for_each(|waiter| waiter.join().expect("no thread fails"));
    let each = (server_time_of_scripts(&server) - after) / QUEUED as f64;
    report.figure("server time for a grant and its release", format!("{each:.0}"), "us");
    report.figure("from the release to the last grant", format!("{:.0}", (last - released).as_secs_f64() * 1e3), "ms");
}

/// Starts threads that wait for locks; each thread reports the moment of the grant and releases the lock at once.
fn let_wait(threads: usize, lock: impl Fn(usize) -> Lock) -> (Vec<JoinHandle<()>>, Receiver<Instant>) {
    let (granted, grants) = channel();
    let waiter = |index| {
        let (lock, granted) = (lock(index), granted.clone());
        let wait = move || {
            let guard = lock.lock().expect("the lock becomes free");
            granted.send(Instant::now()).expect("the receiver lives");
            guard.unlock().expect("the lock was held");
        };
        thread::Builder::new().stack_size(STACK).spawn(wait).expect("there is room for a thread")
    };
    ((0..threads).map(waiter).collect(), grants)
}

/// The time that the server has spent in scripts, in microseconds.
fn server_time_of_scripts(server: &RedisServer) -> f64 {
    let info: String = server.query(&["INFO", "commandstats"]);
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
    let usec = line.split(',').find_map(|field| field.strip_prefix("usec=")).and_then(|usec| usec.parse().ok());
    usec.unwrap_or(0.0)
}

/// The connections and threads of a new process after the first pair, and two seconds later.
pub(crate) fn at_rest(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let mut rows = vec![];
    for round in 0..plan.rest_rounds {
        let mut process = child::spawn(&[child::AT_REST, &server.url()]);
        let first_pair: f64 = process.next_line(PATIENCE).parse().expect("the child tells a time");
        let mut look = || {
            let line = process.ask("look", PATIENCE);
            let words: Vec<f64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            (server.clients_named(child::AT_REST) as f64, words)
        };
        let first = look();
        thread::sleep(Duration::from_secs(2));
        rows.push((first_pair, first, look()));
        progress(round + 1, plan.rest_rounds);
    }
    let spread = |value: &dyn Fn(&Row) -> f64| Spread::of(rows.iter().map(value));
    report.figure("connecting and the first pair", spread(&|row| row.0), "us");
    report.figure("connections after it", spread(&|row| row.1.0), "");
    report.figure("threads of the library after it", spread(&|row| row.1.1[0]), "");
    report.figure("connections 2 s later", spread(&|row| row.2.0), "");
    report.figure("threads of the library 2 s later", spread(&|row| row.2.1[0]), "");
    report.figure("memory of the process", spread(&|row| row.2.1[1]), "KiB");
    report.figure("processor time in these 2 s", spread(&|row| row.2.1[2] - row.1.1[2]), "ms");
}

/// The first pair's time, then the number of connections and the process's own report, each taken twice.
type Row = (f64, (f64, Vec<f64>), (f64, Vec<f64>));

/// Measures the cost of the requests that waiters repeat from time to time.
fn watch(server: &RedisServer, time: Duration, connections: &mut usize, report: &Report) {
    let scripts = server.calls_of("evalsha");
    let processor = [std::process::id(), server.pid()];
    let before = processor.map(processor_time);
    let started = Instant::now();
    while started.elapsed() < time {
        *connections = (*connections).max(server.clients_named(WAITER));
        thread::sleep(PROBE_INTERVAL);
    }
    let elapsed = started.elapsed();
    let [ours, redis] = [0, 1].map(|index| {
        let used = processor_time(processor[index]) - before[index];
        format!("{:.1}", used.as_secs_f64() / elapsed.as_secs_f64() * 100.0)
    });
    let rate = per_second(server.calls_of("evalsha") - scripts, elapsed);
    report.figure("questions of all waiters", format!("{rate:.0}"), "a second");
    report.figure("this process and redis, of one processor", format!("{ours} and {redis}"), "%");
}

fn name(index: usize) -> String {
    format!("waiting:{index}")
}

fn threads_of_the_library() -> usize {
    let names = thread_names_of(std::process::id()).unwrap_or_default();
    names.iter().filter(|name| name.starts_with("lockson")).count()
}

/// The default of `max_connections`, plus the listening and the renewing connection.
const ALLOWED: usize = 64 + 2;
const THREADS: usize = 1_000;
const QUEUED: usize = 2_000;
const QUEUE: &str = "queue";
const STACK: usize = 256 * 1024;
const WAITER: &str = "bench-waiter";
const PATIENCE: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
