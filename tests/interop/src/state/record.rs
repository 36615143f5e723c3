//! The effects of one operation: the answer, all keys of the server, and the messages.

use std::time::Duration;
use std::{fmt, thread};

use lockson_harness::{Answer, RedisServer};

use super::messages::Messages;
use super::normal::{Normal, seconds};
use crate::subscribed::subscribed;

/// All observations after one operation, in a comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) answer: String,
    pub(crate) keys: String,
    pub(crate) messages: String,
}

/// Observes a server that only this scenario uses.
pub(crate) struct Observer {
    redis: redis::Connection,
    messages: Messages,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {}", self.answer, self.keys, self.messages)
    }
}

impl Record {
    /// The record in a cell of the document: its parts that are not empty, one below the other.
    pub(crate) fn in_a_cell(&self) -> String {
        let parts = [&self.answer, &self.keys, &self.messages].map(String::as_str);
        parts.into_iter().filter(|part| *part != NOTHING).collect::<Vec<_>>().join("<br>")
    }
}

impl Observer {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { redis: server.connection(), messages: Messages::listen(server) }
    }

    /// Empties the server and forgets the messages.
    pub(crate) fn clear(&mut self) {
        self.redis(&mut redis::cmd("FLUSHALL"));
        self.messages.take(&mut self.redis);
    }

    /// Sends a command of the observer.
    pub(crate) fn redis(&mut self, command: &mut redis::Cmd) -> redis::Value {
        command.query(&mut self.redis).expect("Redis answers")
    }

    /// The time to live of a key in milliseconds.
    pub(crate) fn left_ms(&mut self, key: &str) -> i64 {
        redis::cmd("PTTL").arg(key).query(&mut self.redis).expect("Redis answers")
    }

    /// The visible waiters for a name: the length of the queue, and the number of channels with a listener.
    pub(crate) fn waiters(&mut self, name: &str) -> (u64, usize) {
        let queue = format!("redisson_lock_queue:{{{name}}}");
        let length: u64 = redis::cmd("LLEN").arg(queue).query(&mut self.redis).expect("Redis answers");
        (length, subscribed(&mut self.redis, name))
    }

    /// Observes after the last change: some effects of an operation follow its answer.
    pub(crate) fn record(&mut self, answer: Option<&Answer>, normal: &mut Normal) -> Record {
        let mut keys = self.keys(normal);
        for _ in 0..MOST_LOOKS {
            thread::sleep(BETWEEN_LOOKS);
            let again = self.keys(normal);
            if again == keys {
                break;
            }
            keys = again;
        }
        let messages = self.messages.take(&mut self.redis).into_iter().map(|(channel, message)| {
            let message = normal.text(&message);
            format!("`{message}` on `{}`", normal.text(&channel))
        });
        let messages = join(messages.collect());
        Record { answer: answer.map_or_else(|| NOTHING.to_owned(), told), keys: join(keys), messages }
    }

    /// Learns new ids after a step without a comparison.
    pub(crate) fn learn(&mut self, normal: &mut Normal) {
        self.keys(normal);
    }

    fn keys(&mut self, normal: &mut Normal) -> Vec<String> {
        let now: (i64, i64) = redis::cmd("TIME").query(&mut self.redis).expect("Redis answers");
        let now_ms = now.0 * 1_000 + now.1 / 1_000;
        let mut keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut self.redis).expect("Redis answers");
        keys.retain(|key| !key.starts_with(IDEMPOTENCY_KEYS));
        keys.sort();
        let shown = keys.iter().filter_map(|key| {
            let value = self.value(key, normal, now_ms)?;
            let left_ms: i64 = redis::cmd("PTTL").arg(key).query(&mut self.redis).expect("Redis answers");
            let lives = if left_ms == -1 { String::new() } else { format!(" for {}", seconds(left_ms)) };
            Some(format!("`{}` = {value}{lives}", normal.text(key)))
        });
        let mut shown: Vec<String> = shown.collect();
        shown.sort();
        shown
    }

    /// `None` for a key that has gone meanwhile.
    fn value(&mut self, key: &[u8], normal: &mut Normal, now_ms: i64) -> Option<String> {
        let sort: String = redis::cmd("TYPE").arg(key).query(&mut self.redis).expect("Redis answers");
        let (command, paired): (&[&str], bool) = match sort.as_str() {
            "none" => return None,
            "hash" => (&["HGETALL"], true),
            "zset" => (&["ZRANGE", "0", "-1", "WITHSCORES"], true),
            "list" => (&["LRANGE", "0", "-1"], false),
            "string" => (&["GET"], false),
            other => panic!("a {other} at {}", String::from_utf8_lossy(key)),
        };
        let mut query = redis::cmd(command[0]);
        query.arg(key).arg(&command[1..]);
        if sort == "string" {
            let value: Option<Vec<u8>> = query.query(&mut self.redis).expect("Redis answers");
            let is_token = key.starts_with(b"redisson_lock_token");
            return value.map(|value| if is_token { normal.token(&value) } else { normal.value(&value, now_ms) });
        }
        let items: Vec<Vec<u8>> = query.query(&mut self.redis).expect("Redis answers");
        if !paired {
            let items: Vec<String> = items.iter().map(|item| normal.text(item)).collect();
            return Some(format!("[{}]", items.join(", ")));
        }
        let mut pairs: Vec<String> = items
            .chunks(2)
            .map(|pair| {
                let field = normal.text(&pair[0]);
                format!("{field}: {}", normal.value(&pair[1], now_ms))
            })
            .collect();
        // Sorted by field: among waiters that ask each second, the last to ask has the later deadline.
        pairs.sort();
        Some(format!("{{{}}}", pairs.join(", ")))
    }
}

/// The answer without the parts that differ between any two runs.
fn told(answer: &Answer) -> String {
    if !answer.is_ok() {
        return answer.text("kind").to_owned();
    }
    let flags = ["acquired", "unlocked", "deleted", "open", "set", "released", "permits", "count"];
    let told: Vec<String> =
        flags.iter().filter_map(|key| Some(format!("{key}={}", answer.optional_text(key)?))).collect();
    if told.is_empty() { "ok".to_owned() } else { told.join(" ") }
}

fn join(parts: Vec<String>) -> String {
    if parts.is_empty() { NOTHING.to_owned() } else { parts.join("; ") }
}

pub(crate) const NOTHING: &str = "-";
const MOST_LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(15);

/// Redisson has no such keys.
const IDEMPOTENCY_KEYS: &[u8] = b"lockson_once:";
