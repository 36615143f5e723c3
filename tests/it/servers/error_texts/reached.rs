//! Servers that are unreachable, are something other than Redis, or refuse the login.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};

use super::{CANARY, Row, no_client};
use crate::servers::wrong_server::{cluster_node, sentinel};
use crate::support::prelude::*;
use crate::support::stranger;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = unreachable();
    rows.extend(unwilling());
    rows.extend(wrong());
    rows
}

fn unreachable() -> Vec<Row> {
    let connection =
        |situation, error: Error, says: &[&str]| Row::new(situation, error, ErrorKind::Connection, says).passing();
    let server = RedisServer::start();
    let port = server.port();
    server.pause();
    let mute = no_client(&server.url_db(3));
    server.resume();
    server.kill();
    let url = format!("redis://u:{CANARY}@127.0.0.1:{port}/3");
    let socket = server.data_folder().join("gone.sock");
    let absent = no_client(&format!("unix://{}", socket.display()));
    drop(UnixListener::bind(&socket).unwrap());
    // A process that another test starts has the listener until it executes its program.
    eventually(SOON, "the socket is left over", || UnixStream::connect(&socket).is_err());
    let left_over = no_client(&format!("unix://{}", socket.display()));
    let says = format!("redis at {}?db=0 ", socket.display());
    let (silent, silent_port) = stranger(|_| {});
    let (web, web_port) = stranger(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let stands_still = ["accepted the connection but did not answer within 600ms", "overloaded"];
    let nobody = ["cannot be reached", "nothing listens on this port"];
    let no_host = no_client(&format!("redis://u:{CANARY}@no-such-host.invalid"));
    let no_such_host = ["redis at no-such-host.invalid:6379/0 cannot be reached", "host name"];
    let hung_up = no_client(&format!("redis://127.0.0.1:{silent_port}"));
    let hangs_up = ["closed the connection without a reply", "TLS"];
    let http = no_client(&format!("redis://127.0.0.1:{web_port}"));
    let rows = vec![
        connection("a server that stands still", mute, &stands_still).at(port, 3),
        connection("no server on the port", no_client(&url), &nobody).at(port, 3),
        connection("a host that there is not", no_host, &no_such_host),
        connection("no such socket", absent, &[&says, "the socket does not exist"]),
        connection("a socket that a dead server left", left_over, &[&says, "no server listens on this socket"]),
        connection("a port that hangs up, as for TLS", hung_up, &hangs_up).at(silent_port, 0),
        connection("a web server", http, &["does not speak Redis's protocol", "another service"]).at(web_port, 0),
    ];
    silent.join().unwrap();
    web.join().unwrap();
    rows
}

fn unwilling() -> Vec<Row> {
    let open = RedisServer::start();
    let locked = RedisServer::builder().password("right-canary").start();
    let (port, locked_port) = (open.port(), locked.port());
    open.run(&["ACL", "SETUSER", "bob", "on", ">right", "~*", "&*", "+@all"]);
    let place = format!("127.0.0.1:{port}");
    let refused = |situation, url: String, word, says: &[&str]| Row::refused(situation, no_client(&url), word, says);
    let bob = (format!("redis://bob@{place}"), ["a user and no password", "redis://:password@host"]);
    let none_set = ["none is set for the default user", "leave the password out of the URL"];
    let too_far = ["a database that the server does not have"];
    let mut rows = vec![
        refused("a user without a password", bob.0, "WRONGPASS", &bob.1).at(port, 0),
        refused("a password where none is set", format!("redis://:{CANARY}@{place}"), "ERR", &none_set).at(port, 0),
        refused("a database too far", format!("redis://{place}/9999"), "ERR", &too_far).at(port, 9_999),
    ];
    let required = ("NOAUTH", ["a password is required", "redis://user:password@host"]);
    let wrong = ("WRONGPASS", ["password is wrong", "ACL LIST"]);
    for (situation, login, query, (word, says)) in [
        ("no password", "", "", required),
        ("no password, by RESP3", "", "?protocol=resp3", required),
        ("a wrong password", ":wrong-canary@", "", wrong),
        ("a wrong password, by RESP3", ":wrong-canary@", "?protocol=resp3", wrong),
        ("a user that there is not", "nobody:wrong-canary@", "", wrong),
    ] {
        let url = format!("redis://{login}127.0.0.1:{locked_port}{query}");
        let lazily = Client::builder(&url).connect_lazily().unwrap().get_lock("wanted").lock().map(drop).unwrap_err();
        rows.push(Row::refused(situation, no_client(&url), word, &says).at(locked_port, 0));
        rows.push(Row::refused(situation, lazily, word, &says).at(locked_port, 0).of("wanted"));
    }
    let loading = Proxy::start(open.address());
    let reply = b"-LOADING Redis is loading the dataset in memory\r\n".to_vec();
    loading.rule(When::command("PING").always(), Then::AnswerInstead(reply));
    let row = refused("a server that loads", loading.url(), "LOADING", &["refused", "loaded its data"]);
    rows.push(row.passing().at(loading.port(), 0));
    let limited = RedisServer::start();
    let mut only = limited.connection();
    // Now, because the connection that saw the server start may not be over.
    redis::cmd("CONFIG").arg(&["SET", "maxclients", "1"]).exec(&mut only).unwrap();
    let says = ["max number of clients", "raise maxclients"];
    let row = refused("a server that is full", limited.url(), "MAXCLIENTS", &says);
    rows.push(row.passing().at(limited.port(), 0));
    drop(only);
    rows
}

/// A sentinel that takes a replica for a master.
fn sentinel_of(replica: u16) -> RedisServer {
    let sentinel = sentinel();
    sentinel.run(&["SENTINEL", "MONITOR", "shop", "127.0.0.1", &replica.to_string(), "1"]);
    sentinel
}

fn wrong() -> Vec<Row> {
    let (cluster, sentinel) = (cluster_node(), sentinel());
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    replica.run(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let lame = RedisServer::builder().config("rename-command EVALSHA \"\"").config("rename-command EVAL \"\"").start();
    let unsupported = |situation, error: Error, says: &[&str]| Row::new(situation, error, ErrorKind::Unsupported, says);
    let of_sentinel = no_client(&format!("redis://:{CANARY}@127.0.0.1:{}", sentinel.port()));
    let set = no_client(&format!("redis+replicated://127.0.0.1:{}", replica.port()));
    let watcher = sentinel_of(replica.port());
    let misled = no_client(&format!("redis+sentinel://127.0.0.1:{}/shop", watcher.port()));
    let replica_place = format!("at 127.0.0.1:{}", replica.port());
    let acquire = Client::connect(&lame.url()).unwrap().get_lock("job").try_lock().map(drop).unwrap_err();
    let (to_cluster, to_sentinel) = (["Redis Cluster", "redis+cluster://"], ["Sentinel", "redis+sentinel://"]);
    let (at_sentinel, a_replica) = (sentinel.port(), ["is a replica", "connect to its master"]);
    let to_set = ["name the master, too", "INFO replication", &replica_place];
    let no_scripts = ["unknown command 'EVALSHA'", "locks need this command"];
    vec![
        unsupported("a node of a Cluster", no_client(&cluster.url()), &to_cluster).at(cluster.port(), 0),
        unsupported("a Sentinel", no_client(&sentinel.url()), &to_sentinel).at(at_sentinel, 0),
        unsupported("a Sentinel, with the master's password", of_sentinel, &to_sentinel).at(at_sentinel, 0),
        Row::refused("a replica", no_client(&replica.url()), "READONLY", &a_replica).passing().at(replica.port(), 0),
        Row::new("a replicated set of a replica", set, ErrorKind::Connection, &to_set).passing(),
        Row::refused("sentinels of a replica", misled, "READONLY", &["fail-over", "MONITOR names a replica"]).passing(),
        Row::refused("a server that runs no scripts", acquire, "ERR", &no_scripts).at(lame.port(), 0).of("job"),
    ]
}
