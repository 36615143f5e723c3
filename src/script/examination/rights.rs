//! The commands of each kind of lock, and the question which of them the user may run.

use std::collections::BTreeSet;

use redis::{Cmd, Value, cmd};

use super::{Reported, only};
use crate::error::{Refusal, Stop};
use crate::name::LockName;
use crate::script::{Pipeline, command};

/// A kind, and the commands that its user needs, as the lines in `docs/operations.md` list them.
pub(crate) const OF_KINDS: &[(&str, &[&str])] = &[
    ("plain", &[SCRIPTS, OWNERS, "exists publish", LISTEN]),
    ("spin", &[SCRIPTS, OWNERS, "exists"]),
    ("fair", &[SCRIPTS, OWNERS, "exists publish time", LISTEN, QUEUE]),
    ("fenced", &[SCRIPTS, OWNERS, "exists publish time get set", LISTEN]),
    ("read-write", &[SCRIPTS, OWNERS, "exists publish hget hgetall set del", LISTEN]),
    ("group", &[SCRIPTS, OWNERS, "publish time hget hlen", LISTEN]),
    ("token", &[SCRIPTS, "get set pexpire pttl type"]),
    ("semaphore", &[SCRIPTS, LISTEN, COUNT]),
    ("latch", &[SCRIPTS, LISTEN, COUNT, "del"]),
    ("expiring permits", &[SCRIPTS, LISTEN, PERMITS]),
    ("election", &[SCRIPTS, OWNERS, "exists publish time get set del hget hmget", LISTEN]),
];

const SCRIPTS: &str = "ping evalsha eval";
const LISTEN: &str = "subscribe unsubscribe";
const OWNERS: &str = "hexists hset hdel pexpire pttl";
const COUNT: &str = "publish get set incrby exists pexpire";
const QUEUE: &str = "lindex llen lpop lpos lrange lrem rpush zadd zcard zrange zrangebyscore zrem zrevrange zscore";
const PERMITS: &str = "publish get time zscore zadd zrangebyscore zrem zrange incrby decrby exists pttl pexpire";

/// The commands in these lists.
pub(crate) fn in_lists(lists: &[&'static str]) -> impl Iterator<Item = &'static str> {
    lists.iter().flat_map(|list| list.split(' '))
}

/// Returns the commands that the user may not run, whatever the key. The commands are queued in a transaction that is
/// discarded: a server checks rights when it queues a command.
pub(super) fn missing(send: &mut Pipeline<'_>, sample: &LockName) -> Result<Reported<Vec<&'static str>>, Stop> {
    if let Value::ServerError(error) = only(send(&[cmd("MULTI")])?)? {
        // Every kind needs these, which may run: they write nothing.
        let scripts: Vec<_> = in_lists(&[SCRIPTS]).collect();
        let replies = send(&scripts.iter().map(|word| example(word, sample)).collect::<Vec<_>>())?;
        let missing = lacking(&scripts, &replies);
        return Ok(if missing.is_empty() { Err(Refusal::new(&error)) } else { Ok(missing) });
    }
    let all: BTreeSet<_> = OF_KINDS.iter().flat_map(|(_, lists)| in_lists(lists)).collect();
    let all: Vec<_> = all.into_iter().collect();
    let mut questions: Vec<Cmd> = all.iter().map(|word| example(word, sample)).collect();
    questions.push(cmd("DISCARD"));
    Ok(Ok(lacking(&all, &send(&questions)?)))
}

/// The words that the user may not run, by the replies to them.
fn lacking(words: &[&'static str], replies: &[Value]) -> Vec<&'static str> {
    let lacks = |reply: &Value| match reply {
        // A refusal for a key or a channel says nothing about the names of locks.
        Value::ServerError(error) => {
            let refusal = Refusal::new(error);
            refusal.is_of_right_to_run() || refusal.to_string().contains("unknown command")
        }
        _ => false,
    };
    words.iter().zip(replies).filter(|(_, reply)| lacks(reply)).map(|(word, _)| *word).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/operations.md");

    fn documented(start: &str) -> BTreeSet<&'static str> {
        let line = DOCUMENT.lines().find(|line| line.contains(start)).unwrap();
        line.split([' ', '`', ',']).filter_map(|word| word.strip_prefix('+')).collect()
    }

    #[test]
    fn each_kind_needs_what_its_documented_line_lists() {
        for (kind, lists) in OF_KINDS {
            let listed: BTreeSet<&str> = in_lists(lists).collect();
            let line = |kind: &str| documented(&format!("ACL SETUSER {kind} reset"));
            let wanted = match *kind {
                "group" => {
                    line("plain").into_iter().filter(|word| *word != "exists").chain(["hget", "hlen", "time"]).collect()
                }
                "election" => line("fenced").into_iter().chain(["del", "hget", "hmget"]).collect(),
                "semaphore" => {
                    documented("The user of a semaphore").into_iter().filter(|word| *word != "del").collect()
                }
                "latch" => documented("The user of a semaphore"),
                "expiring permits" => {
                    let all = documented("The user of expiring permits");
                    let optional = ["zcount", "zcard", "set", "zmscore", "del", "hget", "hmget", "hrandfield"];
                    all.into_iter().filter(|word| !optional.contains(word)).collect()
                }
                kind => line(kind),
            };
            assert_eq!(listed, wanted, "{kind}");
        }
    }
}
