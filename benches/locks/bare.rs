//! The floor: the library's own scripts, called on one blocking connection without any other layer.

use redis::{Cmd, Connection, Value};

use crate::wire::Wire;

/// One connection and the requests for one lock, encoded anew for each call as by a simple caller.
pub(crate) struct Bare {
    connection: Wire,
    acquire: Cmd,
    reenter: Cmd,
    release_part: Cmd,
    release: Cmd,
}

impl Bare {
    pub(crate) fn new(url: &str, name: &str) -> Self {
        Self::publishing(url, name, "PUBLISH")
    }

    /// The same for a member of a cluster.
    pub(crate) fn sharded(url: &str, name: &str) -> Self {
        Self::publishing(url, name, "SPUBLISH")
    }

    fn publishing(url: &str, name: &str, publish: &str) -> Self {
        let mut connection = Wire::open(url);
        // As long as an owner id of the library in the middle of a run.
        let owner = format!("{}:1.10000", uuid::Uuid::new_v4());
        let mut script = |source: &str| {
            let hash = connection.ask(redis::cmd("SCRIPT").arg("LOAD").arg(source));
            let hash: String = redis::from_redis_value(hash).expect("loads");
            let mut call = redis::cmd("EVALSHA");
            call.arg(hash).arg(1).arg(name);
            call
        };
        let mut acquire = script(ACQUIRE);
        acquire.arg(LEASE_MS).arg(&owner);
        let mut reenter = script(REENTER);
        reenter.arg(LEASE_MS).arg(&owner).arg(2);
        let release = |mut call: Cmd, count: usize, lease_ms: u64| {
            call.arg(&owner).arg(count).arg(lease_ms).arg(channel(name)).arg("0").arg(publish);
            call
        };
        let release_part = release(script(RELEASE), 1, LEASE_MS);
        let release = release(script(RELEASE), 0, 0);
        Self { connection, acquire, reenter, release_part, release }
    }

    /// Sends one acquire request; returns `false` when another owner holds the lock.
    pub(crate) fn acquire(&mut self) -> bool {
        first(&self.connection.ask(&self.acquire)) == 1
    }

    pub(crate) fn reenter(&mut self) {
        assert_eq!(self.connection.ask(&self.reenter), Value::Int(1), "the lock was not held");
    }

    pub(crate) fn release_part(&mut self) {
        let reply = self.connection.ask(&self.release_part);
        assert_eq!(first(&reply), 1, "the lock was not held");
    }

    pub(crate) fn release(&mut self) {
        let reply = self.connection.ask(&self.release);
        assert_eq!(first(&reply), 1, "the lock was not held");
    }

    pub(crate) fn pair(&mut self) {
        assert!(self.acquire(), "another owner holds the lock");
        self.release();
    }
}

/// A plain connection without time-outs.
pub(crate) fn connect(url: &str) -> Connection {
    redis::Client::open(url).and_then(|client| client.get_connection()).expect("redis is reached")
}

/// The channel on which a release of this lock is published.
pub(crate) fn channel(name: &str) -> String {
    if name.contains('{') {
        return format!("redisson_lock__channel:{name}");
    }
    format!("redisson_lock__channel:{{{name}}}")
}

fn first(reply: &Value) -> i64 {
    match reply {
        Value::Array(values) => match values.first() {
            Some(Value::Int(number)) => *number,
            other => panic!("an unexpected reply: {other:?}"),
        },
        other => panic!("an unexpected reply: {other:?}"),
    }
}

const ACQUIRE: &str = include_str!("../../lua/plain/acquire.lua");
const REENTER: &str = include_str!("../../lua/plain/reenter.lua");
const RELEASE: &str = include_str!("../../lua/plain/release.lua");
/// The default of the library.
const LEASE_MS: u64 = 30_000;
