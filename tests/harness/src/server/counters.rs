//! Questions of tests to a server about its state and its work.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{FromRedisValue, RedisResult, Value};

use super::RedisServer;

impl RedisServer {
    /// Runs one command on a separate connection, in database 0.
    ///
    /// # Panics
    ///
    /// Panics on an error reply, and when the reply is not of the wanted type.
    #[track_caller]
    pub fn query<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_query(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs one command for its effect.
    ///
    /// # Panics
    ///
    /// Panics on an error reply.
    #[track_caller]
    pub fn run(&self, words: &[&str]) {
        self.query::<Value>(words);
    }

    /// Runs one command on a separate connection, in database 0.
    ///
    /// # Errors
    ///
    /// Returns the error of the server or the connection.
    pub fn try_query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        loop {
            match self.connect().and_then(|mut connection| command.query(&mut connection)) {
                // A freeze of this process for a moment ends system calls that have a time-out.
                Err(error) if is_interrupted(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// Lists all keys of database 0, sorted.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let keys: Vec<Vec<u8>> = self.query(&["KEYS", "*"]);
        let mut names: Vec<String> = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
        names.sort();
        names
    }

    /// Lists the channels with subscribers, sorted, without the server's own channel.
    #[track_caller]
    pub fn channels(&self) -> Vec<String> {
        let mut names: Vec<String> = self.query(&["PUBSUB", "CHANNELS"]);
        names.retain(|name| name != INVALIDATIONS);
        names.sort();
        names
    }

    /// Counts the keys that the server tracks for a client.
    #[track_caller]
    pub fn tracked_keys(&self) -> usize {
        self.info("tracking_total_keys").and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Counts the subscribers of one channel.
    #[track_caller]
    pub fn subscribers(&self, channel: &str) -> usize {
        let (_, count): (String, usize) = self.query(&["PUBSUB", "NUMSUB", channel]);
        count
    }

    /// Parses `CLIENT LIST`, one map of fields for each connection.
    ///
    /// The asking connection is left out. The connection of an earlier question may be listed until the server has
    /// noticed the end.
    #[track_caller]
    pub fn clients(&self) -> Vec<BTreeMap<String, String>> {
        let text: String = self.query(&["CLIENT", "LIST"]);
        text.lines()
            .map(|line| {
                line.split(' ')
                    .filter_map(|field| field.split_once('='))
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect()
            })
            .filter(|client: &BTreeMap<String, String>| !client["cmd"].starts_with("client|list"))
            .filter(|client| client["cmd"] != "client")
            .collect()
    }

    /// Counts the connections whose client name starts with `start`.
    #[track_caller]
    pub fn clients_named(&self, start: &str) -> usize {
        self.clients().iter().filter(|client| client["name"].starts_with(start)).count()
    }

    /// Tells how often a command was called since the start or the last [`reset_counters`].
    ///
    /// Calls from inside a script count too. The command is written as in `INFO commandstats`, so
    /// a subcommand as `client|kill`.
    ///
    /// [`reset_counters`]: RedisServer::reset_counters
    #[track_caller]
    pub fn calls_of(&self, command: &str) -> u64 {
        let wanted = command.to_lowercase();
        self.calls().get(&wanted).copied().unwrap_or(0)
    }

    /// Tells how often each command was called.
    #[track_caller]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let text: String = self.query(&["INFO", "commandstats"]);
        text.lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
            .filter_map(|(command, rest)| {
                let (calls, _) = rest.split_once(',')?;
                Some((command.to_lowercase(), calls.parse().ok()?))
            })
            .collect()
    }

    /// Sets all counters of `INFO` to zero.
    #[track_caller]
    pub fn reset_counters(&self) {
        self.run(&["CONFIG", "RESETSTAT"]);
    }

    /// One field of `INFO`; `None` if the server lacks the field.
    #[track_caller]
    pub fn info(&self, field: &str) -> Option<String> {
        let text: String = self.query(&["INFO", "everything"]);
        text.lines()
            .filter_map(|line| line.trim_end().split_once(':'))
            .find(|(name, _)| *name == field)
            .map(|(_, value)| value.to_owned())
    }
}

/// The channel on which the server reports changes of tracked keys.
const INVALIDATIONS: &str = "__redis__:invalidate";

fn is_interrupted(error: &redis::RedisError) -> bool {
    // `redis` returns as the cause a counted reference to the cause.
    let shared = error.source().and_then(|cause| cause.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let cause = shared.and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::is_interrupted;

    #[test]
    fn an_interrupted_system_call_is_told_from_a_time_out() {
        assert!(is_interrupted(&Error::from(ErrorKind::Interrupted).into()));
        assert!(is_interrupted(&Error::from_raw_os_error(4).into()));
        assert!(!is_interrupted(&Error::from(ErrorKind::TimedOut).into()));
    }
}
