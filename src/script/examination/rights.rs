//! The question which commands of locks the user may run.

use redis::{Cmd, Value, cmd};

use super::Reported;
use crate::error::{Error, Refusal, Stop};
use crate::name::LockName;
use crate::script::reply::known;
use crate::script::{Pipeline, command};

/// The commands that every kind of lock needs.
const SCRIPTS: [&str; 3] = ["ping", "evalsha", "eval"];
/// The commands that some kinds need.
const OTHERS: &str = "decrby del exists get hdel hexists hget hgetall hlen hmget hset incrby lindex llen lpop lpos lrange \
                      lrem pexpire pttl publish rpush set subscribe time type unsubscribe zadd zcard zrange \
                      zrangebyscore zrem zrevrange zscore";

/// Returns the commands that the user may not run, whatever the key. The commands are queued in a transaction that is
/// discarded: a server checks rights when it queues a command.
pub(super) fn missing(send: &mut Pipeline<'_>, sample: &LockName) -> Result<Reported<Vec<&'static str>>, Stop> {
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
    let lacks = |reply: &Value| {
        Refusal::in_reply(reply)
            .is_some_and(|refusal| refusal.is_of_right_to_run() || refusal.to_string().contains("unknown command"))
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
