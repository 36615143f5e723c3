//! The special properties of fair locks: the queue in Redis, its order, and how the queue outlives dead waiters.

pub(crate) mod crowds;
mod dead;
mod healing;
mod java;
mod java_client;
mod leaving;
mod order;
mod silent;
mod wire;

use crate::support::prelude::*;

/// The shortest patience there is.
const PATIENCE: Duration = Duration::from_secs(2);

/// The settings of a client whose waiters lose their places soon.
fn hasty(server: &RedisServer) -> ClientBuilder {
    Client::builder(&server.url()).fair_patience(PATIENCE)
}

fn hasty_client(server: &RedisServer) -> Client {
    hasty(server).connect().expect("the server answers")
}

/// The queue of a name, as stored in Redis.
#[derive(Clone, Copy)]
struct Queue<'a> {
    server: &'a RedisServer,
    name: &'a str,
}

impl Queue<'_> {
    fn list(&self) -> String {
        prefixed("redisson_lock_queue", self.name)
    }

    fn deadlines(&self) -> String {
        prefixed("redisson_lock_timeout", self.name)
    }

    /// The waiters of Lockson, each with the time until which the waiter counts as alive; Redisson has no such key.
    fn alive(&self) -> String {
        prefixed("redisson_lock_alive", self.name)
    }

    fn keys(&self) -> [String; 3] {
        [self.list(), self.deadlines(), self.alive()]
    }

    /// Where a waiter listens.
    fn channel_of(&self, owner: &str) -> String {
        format!("{}:{owner}", prefixed("redisson_lock__channel", self.name))
    }

    /// The waiters, the next waiter first.
    #[track_caller]
    fn owners(&self) -> Vec<String> {
        self.server.query(&["LRANGE", &self.list(), "0", "-1"])
    }

    /// How many ms each waiter keeps its place without another request.
    #[track_caller]
    fn left_ms(&self) -> BTreeMap<String, i64> {
        // In one script: a waiter may send a request between two commands of the test.
        const LOOK: &str = "local t = redis.call('time')
            return {t[1] * 1000 + math.floor(t[2] / 1000), redis.call('zrange', KEYS[1], 0, -1, 'withscores')}";
        let (now, scores): (i64, Vec<(String, i64)>) = self.server.query(&["EVAL", LOOK, "1", &self.deadlines()]);
        scores.into_iter().map(|(owner, score)| (owner, score - now)).collect()
    }

    #[track_caller]
    fn await_length(&self, length: usize) {
        eventually(SOON, &format!("{length} in the queue"), || self.owners().len() == length);
    }

    /// Waits until this owner listens: from then on the owner asks only after a message, and each second.
    #[track_caller]
    fn await_listening(&self, owner: &str) {
        eventually(SOON, "it listens", || self.server.subscribers(&self.channel_of(owner)) == 1);
    }

    /// Checks that nothing is left of the lock and of the queue.
    #[track_caller]
    fn assert_gone(&self) {
        for key in [self.name.to_owned()].iter().chain(&self.keys()) {
            assert_eq!(self.server.query::<i64>(&["EXISTS", key]), 0, "{key} is left");
        }
    }

    /// Starts a thread that waits for the lock, and returns when the thread listens. The thread runs `inside` with the
    /// guard.
    #[track_caller]
    fn waiter<'scope, T: Send + 'scope>(
        &self,
        scope: &'scope thread::Scope<'scope, '_>,
        lock: Lock,
        inside: impl FnOnce(Guard) -> T + Send + 'scope,
    ) -> thread::ScopedJoinHandle<'scope, (Instant, T)> {
        let place = self.owners().len();
        let waiter = scope.spawn(move || {
            // Waiters in the field wait without a limit; the limit here only ends a failing test.
            let guard = lock.try_lock_for(3 * SOON).unwrap().expect("the waiter's turn comes");
            (Instant::now(), inside(guard))
        });
        self.await_length(place + 1);
        self.await_listening(&self.owners()[place]);
        waiter
    }
}

/// The server's own clock.
#[track_caller]
fn now_ms(server: &RedisServer) -> i64 {
    let (seconds, micros): (i64, i64) = server.query(&["TIME"]);
    seconds * 1_000 + micros / 1_000
}

/// Releases and returns nothing: for waiters that only need one grant.
fn leave(guard: Guard) {
    guard.unlock().unwrap();
}

/// Does `look` every few milliseconds for as long as `span`.
fn throughout(span: Duration, mut look: impl FnMut()) {
    let started = Instant::now();
    while started.elapsed() < span {
        look();
        thread::sleep(ms(20));
    }
}
