//! The state of a lock in Redis, in words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Connection;

use crate::process::Names;

/// One key on one server.
pub(crate) struct View {
    /// The label of the row: `Redis`, or the name of one of several servers or keys.
    pub(crate) label: String,
    url: String,
    key: String,
    is_data: bool,
    connection: Option<Connection>,
}

/// The state of a lock in Redis.
#[derive(Clone, PartialEq)]
pub(crate) enum InRedis {
    Down,
    Free,
    Taken {
        by: String,
        left: String,
    },
    /// The data that the lock is for.
    Data(String),
}

impl View {
    pub(crate) fn new(label: &str, url: String, key: &str) -> Self {
        Self { label: label.into(), url, key: key.into(), is_data: false, connection: None }
    }

    /// A key with data instead of a lock.
    pub(crate) fn of_data(label: &str, url: String, key: &str) -> Self {
        Self { is_data: true, ..Self::new(label, url, key) }
    }

    pub(crate) fn read(&mut self, names: &Names) -> InRedis {
        // The connection of an earlier step may lead to a server that has restarted since.
        let again = |view: &mut Self| {
            view.connection = None;
            view.try_read(names)
        };
        self.try_read(names).or_else(|_| again(self)).unwrap_or(InRedis::Down)
    }

    fn try_read(&mut self, names: &Names) -> redis::RedisResult<InRedis> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => empty.insert(connect(&self.url)?),
        };
        if self.is_data {
            let value: Option<String> = redis::cmd("GET").arg(&self.key).query(connection)?;
            return Ok(InRedis::Data(value.unwrap_or_else(|| "-".into())));
        }
        let mut both = redis::pipe();
        let (kind, left): (String, i64) =
            both.atomic().cmd("TYPE").arg(&self.key).cmd("PTTL").arg(&self.key).query(connection)?;
        let name_of = |value: &str| names.borrow().get(value).cloned();
        let mut left = if left < 0 { "no time to live".into() } else { format!("{left} ms left") };
        let by = match kind.as_str() {
            "string" => {
                let value: String = redis::cmd("GET").arg(&self.key).query(connection)?;
                if let Some(until) = value.parse().ok().filter(|until| *until > A_MOMENT_OF_OUR_DAYS) {
                    left = words_of_expiry(until);
                }
                name_of(&value).unwrap_or(value)
            }
            "hash" => {
                let fields: Vec<(String, String)> = redis::cmd("HGETALL").arg(&self.key).query(connection)?;
                let holders = fields.iter().map(|(owner, count)| {
                    let name = name_of(owner).unwrap_or_else(|| unknown(owner));
                    if count == "1" { name } else { format!("{name} (count {count})") }
                });
                holders.collect::<Vec<_>>().join(" and ")
            }
            _ => return Ok(InRedis::Free),
        };
        Ok(InRedis::Taken { by, left })
    }
}

impl InRedis {
    pub(crate) fn in_words(&self) -> String {
        match self {
            InRedis::Down => "down".into(),
            InRedis::Free => "no lock".into(),
            InRedis::Data(value) => value.clone(),
            InRedis::Taken { by, left } => format!("{by}, {left}"),
        }
    }
}

pub(crate) fn connect(url: &str) -> redis::RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// Milliseconds since 1970 by the clock of this machine.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The recipes write the name itself; an owner of Lockson becomes known by the answer of its process.
fn unknown(owner: &str) -> String {
    if owner.len() < 3 { owner.into() } else { "taken".into() }
}

fn words_of_expiry(until: i64) -> String {
    match until - now() {
        over @ ..=0 => format!("ended {} ms ago", -over),
        left => format!("ends in {left} ms"),
    }
}

const A_MOMENT_OF_OUR_DAYS: i64 = 1_500_000_000_000;
const PATIENCE: Duration = Duration::from_secs(5);
