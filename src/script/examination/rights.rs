//! The commands of each kind of lock, and the question which of them the user may run.

use redis::{Cmd, Value};

use super::{Reported, only, refusal, words};
use crate::error::Stop;
use crate::name::LockName;
use crate::script::Pipeline;

/// A kind, and the commands that its user needs, as the lines in `docs/operations.md` list them.
pub(crate) const OF_KINDS: &[(&str, &[&[&str]])] = &[
    ("plain", &[SCRIPTS, OWNERS, &["exists", "publish"], LISTEN]),
    ("spin", &[SCRIPTS, OWNERS, &["exists"]]),
    ("fair", &[SCRIPTS, OWNERS, &["exists", "publish", "time"], LISTEN, QUEUE]),
    ("fenced", &[SCRIPTS, OWNERS, &["exists", "publish", "time", "get", "set"], LISTEN]),
    ("read-write", &[SCRIPTS, OWNERS, &["exists", "publish", "hget", "hgetall", "set", "del"], LISTEN]),
    ("group", &[SCRIPTS, OWNERS, &["publish", "time", "hget", "hlen"], LISTEN]),
    ("token", &[SCRIPTS, &["get", "set", "pexpire", "pttl", "type"]]),
    ("semaphore", &[SCRIPTS, LISTEN, COUNT]),
    ("latch", &[SCRIPTS, LISTEN, COUNT, &["del"]]),
    (
        "expiring permits",
        &[
            SCRIPTS,
            LISTEN,
            &["publish", "get", "time", "zscore", "zadd", "zrangebyscore", "zrem", "zrange"],
            &["incrby", "decrby", "exists", "pttl", "pexpire"],
        ],
    ),
    ("election", &[SCRIPTS, OWNERS, &["exists", "publish", "time", "get", "set", "del", "hget", "hmget"], LISTEN]),
];

const SCRIPTS: &[&str] = &["ping", "evalsha", "eval"];
const LISTEN: &[&str] = &["subscribe", "unsubscribe"];
const OWNERS: &[&str] = &["hexists", "hset", "hdel", "pexpire", "pttl"];
const COUNT: &[&str] = &["publish", "get", "set", "incrby", "exists", "pexpire"];
const QUEUE: &[&str] = &[
    "lindex",
    "llen",
    "lpop",
    "lpos",
    "lrange",
    "lrem",
    "rpush",
    "zadd",
    "zcard",
    "zrange",
    "zrangebyscore",
    "zrem",
    "zrevrange",
    "zscore",
];

/// Returns the commands that the user may not run, whatever the key. The commands are queued in a transaction that is
/// discarded: a server checks rights when it queues a command.
pub(super) fn missing(send: &mut Pipeline<'_>, sample: &LockName) -> Result<Reported<Vec<&'static str>>, Stop> {
    if let Value::ServerError(error) = only(send(&[words(&["MULTI"])])?)? {
        // Every kind needs these, which may run: they write nothing.
        let replies = send(&SCRIPTS.iter().map(|word| example(word, sample)).collect::<Vec<_>>())?;
        let missing = lacking(SCRIPTS, &replies);
        return Ok(if missing.is_empty() { Err(refusal(&error)) } else { Ok(missing) });
    }
    let all = all_words();
    let mut questions: Vec<Cmd> = all.iter().map(|word| example(word, sample)).collect();
    questions.push(words(&["DISCARD"]));
    Ok(Ok(lacking(&all, &send(&questions)?)))
}

/// The words that the user may not run, by the replies to them.
fn lacking(words: &[&'static str], replies: &[Value]) -> Vec<&'static str> {
    let lacks = |reply: &Value| match reply {
        // A refusal for a key or a channel says nothing about the names of locks.
        Value::ServerError(error) => {
            let refusal = refusal(error);
            let text = refusal.to_string();
            refusal.word() == "NOPERM" && text.contains(" run the ") || text.contains("unknown command")
        }
        _ => false,
    };
    words.iter().zip(replies).filter(|(_, reply)| lacks(reply)).map(|(word, _)| *word).collect()
}

/// All commands, each once.
fn all_words() -> Vec<&'static str> {
    let mut all: Vec<_> = OF_KINDS.iter().flat_map(|(_, lists)| lists.iter().copied().flatten().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A command with as many arguments as it takes.
fn example(word: &str, sample: &LockName) -> Cmd {
    let arguments: &[&str] = match word {
        "ping" | "time" => return words(&[word]),
        "evalsha" | "eval" => return words(&[word, "return 1", "0"]),
        "lindex" | "hexists" | "hdel" | "hget" | "hmget" | "zscore" | "zrem" | "rpush" | "lpos" | "set" | "publish"
        | "pexpire" | "incrby" | "decrby" => &["1"],
        "hset" | "zadd" | "lrange" | "lrem" | "zrange" | "zrangebyscore" | "zrevrange" => &["1", "1"],
        _ => &[],
    };
    let mut command = words(&[word]);
    command.arg(sample.key());
    for argument in arguments {
        command.arg(*argument);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/operations.md");

    fn documented(start: &str) -> BTreeSet<&'static str> {
        let line = DOCUMENT.lines().find(|line| line.contains(start)).unwrap();
        line.split([' ', '`', ',']).filter_map(|word| word.strip_prefix('+')).collect()
    }

    #[test]
    fn each_kind_needs_what_its_documented_line_lists() {
        for (kind, lists) in OF_KINDS {
            let listed: BTreeSet<&str> = lists.iter().copied().flatten().copied().collect();
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
