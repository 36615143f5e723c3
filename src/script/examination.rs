//! Questions about a server that tell whether locks are safe there; they change nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::Pipeline;
use crate::error::{Error, Refusal, Stop};
use crate::name::LockName;
use crate::reply::{command, field, int, known, server_time, text};
use crate::time::since_epoch;

/// The answer of a server, or the refusal of the question.
pub(crate) type Reported<T> = crate::error::Result<T>;

/// The answers of one server to [`Client::examine`](crate::Client::examine). A refused question has the refusal in place
/// of its answer.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// for (server, answers) in client.examine()? {
///     println!("{server}: {:?}", answers?.info?.get("redis_version"));
/// }
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Examination {
    /// The fields of `INFO`, and at a member of a cluster those of `CLUSTER INFO`, where the user may ask for them.
    pub info: Reported<BTreeMap<String, String>>,
    /// The settings `appendfsync`, `save`, `timeout` and `client-output-buffer-limit`, each by its name.
    pub settings: Reported<BTreeMap<String, String>>,
    /// The id of the connection in the reply to `HELLO`.
    pub hello: Reported<Option<i64>>,
    /// The id of the connection, asked for twice in two round trips.
    pub ids: [Reported<i64>; 2],
    /// The number of connections that a fence of the own, spared connection killed.
    pub fence: Reported<i64>,
    /// Whether keys can be tracked.
    pub tracking: Reported<()>,
    /// The clock of the server beside the clock of this machine.
    pub clock: Reported<ClockDifference>,
    /// The commands of some kind of lock that the user may not run.
    pub missing: Reported<Vec<&'static str>>,
    /// The locks of this client that have no time to live.
    pub endless: Reported<Vec<String>>,
    /// The settings of this client.
    pub client: ClientSettings,
}

/// The clock of a server beside the clock of this machine; see [`Examination`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockDifference {
    /// How far the clocks differ at least, whatever the time that the question took.
    pub apart: Duration,
    /// Whether the server is ahead.
    pub server_is_ahead: bool,
}

/// The settings of a client that decide whether a server suits it; see [`Examination`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClientSettings {
    /// The interval at which holds are renewed.
    pub watchdog_interval: Duration,
    /// The most connections that the client opens to one server.
    pub connections: usize,
    /// Whether pub/sub is sharded, where it is chosen.
    pub sharded_pub_sub: Option<bool>,
}

/// The settings that decide about locks and are not in `INFO`.
const SETTINGS: [&str; 4] = ["appendfsync", "save", "timeout", "client-output-buffer-limit"];

/// Asks a server over a connection of its own, which must be closed afterwards. `locks` are the names of own locks;
/// `sample` is a name like them.
pub(crate) fn examine(
    send: &mut Pipeline<'_>,
    locks: &[LockName],
    sample: &LockName,
    client: ClientSettings,
) -> Result<Examination, Stop> {
    let replies = send(&[cmd("HELLO"), command("CLIENT", "ID"), cmd("INFO"), command("CLUSTER", "INFO")])?;
    let [hello, first, info, cluster] = &replies[..] else { return Err(Stop::NoReply) };
    let (hello, first) = (told(hello, |reply| Some(field(reply, "id").and_then(int)))?, told(first, int)?);
    let of_cluster = text(cluster).map(|info| fields(&info)).unwrap_or_default();
    let info = told(info, |reply| Some(fields(&text(reply)?).into_iter().chain(of_cluster).collect()))?;
    let questions = SETTINGS.map(|name| command("CONFIG", ("GET", name)));
    // A server may lack a setting.
    let settings = send(&questions)?.iter().map(|reply| told(reply, texts)).collect::<Result<Reported<Vec<_>>, _>>()?;
    let settings = settings.map(|settings| settings.into_iter().flatten().collect());
    let asked = since_epoch();
    let reply = known(send(&[cmd("TIME")])?.pop())?;
    let clock = told(&reply, server_time)?.map(|time| compared(time, asked, since_epoch()));
    // No connection has the largest id. Behind a proxy the own id may be that of another client.
    let fence = command("CLIENT", ("KILL", "ID", i64::MAX, "SKIPME", "yes"));
    let replies = send(&[fence, command("CLIENT", ("TRACKING", "OFF")), command("CLIENT", "ID")])?;
    let [fence, tracking, second] = &replies[..] else { return Err(Stop::NoReply) };
    let (fence, tracking, second) = (told(fence, int)?, told(tracking, |_| Some(()))?, told(second, int)?);
    let endless = endless(send, locks)?;
    // A transaction stays open where the user may not end it, so this question is the last one.
    let missing = missing_rights(send, sample)?;
    Ok(Examination { info, settings, hello, ids: [first, second], fence, tracking, clock, missing, endless, client })
}

/// The names among `locks` whose keys have no time to live.
fn endless(send: &mut Pipeline<'_>, locks: &[LockName]) -> Result<Reported<Vec<String>>, Stop> {
    let questions: Vec<Cmd> = locks.iter().map(|lock| command("PTTL", lock.key())).collect();
    let times = send(&questions)?.iter().map(|reply| told(reply, int)).collect::<Result<Reported<Vec<i64>>, _>>()?;
    let is_endless = |(lock, time): (&LockName, i64)| (time == -1).then(|| lock.to_string());
    Ok(times.map(|times| locks.iter().zip(times).filter_map(is_endless).collect()))
}

/// The names and the values in a reply that has texts only.
fn texts(reply: &Value) -> Option<BTreeMap<String, String>> {
    redis::from_redis_value_ref(reply).ok()
}

/// The server read its clock between the two readings of ours.
fn compared(server: Duration, before: Duration, after: Duration) -> ClockDifference {
    let server_is_ahead = server > after;
    let apart = if server_is_ahead { server - after } else { before.saturating_sub(server) };
    ClockDifference { apart, server_is_ahead }
}

fn fields(info: &str) -> BTreeMap<String, String> {
    let field = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    info.lines().filter_map(field).collect()
}

/// The answer in a reply, or its refusal; ends the round trips for a reply of an unknown shape.
fn told<T>(reply: &Value, read: impl FnOnce(&Value) -> Option<T>) -> Result<Reported<T>, Stop> {
    match Refusal::in_reply(reply) {
        Some(refusal) => Ok(Err(Error::refused(refusal))),
        None => known(read(reply)).map(Ok),
    }
}

/// Returns the commands that the user may not run, whatever the key. The commands are queued in a transaction that is
/// discarded: a server checks rights when it queues a command.
fn missing_rights(send: &mut Pipeline<'_>, sample: &LockName) -> Result<Reported<Vec<&'static str>>, Stop> {
    if let Some(refusal) = Refusal::in_reply(&known(send(&[cmd("MULTI")])?.pop())?) {
        // Every kind needs these, which may run: they write nothing.
        let replies = send(&SCRIPTS.map(|word| example(word, sample)))?;
        let missing = lacking(&SCRIPTS, &replies);
        return Ok(if missing.is_empty() { Err(Error::refused(refusal)) } else { Ok(missing) });
    }
    let all: Vec<_> = SCRIPTS.into_iter().chain(OTHERS.split(' ')).collect();
    let mut questions: Vec<Cmd> = all.iter().map(|word| example(word, sample)).collect();
    questions.push(cmd("DISCARD"));
    Ok(Ok(lacking(&all, &send(&questions)?)))
}

/// The words that the user may not run, by the replies to them.
fn lacking(words: &[&'static str], replies: &[Value]) -> Vec<&'static str> {
    // A refusal for a key or a channel says nothing about the names of locks.
    let lacks = |refusal: Refusal| refusal.is_of_right_to_run() || refusal.to_string().contains("unknown command");
    let lacking = words.iter().zip(replies).filter(|(_, reply)| Refusal::in_reply(reply).is_some_and(lacks));
    lacking.map(|(word, _)| *word).collect()
}

/// A command with as many arguments as it takes.
fn example(word: &str, sample: &LockName) -> Cmd {
    let arguments: &[&str] = match word {
        "ping" | "time" => return cmd(word),
        "evalsha" | "eval" => return command(word, ("return 1", "0")),
        "lindex" | "hexists" | "hdel" | "hget" | "hmget" | "zscore" | "zrem" | "rpush" | "lpos" | "set" | "publish"
        | "pexpire" | "incrby" | "decrby" => &["1"],
        "hset" | "zadd" | "lrange" | "lrem" | "zrange" | "zrangebyscore" | "zrevrange" => &["1", "1"],
        _ => &[],
    };
    command(word, (sample.key(), arguments))
}

/// The commands that every kind of lock needs.
const SCRIPTS: [&str; 3] = ["ping", "evalsha", "eval"];
/// The commands that some kinds need.
const OTHERS: &str = "decrby del exists get hdel hexists hget hgetall hlen hmget hset incrby lindex llen lpop lpos lrange \
                      lrem pexpire pttl publish rpush set subscribe time type unsubscribe zadd zcard zrange \
                      zrangebyscore zrem zrevrange zscore";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_differ_by_no_more_than_is_certain() {
        let (at, ms) = (Duration::from_secs(100), Duration::from_millis);
        let check = |server, apart, ahead| {
            let clock = compared(server, at, at + ms(10));
            assert_eq!((clock.apart, clock.server_is_ahead), (apart, ahead), "{server:?}");
        };
        check(at + ms(5), Duration::ZERO, false);
        check(at + ms(30), ms(20), true);
        check(at - ms(30), ms(30), false);
    }

    #[test]
    fn settings_are_read_in_both_protocols() {
        let check = |reply: &str, wanted: Option<&[(&str, &str)]>| {
            let reply = redis::parse_redis_value(reply.as_bytes()).unwrap();
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            assert_eq!(texts(&reply), wanted.map(|pairs| pairs.iter().map(owned).collect()));
        };
        check("*2\r\n$4\r\nsave\r\n$0\r\n\r\n", Some(&[("save", "")]));
        check("%1\r\n$4\r\nsave\r\n$5\r\n900 1\r\n", Some(&[("save", "900 1")]));
        check("*0\r\n", Some(&[]));
        check("%0\r\n", Some(&[]));
        check(":1\r\n", None);
    }
}
