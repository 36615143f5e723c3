//! Each finding on a server that is configured that way, and none on a well-kept one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockson::{Client, ErrorKind};
use lockson_doctor::{Finding, FindingKind, Severity};
use lockson_harness::proxy::{NewConnections, Proxy, Then, When};
use lockson_harness::{RedisCluster, RedisServer, RedisServerBuilder, eventually};

const SOON: Duration = Duration::from_secs(10);

/// A name that no other test uses.
fn fresh(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A server as the guides want it.
fn kept_well() -> RedisServerBuilder {
    RedisServer::builder().config("appendonly yes").config("appendfsync always")
}

fn client(server: &RedisServer) -> Client {
    Client::connect(&server.url()).unwrap()
}

fn findings(client: &Client) -> Vec<Finding> {
    lockson_doctor::findings(client).unwrap()
}

/// The one finding.
#[track_caller]
fn only(findings: Vec<Finding>) -> Finding {
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.into_iter().next().unwrap()
}

/// Checks that there is exactly this finding, and that its text names `what`.
#[track_caller]
fn check_only(findings: Vec<Finding>, severity: Severity, kind: FindingKind, what: &str) {
    let finding = only(findings);
    assert_eq!((finding.severity, finding.kind), (severity, kind), "{finding}");
    assert!(finding.what.contains(what), "{finding}");
}

#[test]
fn a_well_kept_server_has_no_findings() {
    let server = kept_well().start();
    let client = client(&server);
    let guard = client.get_lock(fresh("kept")).lock().unwrap();
    assert_eq!(findings(&client), []);
    let resp3 = Client::connect(&format!("{}?protocol=resp3", server.url())).unwrap();
    assert_eq!(findings(&resp3), []);
    assert!(guard.is_held());
    assert_eq!(server.keys(), [guard.name()], "it writes nothing");
}

#[test]
fn held_permits_need_no_time_to_live() {
    let server = kept_well().start();
    let client = client(&server);
    let permits = client.get_permit_expirable_semaphore(fresh("permits"));
    permits.set_permits_once(2).unwrap();
    let held = permits.acquire(1).unwrap();
    assert_eq!(findings(&client), []);
    held.release().unwrap();
}

#[test]
fn a_user_who_may_run_nothing_is_in_danger() {
    let server = kept_well().start();
    server.run(&["ACL", "SETUSER", "none", "reset", "on", ">word", "-@all"]);
    let client = Client::builder(&server.url().replace("redis://", "redis://none:word@")).connect_lazily().unwrap();
    let dangers = findings(&client).into_iter().filter(|finding| finding.severity == Severity::Danger);
    let kinds: Vec<_> = dangers.map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Rights]);
}

#[test]
fn a_member_that_is_down_hides_no_other() {
    let cluster = RedisCluster::start(3, 0);
    let client = Client::builder(&cluster.url()).command_timeout(Duration::from_millis(500)).connect_lazily().unwrap();
    cluster.kill(2);
    let all = findings(&client);
    let mut servers: Vec<_> = all.iter().map(|finding| finding.server.to_owned()).collect();
    servers.sort_unstable();
    servers.dedup();
    assert_eq!(servers.len(), 3, "each member is asked: {all:#?}");
    assert_eq!(all.iter().filter(|finding| finding.kind == FindingKind::Unreachable).count(), 1);
    let are_down = || findings(&client).iter().filter(|finding| finding.kind == FindingKind::Cluster).count() == 2;
    eventually(SOON, "the others serve nothing without it", are_down);
}

#[test]
fn settings_that_endanger_locks_are_found() {
    let server = kept_well().config("save \"\"").start();
    let client = client(&server);
    let check = |name: &str, value: &str, severity: Severity, kind: FindingKind, what: &str| {
        let before: Vec<String> = server.query(&["CONFIG", "GET", name]);
        server.run(&["CONFIG", "SET", name, value]);
        check_only(findings(&client), severity, kind, what);
        server.run(&["CONFIG", "SET", name, &before[1]]);
    };
    let (note, warning, danger) = (Severity::Note, Severity::Warning, Severity::Danger);
    check("maxmemory-policy", "allkeys-lru", warning, FindingKind::Eviction, "allkeys-lru");
    check("appendfsync", "everysec", note, FindingKind::Persistence, "everysec");
    check("appendfsync", "no", warning, FindingKind::Persistence, "appendfsync is no");
    check("appendonly", "no", warning, FindingKind::Persistence, "persists nothing");
    check("timeout", "5", note, FindingKind::IdleTimeout, "timeout is 5 s");
    let small = "pubsub 1000 500 60";
    check("client-output-buffer-limit", small, note, FindingKind::OutputBuffer, "pubsub is 1000 500");
    check("maxclients", "40", warning, FindingKind::Connections, "of 40 connections");
    server.run(&["CONFIG", "SET", "maxmemory", "100mb"]);
    check("maxmemory-policy", "volatile-ttl", danger, FindingKind::Eviction, "volatile-ttl");
    let used: u64 = server.info("used_memory").unwrap().parse().unwrap();
    check("maxmemory", &(used + used / 30).to_string(), warning, FindingKind::Memory, "bytes of maxmemory are in use");
    server.run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(findings(&client), [], "the server is as before");
}

#[test]
fn snapshots_alone_are_found() {
    let server = RedisServer::builder().config("save 3600 1").start();
    check_only(findings(&client(&server)), Severity::Warning, FindingKind::Persistence, "snapshots at most");
}

#[test]
fn a_failed_snapshot_is_found() {
    let server = kept_well().start();
    let client = client(&server);
    // The snapshot replaces this name, which is a folder now.
    std::fs::create_dir(server.data_folder().join("dump.rdb")).unwrap();
    server.run(&["BGSAVE"]);
    eventually(SOON, "the snapshot fails", || server.info("rdb_last_bgsave_status").as_deref() == Some("err"));
    check_only(findings(&client), Severity::Danger, FindingKind::Writes, "snapshot failed");
}

#[test]
fn replicas_are_found_where_nothing_waits_for_them() {
    let server = kept_well().config("repl-diskless-sync-delay 0").start();
    let client = client(&server);
    let _replica = RedisServer::builder().config(format!("replicaof 127.0.0.1 {}", server.port())).start();
    let is_online = || server.info("slave0").is_some_and(|told| told.contains("state=online"));
    eventually(SOON, "the replica is online", is_online);
    check_only(findings(&client), Severity::Warning, FindingKind::Replicas, "replicas copy from it: 1");
    server.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(findings(&client), []);
}

#[test]
fn a_replica_that_does_not_follow_is_found() {
    // The copy begins after a minute.
    let server = kept_well().config("repl-diskless-sync-delay 60").config("min-replicas-to-write 1").start();
    let client = client(&server);
    let replica = RedisServer::builder().config(format!("replicaof 127.0.0.1 {}", server.port())).start();
    let waits = || server.info("slave0").is_some_and(|told| told.contains("state=wait_bgsave"));
    eventually(SOON, "the replica waits for its copy", waits);
    let what = format!("the replica 127.0.0.1:{} is wait_bgsave, ", replica.port());
    check_only(findings(&client), Severity::Warning, FindingKind::Replicas, &what);
}

#[test]
fn an_own_lock_without_time_to_live_is_found() {
    let server = kept_well().start();
    let client = client(&server);
    let (name, lease) = (fresh("endless"), Duration::from_secs(60));
    let guard = client.get_lock(&name).with_lease(lease).lock().unwrap();
    assert_eq!(findings(&client), []);
    server.run(&["PERSIST", &name]);
    assert_eq!(server.query::<i64>(&["PTTL", &name]), -1);
    check_only(findings(&client), Severity::Danger, FindingKind::TimeToLive, &name);
    guard.unlock().unwrap();
    assert_eq!(findings(&client), []);
}

/// Logs in with these rights beside those of a user for everything.
fn with_rights(server: &RedisServer, user: &str, rights: &[&str]) -> Client {
    server.run(&[&["ACL", "SETUSER", user, "on", "nopass", "~app:*", "&*", "+@all"], rights].concat());
    let url = format!("redis://{user}@127.0.0.1:{}", server.port());
    Client::builder(&url).name_prefix("app:").connect().unwrap()
}

#[test]
fn missing_rights_are_found() {
    let server = kept_well().start();
    let check = |user: &str, rights: &str, severity: Severity, kind: FindingKind, what: &str| {
        // Before 7.0 a part of a command can be given, not taken.
        let rights: Vec<&str> = rights.split(' ').collect();
        check_only(findings(&with_rights(&server, user, &rights)), severity, kind, what);
    };
    let (note, warning) = (Severity::Note, Severity::Warning);
    check("no-queue", "-zadd", note, FindingKind::Rights, "lacks rights for: fair (+zadd), expiring permits (+zadd)");
    check("no-script", "-evalsha", Severity::Danger, FindingKind::Rights, "plain (+evalsha)");
    check(
        "no-kill",
        "-client +client|id +client|info +client|tracking",
        warning,
        FindingKind::Fencing,
        "CLIENT KILL is refused with NOPERM",
    );
    check(
        "no-tracking",
        "-client +client|id +client|info +client|kill",
        warning,
        FindingKind::Tracking,
        "CLIENT TRACKING is refused",
    );
    check("no-info", "-info", note, FindingKind::NotAsked, "version, memory, persistence");
    check("no-config", "-config", note, FindingKind::NotAsked, "appendfsync, save, timeout");
    check("no-multi", "-multi", note, FindingKind::NotAsked, "the rights of the user");
    check(
        "no-id",
        "-client +client|info +client|kill +client|tracking",
        note,
        FindingKind::NotAsked,
        "whether a proxy shares connections",
    );
    let without_discard = with_rights(&server, "no-discard", &["-discard"]);
    assert_eq!(findings(&without_discard), []);
    let guard = without_discard.get_lock("after").lock().unwrap();
    assert!(guard.is_held(), "no transaction is left open");
    let foreign_keys = with_rights(&server, "foreign", &["resetkeys", "~other:*"]);
    assert_eq!(findings(&foreign_keys), [], "names are not judged");
}

#[test]
fn a_renamed_hello_is_found() {
    let server = kept_well().config("rename-command HELLO \"\"").start();
    let finding = only(findings(&client(&server)));
    assert_eq!((finding.kind, &*finding.what), (FindingKind::Proxy, "HELLO is refused with ERR"));
}

#[test]
fn what_a_proxy_makes_of_answers_is_found() {
    let server = kept_well().start();
    let proxy = Proxy::start(server.address());
    let client = Client::connect(&proxy.url()).unwrap();
    let check = |when: When, reply: &str, severity: Severity, kind: FindingKind, what: &str| {
        let rule = proxy.rule(when, Then::ReplaceReply(reply.as_bytes().to_vec()));
        check_only(findings(&client), severity, kind, what);
        rule.remove();
    };
    let (warning, danger) = (Severity::Warning, Severity::Danger);
    let client_id = || When::command("CLIENT").that(|request| request.text(0) == "ID");
    check(client_id().nth(2), ":1\r\n", danger, FindingKind::Proxy, "several ids");
    let killed = When::command("CLIENT").containing("SKIPME");
    check(killed.always(), ":1\r\n", warning, FindingKind::Fencing, "which was to be spared, killed 1");
    let early = "*2\r\n$10\r\n1000000000\r\n$1\r\n0\r\n";
    check(When::command("TIME").always(), early, warning, FindingKind::Clock, "behind that of this machine");
    let late = "*2\r\n$10\r\n9000000000\r\n$1\r\n0\r\n";
    check(When::command("TIME").always(), late, warning, FindingKind::Clock, "ahead of that of this machine");
    let info = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let told = |text: &str, severity, what: &str| {
        check(When::command("INFO").always(), &info(text), severity, FindingKind::Version, what);
    };
    told("redis_version:6.0.16\r\n", danger, "it is Redis 6.0.16");
    told("redis_version:7.2.4\r\nvalkey_version:7.2.5\r\n", danger, "it is Valkey 7.2.5");
    told("redis_version:7.4.0\r\ndragonfly_version:df-v1.30.0\r\n", warning, "Dragonfly");
    assert_eq!(findings(&client), []);
}

#[test]
fn a_client_whose_only_server_is_away_is_an_error() {
    let server = kept_well().start();
    let proxy = Proxy::start(server.address());
    let client = Client::connect(&proxy.url()).unwrap();
    let fails = || lockson_doctor::findings(&client).unwrap_err().kind();
    proxy.new_connections(NewConnections::Refuse);
    assert_eq!(fails(), ErrorKind::Connection);
    client.close();
    assert_eq!(fails(), ErrorKind::Closed);
}

#[test]
fn plain_pub_sub_on_a_cluster_is_found() {
    let cluster = RedisCluster::shared();
    let about_pub_sub = |client: Client| {
        let all = findings(&client).into_iter().filter(|finding| finding.kind == FindingKind::PubSub);
        all.map(|finding| (finding.severity, finding.server.to_owned())).collect::<Vec<_>>()
    };
    let plain = about_pub_sub(Client::builder(&cluster.url()).sharded_pub_sub(false).connect().unwrap());
    assert_eq!(plain.len(), 3, "each master tells: {plain:?}");
    assert!(plain.iter().all(|(severity, _)| *severity == Severity::Warning));
    assert_eq!(about_pub_sub(Client::builder(&cluster.url()).sharded_pub_sub(true).connect().unwrap()), []);
}

#[test]
fn a_finding_reads_as_one_line() {
    let server = kept_well().config("maxmemory-policy allkeys-lru").start();
    let finding = only(findings(&client(&server)));
    let text = finding.to_string();
    assert!(
        text.starts_with(&format!("warning: redis at 127.0.0.1:{}/0: maxmemory-policy is", server.port())),
        "{text}"
    );
    let parts = [finding.server, finding.what, finding.consequence, finding.remedy];
    assert!(parts.iter().all(|part| !part.is_empty() && text.contains(part)), "{text}");
}
