//! Servers that cannot keep a lock, and URLs whose login or database is a mistake.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::support::prelude::*;

/// A server program that runs as a Sentinel.
fn sentinel_program() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sentinel.sh");
    let server = std::env::var("LOCKSON_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    // Written under another name first: another test may be about to run the file.
    let draft = path.with_extension(format!("{:?}", thread::current().id()));
    fs::write(&draft, format!("#!/bin/sh\nexec {server} \"$@\" --sentinel\n")).unwrap();
    fs::set_permissions(&draft, Permissions::from_mode(0o755)).unwrap();
    fs::rename(&draft, &path).unwrap();
    path
}

pub(crate) fn sentinel() -> RedisServer {
    RedisServer::builder().program(sentinel_program()).start()
}

/// A node with all slots, so that the node would grant.
pub(crate) fn cluster_node() -> RedisServer {
    let server = RedisServer::builder().config("cluster-enabled yes").start();
    server.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    eventually(SOON, "it serves", || server.query::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    server
}

#[test]
fn a_node_of_a_cluster_and_a_sentinel_are_refused_by_name() {
    for (server, words) in [(cluster_node(), "node of a Redis Cluster"), (sentinel(), "Sentinel")] {
        for url in [server.url(), format!("{}?protocol=resp3", server.url()), server.unix_url()] {
            let error = Client::connect(&url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(words), "{error}");
            let lazy = Client::builder(&url).connect_lazily().unwrap();
            let (took, answer) = timed(|| lazy.get_lock("wanted").lock().map(drop));
            assert_eq!(kind_of(answer), ErrorKind::Unsupported);
            assert!(took < SOON, "no call waits for a change of the server: {took:?}");
        }
    }
}

#[test]
fn a_replica_is_refused_at_connect_and_answers_no_question() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    replica.run(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    for url in [replica.url(), format!("{}?protocol=resp3", replica.url())] {
        let error = Client::connect(&url).unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("READONLY")), "{error}");
        assert!(error.to_string().contains("is a replica; connect to its master"), "{error}");
        let lazy = Client::builder(&url).command_timeout(PATIENCE).connect_lazily().unwrap();
        assert_eq!(kind_of(lazy.get_lock("wanted").is_locked()), ErrorKind::Refused);
    }
}

#[test]
fn a_waiter_at_a_replica_is_served_after_its_promotion() {
    let (rig, client) = Rig::start().and(Rig::client);
    let successor = RedisServer::start();
    successor.run(&["REPLICAOF", "127.0.0.1", &rig.server.port().to_string()]);
    rig.proxy.retarget(successor.address());
    rig.proxy.cut(lockson_harness::proxy::Scope::All);
    let mark = rig.proxy.mark();
    thread::scope(|scope| {
        let waiter =
            scope.spawn(|| client.get_lock("wanted").try_lock_for(SOON).unwrap().expect("the lock is free").unlock());
        // Met, left, and asked again.
        rig.proxy.wait_for_since(mark, &When::command("HELLO").nth(2), SOON);
        eventually(SOON, "two connections were made", || {
            rig.proxy.fitting_since(mark, &When::command("HELLO")).len() > 1
        });
        successor.run(&["REPLICAOF", "NO", "ONE"]);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_server_without_hello_serves_and_allows_fencing() {
    let without = RedisServer::builder().config("rename-command HELLO \"\"").start();
    let (rig, lock) = Rig::around(without).and(|rig| rig.client().get_lock("wanted"));
    let mark = rig.proxy.mark();
    rig.proxy.rule(rig.script("acquire"), Then::CutReplyAfter(0));
    lock.lock().unwrap().unlock().unwrap();
    let kills = rig.proxy.fitting_since(mark, &crate::support::faults::fences());
    assert_eq!(kills.len(), 1, "the number of the connection comes from elsewhere");
    assert!(kills[0].contains("ADDR"));
    // A proxy can lack the command just as a user can lack the right.
    let rig = Rig::start();
    rig.proxy.rule(When::command("HELLO").always(), Then::AnswerInstead(b"-ERR unsupported command\r\n".to_vec()));
    rig.client().get_lock("wanted").lock().unwrap().unlock().unwrap();
}

#[test]
fn a_number_that_a_proxy_made_up_is_never_killed() {
    let rig = Rig::start();
    let made_up = b"*2\r\n$2\r\nid\r\n:1\r\n".to_vec();
    rig.proxy.rule(When::command("HELLO").always(), Then::ReplaceReply(made_up));
    let mark = rig.proxy.mark();
    rig.proxy.rule(rig.script("acquire"), Then::CutReplyAfter(0));
    rig.client().get_lock("wanted").lock().unwrap().unlock().unwrap();
    assert_eq!(rig.proxy.fitting_since(mark, &crate::support::faults::fences()).len(), 0);
}

#[test]
fn the_whole_introduction_is_one_round_trip() {
    let rig = Rig::around(RedisServer::builder().password("secret").start());
    let url = format!("redis://:secret@127.0.0.1:{}/3", rig.proxy.port());
    let held = rig.proxy.rule(When::command("AUTH"), Then::HoldReply);
    thread::scope(|scope| {
        let connecting = scope.spawn(|| Client::connect(&url));
        let last = When::command("CLIENT").that(|request| request.text(0) == "INFO");
        rig.proxy.wait_for(&last, SOON);
        held.release();
        connecting.join().unwrap().unwrap();
    });
    let sent: Vec<String> = rig.proxy.requests().iter().map(|request| request.command.clone()).collect();
    assert_eq!(sent, ["AUTH", "HELLO", "SELECT", "CLIENT", "CLIENT", "PING"]);
}

#[test]
fn a_user_without_a_password_is_not_the_default_user() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "alice", "on", "nopass", "~app:*", "&*", "+@all"]);
    server.run(&["ACL", "SETUSER", "bob", "on", ">secret", "~app:*", "&*", "+@all"]);
    for protocol in ["resp2", "resp3"] {
        let client =
            Client::connect(&format!("redis://alice@127.0.0.1:{}?protocol={protocol}", server.port())).unwrap();
        client.get_lock("app:x").lock().unwrap().unlock().unwrap();
        let error = client.get_lock("outside").lock().unwrap_err();
        assert_eq!(error.redis_word(), Some("NOPERM"), "{error}");
        let url = format!("redis://bob@127.0.0.1:{}?protocol={protocol}", server.port());
        let error = Client::connect(&url).unwrap_err();
        assert_eq!(error.redis_word(), Some("WRONGPASS"), "{error}");
        assert!(error.to_string().contains("redis://:password@host"), "{error}");
    }
    assert!(server.keys().is_empty());
}

#[test]
fn the_database_of_a_parameter_counts() {
    let server = RedisServer::start();
    let place = format!("redis://127.0.0.1:{}", server.port());
    let unix = format!("{}?db=3", server.unix_url().split('?').next().unwrap());
    for url in [format!("{place}?db=3"), format!("{place}/3?db=3"), format!("{place}/3"), unix] {
        let guard = Client::connect(&url).unwrap().get_lock("there").lock().unwrap();
        assert_eq!(server.keys(), Vec::<String>::new(), "{url}: database 0");
        let held: String = server.info("db3").expect("the server holds a key");
        assert!(held.starts_with("keys=1,"), "{url}: {held}");
        guard.unlock().unwrap();
    }
    assert_eq!(kind_of(Client::connect(&format!("{place}/3?db=4"))), ErrorKind::Config);
    assert_eq!(kind_of(Client::connect(&format!("{place}?database=3"))), ErrorKind::Config);
}

#[test]
fn an_owner_leads_to_the_connections_of_its_client() {
    let server = RedisServer::start();
    let ours = Client::builder(&server.url()).client_name("orders").connect().unwrap();
    let _theirs = Client::builder(&server.url()).client_name("orders").connect().unwrap();
    let guard = ours.get_lock("job").lock().unwrap();
    let (owner, _) = fields(&server, "job").remove(0);
    let id = owner.split(':').next().unwrap();
    let start = format!("orders:{id}:");
    assert_eq!(server.clients_named("orders:"), 2);
    let found: Vec<_> = server.clients().into_iter().filter(|client| client["name"].starts_with(&start)).collect();
    assert_eq!(found.len(), 1);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(found[0]["name"], format!("{start}{host}:{}", std::process::id()));
    assert!(found[0]["addr"].starts_with("127.0.0.1:"));
    assert_eq!(id, ours.id());
    guard.unlock().unwrap();
}

#[test]
fn a_fence_after_a_restart_spares_a_reused_number() {
    let rig = Rig::start();
    // Redis counts connections; this client gets a number that a few connections reach after the restart.
    let before: Vec<_> = (0..40).map(|_| rig.server.connection()).collect();
    let client = rig.builder().command_timeout(ms(2_000)).connect().unwrap();
    drop(before);
    rig.proxy.rule(rig.script("acquire"), Then::SwallowRequest);
    let hello = rig.proxy.fitting(&When::command("HELLO")).pop().unwrap();
    let ours = number_in(&rig, &hello);
    thread::scope(|scope| {
        let locking =
            scope.spawn(|| client.get_lock("job").owned().try_lock_for(SOON).unwrap().expect("the lock is free"));
        rig.proxy.wait_for(&rig.script("acquire"), SOON);
        rig.proxy.new_connections(lockson_harness::proxy::NewConnections::Refuse);
        rig.server.restart();
        let mut innocent = vec![];
        loop {
            let mut connection = rig.server.connection();
            let number: u64 = redis::cmd("CLIENT").arg("ID").query(&mut connection).unwrap();
            assert!(number <= ours, "the number was passed over");
            innocent.push(connection);
            if number == ours {
                break;
            }
        }
        let mark = rig.proxy.mark();
        rig.proxy.new_connections(lockson_harness::proxy::NewConnections::Accept);
        locking.join().unwrap().unlock().unwrap();
        let kills = rig.proxy.fitting_since(mark, &crate::support::faults::fences());
        assert!(
            kills.iter().any(|kill| kill.text(2) == ours.to_string()),
            "the connection's number is fenced: {kills:?}"
        );
        let namesake = innocent.last_mut().unwrap();
        let pong: String = redis::cmd("PING").query(namesake).expect("the connection is open");
        assert_eq!(pong, "PONG");
    });
}

#[test]
fn a_fence_behind_a_unix_socket_spares_a_reused_number() {
    let server = RedisServer::start();
    let open = || redis::Client::open(server.unix_url()).unwrap().get_connection().unwrap();
    let number = |connection: &mut redis::Connection| redis::cmd("CLIENT").arg("ID").query::<u64>(connection).unwrap();
    // Only the client goes through the link.
    let link = server.data_folder().join("link.sock");
    std::os::unix::fs::symlink(server.socket(), &link).unwrap();
    let before: Vec<_> = (0..40).map(|_| open()).collect();
    let client = Client::builder(&format!("redis+unix://{}", link.display())).command_timeout(ms(2_000));
    let client = client.connect().unwrap();
    let ours = number(&mut open()) - 1;
    drop(before);
    server.pause();
    thread::scope(|scope| {
        let locking =
            scope.spawn(|| client.get_lock("job").owned().try_lock_for(SOON).unwrap().expect("the lock is free"));
        thread::sleep(ms(200));
        fs::remove_file(&link).unwrap();
        server.kill();
        server.start_again();
        let mut namesake = open();
        let mut others = vec![];
        while number(&mut namesake) < ours {
            others.push(std::mem::replace(&mut namesake, open()));
        }
        assert_eq!(number(&mut namesake), ours, "the number was passed over");
        std::os::unix::fs::symlink(server.socket(), &link).unwrap();
        locking.join().unwrap().unlock().unwrap();
        let pong: String = redis::cmd("PING").query(&mut namesake).expect("the connection is open");
        assert_eq!(pong, "PONG");
    });
}

fn number_in(rig: &Rig, hello: &lockson_harness::proxy::Request) -> u64 {
    let lockson_harness::proxy::Fate::Answered(reply) = rig.proxy.fate(hello) else {
        panic!("the request has no answer")
    };
    let reply = String::from_utf8_lossy(&reply);
    let (_, rest) = reply.split_once("\r\nid\r\n:").expect("the reply has the number");
    rest.split("\r\n").next().unwrap().parse().unwrap()
}

#[test]
fn a_lock_with_ten_thousand_readers_names_one_of_them() {
    let server = RedisServer::start();
    let fill = "redis.call('hset', KEYS[1], 'mode', 'read') for i = 1, 10000 do \
                redis.call('hset', KEYS[1], 'a0000000-0000-4000-8000-000000000000:1.' .. i, 2) end \
                redis.call('pexpire', KEYS[1], 60000)";
    server.run(&["EVAL", fill, "1", "shared"]);
    for protocol in ["resp2", "resp3"] {
        let client = Client::connect(&format!("{}?protocol={protocol}", server.url())).unwrap();
        let sides = client.get_read_write_lock("shared");
        let reader = sides.read().holder().unwrap().expect("somebody reads");
        assert!(reader.owner().starts_with("a0000000-"), "{reader:?}");
        assert_eq!(reader.hold_count(), 2);
        assert!(sides.write().holder().unwrap().is_none());
    }
}
