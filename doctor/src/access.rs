//! Findings about what the user may do, what stands between, and the own locks.

use lockson::{Error, Examination, Result};

use super::Severity::{Danger, Note, Warning};
use super::{Finding, FindingKind};

/// A kind, and the commands that its user needs, as the lines in `docs/operations.md` list them.
const OF_KINDS: &[(&str, &[&str])] = &[
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
fn in_lists(lists: &[&'static str]) -> impl Iterator<Item = &'static str> {
    lists.iter().flat_map(|list| list.split(' '))
}

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let mut findings = vec![];
    findings.extend(proxy(examination));
    findings.extend(fencing(&examination.fence));
    findings.extend(tracking(&examination.tracking));
    findings.extend(examination.missing.as_ref().ok().and_then(|missing| rights(missing)));
    findings.extend(examination.endless.iter().flatten().map(|name| endless(name)));
    findings.extend(not_asked(examination));
    findings
}

fn proxy(examination: &Examination) -> Option<Finding> {
    let ids: Vec<i64> = examination.ids.iter().flatten().copied().chain(id_in_hello(examination)).collect();
    if ids.windows(2).any(|pair| pair[0] != pair[1]) {
        return Some(Finding::new(
            Danger,
            FindingKind::Proxy,
            format!("one connection has several ids: {ids:?}"),
            "a proxy shares connections between clients: fences end requests of others, and waiters are not woken",
            "connect to the server itself, or through a proxy that carries whole connections",
        ));
    }
    let refusal = examination.hello.as_ref().err()?;
    Some(Finding::new(
        Warning,
        FindingKind::Proxy,
        format!("HELLO is refused with {}", word(refusal)),
        "a proxy, or a renamed command: the client cannot see that a server has become a replica until a write fails",
        "connect to the server itself, or let HELLO pass",
    ))
}

fn id_in_hello(examination: &Examination) -> Option<i64> {
    examination.hello.as_ref().ok().copied().flatten()
}

fn fencing(fence: &Result<i64>) -> Option<Finding> {
    let what = match fence {
        Ok(0) => return None,
        Ok(killed) => format!("CLIENT KILL of the own connection, which was to be spared, killed {killed}"),
        Err(refusal) => format!("CLIENT KILL is refused with {}", word(refusal)),
    };
    Some(Finding::new(
        Warning,
        FindingKind::Fencing,
        what,
        "a request whose answer was lost cannot be fenced: a late original may leave a lock without a holder for half \
         a second",
        "give the user +client|kill; some providers have no such command",
    ))
}

fn tracking(tracking: &Result<()>) -> Option<Finding> {
    let refusal = tracking.as_ref().err()?;
    Some(Finding::new(
        Warning,
        FindingKind::Tracking,
        format!("CLIENT TRACKING is refused with {}", word(refusal)),
        "a lock that was deleted, flushed or taken is told to its holder at the next renewal, not at once",
        "give the user +client|tracking and &__redis__:invalidate",
    ))
}

/// One finding for all kinds: nobody needs all of them.
fn rights(missing: &[&str]) -> Option<Finding> {
    let lacks = |lists: &[&'static str]| {
        in_lists(lists).filter(|word| missing.contains(word)).map(|word| format!("+{word}")).collect::<Vec<_>>()
    };
    let kinds = OF_KINDS.iter().map(|(kind, lists)| (*kind, lacks(lists))).filter(|(_, lacks)| !lacks.is_empty());
    let kinds: Vec<(&str, Vec<String>)> = kinds.collect();
    if kinds.is_empty() {
        return None;
    }
    let list = kinds.iter().map(|(kind, lacks)| format!("{kind} ({})", lacks.join(" "))).collect::<Vec<_>>();
    let is_none_left = kinds.len() == OF_KINDS.len();
    Some(Finding::new(
        if is_none_left { Danger } else { Note },
        FindingKind::Rights,
        format!("the user lacks rights for: {}", list.join(", ")),
        "an operation on such a lock fails with NOPERM, or comes late",
        "give the user of these kinds the lines of docs/operations.md",
    ))
}

fn endless(name: &str) -> Finding {
    Finding::new(
        Danger,
        FindingKind::TimeToLive,
        format!("the lock {name:?}, which this client holds, has no time to live"),
        "it stays locked for ever if this process dies",
        "find out who ran PERSIST or wrote the key; releasing the lock mends it",
    )
}

fn not_asked(examination: &Examination) -> Vec<Finding> {
    let Examination { info, settings, clock, missing, endless, ids: [first, second], .. } = examination;
    let questions = [
        ("version, memory, persistence, replicas and connections", info.as_ref().err(), "+info"),
        ("the settings appendfsync, save, timeout, client-output-buffer-limit", settings.as_ref().err(), "+config|get"),
        ("the clock", clock.as_ref().err(), "+time"),
        ("the rights of the user for each kind of lock", missing.as_ref().err(), "+multi +discard"),
        ("the time to live of the own locks", endless.as_ref().err(), "+pttl"),
        ("whether a proxy shares connections", first.as_ref().err().or(second.as_ref().err()), "+client|id"),
    ];
    let about = |(question, refusal, right): (&str, Option<&Error>, &str)| {
        Some(Finding::new(
            Note,
            FindingKind::NotAsked,
            format!("{question} could not be asked: {}", word(refusal?)),
            "what it would show is not among these findings",
            &format!("let a user with {right} ask, or look at the console of the provider"),
        ))
    };
    questions.into_iter().filter_map(about).collect()
}

/// The first word of a refusal.
fn word(refusal: &Error) -> &str {
    refusal.redis_word().unwrap_or("no answer")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_of_every_kind_is_asked_for() {
        let server = lockson_harness::RedisServer::start();
        server.run(&["ACL", "SETUSER", "asks", "reset", "on", ">word", "+multi", "+discard"]);
        let url = server.url().replace("redis://", "redis://asks:word@");
        let (_, answers) = lockson::Client::builder(&url).connect_lazily().unwrap().examine().unwrap().remove(0);
        let asked: BTreeSet<&str> = answers.unwrap().missing.unwrap().into_iter().collect();
        let needed: BTreeSet<&str> = OF_KINDS.iter().flat_map(|(_, lists)| in_lists(lists)).collect();
        assert_eq!(asked, needed);
    }

    const DOCUMENT: &str = include_str!("../../docs/operations.md");

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
