//! Semaphores: the cost of a pair, and the questions of many waiters for one permit.

use std::thread;
use std::time::{Duration, Instant};

use lockson::Client;
use lockson_harness::{RedisServer, eventually};
use redis::{Cmd, Connection};

use crate::bare::connect;
use crate::figure::Spread;
use crate::pair::compare;
use crate::placement::in_each;
use crate::plan::Plan;
use crate::report::Report;

/// One thread takes a permit and gives it back.
pub(crate) fn pair(server: &RedisServer, plan: &Plan, report: &mut Report) {
    let client = Client::connect(&server.url()).expect("redis is reached");
    let semaphore = client.get_semaphore("bench:semaphore:ours");
    semaphore.set_permits_once(10).expect("works");
    let mut bare = Bare::new(&server.url(), "bench:semaphore:bare");
    in_each(server, report, "semaphore-pair", |placement, report| {
        let ours = || semaphore.acquire(1).and_then(|permits| permits.release()).expect("works");
        compare("semaphore-pair", placement, plan, report, ours, || bare.pair())
    });
}

/// A thousand threads of one process wait for one permit, and pass it on.
pub(crate) fn waiters(_: &RedisServer, _: &Plan, report: &mut Report) {
    // A separate server, so that its counters belong to the waiters alone.
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).expect("redis is reached");
    let semaphore = client.get_semaphore("bench:semaphore-waiters");
    semaphore.set_permits_once(1).expect("works");
    let held = semaphore.acquire(1).expect("one is free");
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            let wait = || semaphore.acquire(1).and_then(|permits| permits.release()).expect("works");
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, wait).expect("there is room for a thread");
        }
        eventually(PATIENCE, "all threads wait", || client.waiting().len() == WAITERS);
        let (asked, began) = (server.calls_of("evalsha"), Instant::now());
        held.release().expect("works");
        eventually(PATIENCE, "all are served", || {
            client.waiting().is_empty() && semaphore.available().is_ok_and(|free| free == 1)
        });
        let releases = WAITERS as u64 + 1;
        let questions = server.calls_of("evalsha") - asked - releases;
        report.figure("until all were served", format!("{:.0}", began.elapsed().as_secs_f64() * 1e3), "ms");
        report.ratio("semaphore-1000-waiters", Spread::of([questions as f64 / releases as f64]));
    });
}

/// The library's own scripts on one blocking connection.
struct Bare {
    connection: Connection,
    acquire: String,
    release: String,
    name: String,
    key: String,
    number: u64,
}

impl Bare {
    fn new(url: &str, name: &str) -> Self {
        let mut connection = connect(url);
        redis::cmd("SET").arg(name).arg(10).exec(&mut connection).expect("redis answers");
        let mut load = |source: &str| {
            redis::cmd("SCRIPT").arg("LOAD").arg(source).query::<String>(&mut connection).expect("loads")
        };
        let (acquire, release) = (load(ACQUIRE), load(RELEASE));
        let key = format!("lockson_once:{{{name}}}:{}:0", uuid::Uuid::new_v4());
        Self { connection, acquire, release, name: name.to_owned(), key, number: 0 }
    }

    fn pair(&mut self) {
        let mut acquire = self.call(true);
        acquire.arg(1);
        let taken: (i64, i64) = acquire.query(&mut self.connection).expect("redis answers");
        assert_eq!(taken.0, 1, "ten are free");
        let channel = format!("redisson_sc:{{{}}}", self.name);
        let mut release = self.call(false);
        release.arg(1).arg(0).arg(channel).arg("PUBLISH");
        let _: (i64, i64, i64) = release.query(&mut self.connection).expect("redis answers");
    }

    fn call(&mut self, acquires: bool) -> Cmd {
        self.number += 1;
        let mut call = redis::cmd("EVALSHA");
        let hash = if acquires { &self.acquire } else { &self.release };
        call.arg(hash).arg(2).arg(&self.name).arg(&self.key).arg(self.number).arg(MEMORY_MS);
        call
    }
}

const ACQUIRE: &str = include_str!("../../lua/semaphore/acquire.lua");
const RELEASE: &str = include_str!("../../lua/semaphore/release.lua");
/// As long as the library's scripts remember a request.
const MEMORY_MS: u64 = 600_000;
const WAITERS: usize = 1_000;
const STACK: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);
