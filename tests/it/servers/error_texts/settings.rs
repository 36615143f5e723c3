//! URLs and settings that must be mistakes; no server is asked.

use super::Row;
use crate::support::prelude::*;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = urls();
    rows.extend(settings());
    rows.extend(calls());
    rows
}

fn urls() -> Vec<Row> {
    let row = |situation, url: &str, says: &[&str]| {
        let error = Client::connect(url).map(drop).expect_err("it is refused before anything is opened");
        Row::new(situation, error, ErrorKind::Config, &[&["the server URL"], says].concat())
    };
    vec![
        row("a parameter of another library", "redis://h?timeout=canary", &["timeout", "db, user, pass and protocol"]),
        row("a parameter that is almost right", "redis://h?database=3", &["database", "db, user"]),
        row("a password parameter of another library", "redis://h?password=canary", &["password", "pass"]),
        row("two databases", "redis://h/3?db=4", &["parameter db contradicts"]),
        row("a slash in the password", "redis://u:can/ary@h", &["@ follows the host", "/ as %2F", "@ as %40"]),
        row("a question mark in the password", "redis://u:can?ary@h", &["? as %3F"]),
        row("a hash in the password", "redis://u:can#ary@h", &["# as %23"]),
        row("a space in the password", "redis://u:canary x@h", &["a space", "%20"]),
        row("a fragment", "redis://h/0#canary", &["#", "%23"]),
        row("a port that is none", "redis://u:canary@h:port", &["port", "1 to 65535"]),
        row("port 0", "redis://h:0", &["port", "1 to 65535"]),
        row("no host", "redis://u:canary@:6379", &["no host", "redis://host:6379"]),
        row("a database that is no number", "redis://h/canary", &["database must be a number", "redis://host/3"]),
        row("a path of several parts", "redis://h/0/canary", &["too many parts", "redis://host/3"]),
        row("a path behind the database", "redis+sentinel://h/shop/0/canary", &["too many parts", "/service/3"]),
        row(
            "several hosts with ports",
            "redis://h:1,i:2",
            &["several hosts", "redis+cluster://", "redis+replicated://"],
        ),
        row("several hosts", "redis://u:canary@h,i", &["several hosts", "redis+sentinel://"]),
        row("a blank before the URL", " redis://u:canary@h", &["at its start or end", "trim()"]),
        row("a line break behind the URL", "redis://u:canary@h\n", &["at its start or end", "trim()"]),
        row("a % that is no escape", "redis://u:%zzcanary@h", &["a % in the password", "%25"]),
        row("a % at the end", "redis://u%2:canary@h", &["a % in the user", "%25"]),
        row("a scheme with another sign", "redis-sentinel://u:canary@h/shop", &["is redis+sentinel:// meant?"]),
        row("an IPv6 address without brackets", "redis://::1:6379", &["[::1]:6379"]),
        row("the address of all interfaces", "redis://0.0.0.0:6379", &["0.0.0.0", "127.0.0.1"]),
        row("a protocol that there is not", "redis://h?protocol=canary", &["protocol", "resp2 or resp3"]),
        row("another scheme", "http://u:canary@h", &["begin with redis://"]),
        row("no URL", "localhost:6379", &["redis://", "host[:port]"]),
        row("a Unix socket without its path", "unix://redis.sock", &["three slashes"]),
        row("a login before a Unix socket", "unix://u:canary@/run/redis.sock", &["?user=name&pass=word"]),
        row("a port that is none, over TLS", "rediss://u:canary@h:port", &["port", "1 to 65535"]),
        row("a cluster without hosts", "redis+cluster://", &["host"]),
        row("a database of a cluster", "redis+cluster://u:canary@h/3", &["database"]),
        row("a Sentinel without its service", "redis+sentinel://u:canary@h", &["service"]),
    ]
}

fn settings() -> Vec<Row> {
    let row = |situation, change: &dyn Fn(ClientBuilder) -> ClientBuilder, says: &[&str]| {
        let error = change(Client::builder("redis://u:canary@h")).connect_lazily().map(drop).unwrap_err();
        Row::new(situation, error, ErrorKind::Config, says)
    };
    let seconds = Duration::from_secs;
    vec![
        row(
            "a time-out as long as a lock lives",
            &|b| b.command_timeout(seconds(30)),
            &["command_timeout()", "watchdog()", "less than 30s"],
        ),
        row(
            "a prefix longer than a name",
            &|b| b.name_prefix("x".repeat(5_000)),
            &["name_prefix()", "5000 bytes", "4096"],
        ),
        row("patience without end", &|b| b.outage_limit(Duration::MAX), &["outage_limit()", "365 days"]),
        row("a drop without end", &|b| b.drop_timeout(Duration::MAX), &["drop_timeout()", "1 hour"]),
        row("connections that are never idle", &|b| b.idle_timeout(Duration::ZERO), &["idle_timeout()", "10 ms"]),
        row(
            "a lock of half a second",
            &|b| b.watchdog(seconds(1) / 2, seconds(1)),
            &["watchdog()", "1 second to 365 days"],
        ),
        row(
            "a renewal that comes too late",
            &|b| b.watchdog(seconds(9), seconds(9)),
            &["interval of watchdog()", "4.5s"],
        ),
        row("no connection at all", &|b| b.max_connections(0), &["max_connections()", "1 to 10,000"]),
        row(
            "a name of two words",
            &|b| b.client_name("two words"),
            &["client_name()", "\"two words\"", "without spaces"],
        ),
    ]
}

fn calls() -> Vec<Row> {
    let client = Client::builder("redis://u:canary@h").connect_lazily().unwrap();
    let take = |lock: Lock| lock.try_lock().map(drop).unwrap_err();
    let row = |situation, error: Error, says: &[&str]| Row::new(situation, error, ErrorKind::BadInput, says);
    vec![
        row("a group of no values", take(client.get_group_lock("hall", [""; 0])), &["at least one value"]),
        row(
            "no time to hold",
            take(client.get_lock("job").with_max_hold(Duration::ZERO)),
            &["with_max_hold()", "zero"],
        )
        .of("job"),
        row(
            "no time to hold one of two",
            take(Lock::multi([client.get_lock("job").with_max_hold(Duration::ZERO)])),
            &["with_max_hold()", "zero"],
        ),
        row("no permits", client.get_semaphore("s").try_acquire(0).map(drop).unwrap_err(), &["0 permits", "take 1 to"])
            .of("s"),
        row("a lock without a name", take(client.get_lock("")), &["cannot be empty"]),
        row("a name too long", take(client.get_lock("x".repeat(5_000))), &["4096 bytes", "5000"]),
        row("no lease", take(client.get_lock("job").with_lease(Duration::ZERO)), &["lease of 0ns", "1 ms to 365 days"])
            .of("job"),
    ]
}
