//! The shared parts of many tests: fresh names, clients, bounds, and an outside view of Redis.

mod busy;
mod events;
pub(crate) mod faults;
pub(crate) mod kinds;
mod peer;
pub(crate) mod prelude;
mod program;
mod scheduling;

use std::fmt::Debug;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicU64;

use prelude::*;

pub(crate) use busy::Busy;
pub(crate) use events::Events;
pub(crate) use lockson_harness::percent::encode;
pub(crate) use peer::open_peer;
pub(crate) use program::built;
pub(crate) use scheduling::{SCHEDULING, STANDSTILLS};

/// The bound of a wait for an event that is immediate on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The delay that the library may add to a wait while the server answers.
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// The time to live and the renewal interval of a client of [`brisk`]: short, but a machine busy with other tests still
/// renews in time.
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const TICK: Duration = Duration::from_millis(100);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A name that no other test uses; later names sort behind earlier names.
pub(crate) fn fresh(what: &str) -> String {
    scheduling::watch_the_machine();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}:{:05}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A client of the shared server, with default settings.
pub(crate) fn client() -> Client {
    Client::connect(&RedisServer::shared().url()).expect("the shared server answers")
}

/// A server of its own, and a client with default settings.
pub(crate) fn alone() -> (RedisServer, Client) {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).expect("the server answers");
    (server, client)
}

/// A client of the shared server whose locks live for [`TTL`] and are renewed each [`TICK`].
pub(crate) fn brisk_client() -> Client {
    brisk(RedisServer::shared()).connect().expect("the shared server answers")
}

/// The settings of a client whose locks live for [`TTL`] and are renewed each [`TICK`].
pub(crate) fn brisk(server: &RedisServer) -> ClientBuilder {
    Client::builder(&server.url()).watchdog(TTL, TICK)
}

/// Runs `work` on another thread and waits; a panic of `work` goes on here.
pub(crate) fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| joined(scope.spawn(work)))
}

/// The outcome of a thread; a panic of the thread goes on here.
pub(crate) fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs a case for each row, all at once: most of a case is waiting.
pub(crate) fn at_once<T: Send>(rows: impl IntoIterator<Item = T>, case: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        let case = &case;
        let cases: Vec<_> = rows.into_iter().map(|row| scope.spawn(move || case(row))).collect();
        cases.into_iter().for_each(joined);
    });
}

/// Runs a case for each row, so many at a time.
pub(crate) fn some_at_once<T: Send>(many: usize, rows: Vec<T>, case: impl Fn(T) + Sync) {
    let rows = Mutex::new(rows.into_iter());
    let next = || rows.lock().next();
    at_once(0..many, |_| std::iter::from_fn(next).for_each(&case));
}

/// The duration and the outcome of `work`.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    scheduling::watch_the_machine();
    let started = Instant::now();
    let outcome = work();
    (started.elapsed(), outcome)
}

/// The median time of several runs: a busy machine slows some runs, not most. A waiter that only the clock wakes takes
/// half a second by this measure.
pub(crate) fn median(runs: usize, run: impl FnMut(usize) -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..runs).map(run).collect();
    times.sort();
    times[runs / 2]
}

/// How long after `release` a waiter is granted the lock; `waits` returns when the waiter sleeps. The waiter gives the lock
/// back.
pub(crate) fn handed_over(lock: &Lock, waits: impl FnOnce(), release: impl FnOnce()) -> Duration {
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let granted = Instant::now();
            guard.unlock().unwrap();
            granted
        });
        waits();
        let released = Instant::now();
        release();
        joined(waiter).saturating_duration_since(released)
    })
}

/// Another program on a port: reads the first bytes of one caller, runs `answer`, and hangs up.
pub(crate) fn stranger<T: Send + 'static>(
    answer: impl FnOnce(&mut TcpStream) -> T + Send + 'static,
) -> (thread::JoinHandle<T>, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        answer(&mut stream)
    });
    (thread, port)
}

/// Random enough for a test, and equal for equal seeds; the seed must not be zero.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Whether another client can take the lock now.
#[track_caller]
pub(crate) fn is_free(lock: &Lock) -> bool {
    lock.try_lock().unwrap().is_some()
}

/// The content of a name in Redis: owners and counts of a hash, or a single value.
#[track_caller]
pub(crate) fn fields(server: &RedisServer, name: &str) -> Vec<(String, String)> {
    let kind: String = server.query(&["TYPE", name]);
    if kind == "string" {
        return vec![(server.query(&["GET", name]), String::new())];
    }
    let mut fields: Vec<(String, String)> = server.query(&["HGETALL", name]);
    fields.sort();
    fields
}

/// The time to live of a key in ms; negative without a time to live or without a key.
#[track_caller]
pub(crate) fn ttl_ms(server: &RedisServer, name: &str) -> i64 {
    server.query(&["PTTL", name])
}

/// Counts the waiters of other processes or clients that listen for a release of a plain lock.
#[track_caller]
pub(crate) fn listeners(server: &RedisServer, name: &str) -> usize {
    server.subscribers(&channel(name))
}

/// The channel for releases of a plain lock, by the rule of the wire; the channels of a fair lock's waiters have this
/// prefix.
pub(crate) fn channel(name: &str) -> String {
    prefixed("redisson_lock__channel", name)
}

/// Where a release of a read-write lock is announced.
pub(crate) fn read_write_channel(name: &str) -> String {
    prefixed("redisson_rwlock", name)
}

/// The additional key or channel of a lock, by the rule of the wire.
pub(crate) fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// The kind of the error that a call must end with.
#[track_caller]
pub(crate) fn kind_of<T: Debug>(outcome: lockson::Result<T>) -> lockson::ErrorKind {
    outcome.expect_err("this call has to fail").kind()
}
