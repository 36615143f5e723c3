//! A master with its replicas.

use lockson::Durability;
use lockson_harness::RedisServerBuilder;

use crate::support::prelude::*;

/// A master with replicas that are in step.
pub(super) struct Copied {
    pub(super) master: RedisServer,
    pub(super) replicas: Vec<RedisServer>,
}

impl Copied {
    pub(super) fn start(replicas: usize) -> Self {
        Self::of(&RedisServer::builder(), replicas)
    }

    /// Servers of one version and with equal settings.
    pub(super) fn of(builder: &RedisServerBuilder, replicas: usize) -> Self {
        let start = |_| builder.clone().config("repl-diskless-sync-delay 0").start();
        let master = start(0);
        let replicas: Vec<RedisServer> = (0..replicas).map(start).collect();
        for replica in &replicas {
            replica.run(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        }
        let copied = Self { master, replicas };
        copied.are_in_step();
        copied
    }

    /// Waits until every replica has what was written so far.
    pub(super) fn are_in_step(&self) {
        let count = self.replicas.len();
        eventually(SOON, "the replicas are in step", || {
            let mut connection = self.master.connection();
            let mut ask = |words: &[&str]| {
                let (name, arguments) = words.split_first().expect("a command");
                // A signal may interrupt the wait.
                redis::cmd(name).arg(arguments).query::<redis::Value>(&mut connection).ok()
            };
            ask(&["SET", "in step", "1"]);
            ask(&["DEL", "in step"]);
            ask(&["WAIT", &count.to_string(), "100"]) == Some(redis::Value::Int(i64::try_from(count).unwrap()))
        });
    }
}

impl Drop for Copied {
    /// A stopped server could not write its log.
    fn drop(&mut self) {
        self.replicas.iter().filter(|replica| replica.is_running()).for_each(RedisServer::resume);
    }
}

/// One replica, in a time that a busy machine keeps.
pub(super) fn one() -> Durability {
    Durability::replicas(1).within(ms(1_000))
}

/// One replica that will not answer.
pub(super) fn none() -> Durability {
    Durability::replicas(1).within(WITHIN)
}

/// The time for a replica that will not answer.
pub(super) const WITHIN: Duration = ms(200);
