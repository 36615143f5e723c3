//! Requests that a server refuses or leaves without an answer, and calls that cannot succeed.

use super::{CANARY, LIMIT, Row};
use crate::support::prelude::*;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = refusals();
    rows.extend(rights());
    rows.extend(silence());
    rows.extend(holds());
    rows
}

fn take(client: &Client) -> Error {
    client.get_lock("job").try_lock().map(drop).expect_err("it is refused")
}

fn refusals() -> Vec<Row> {
    let rig = Rig::start();
    let (server, port) = (&rig.server, rig.proxy.port());
    let client = rig.builder().command_timeout(LIMIT).connect().unwrap();
    client.get_lock("job").lock().unwrap().unlock().unwrap();
    let mut rows = vec![];
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    rows.push(Row::refused("memory is full", take(&client), "OOM", &["maxmemory", "free memory"]));
    server.run(&["CONFIG", "SET", "maxmemory", "0"]);
    server.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    rows.push(Row::refused("too few replicas", take(&client), "NOREPLICAS", &["replicas", "min-replicas-to-write"]));
    server.run(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    server.run(&["SET", "job", "precious"]);
    let data = ["wrong kind of value", "perhaps data: use another name"];
    rows.push(Row::refused("something else under the name", take(&client), "WRONGTYPE", &data));
    server.run(&["DEL", "job"]);
    let says = |text: &str| {
        rig.proxy.rule(When::script(), Then::AnswerInstead(format!("-{text}\r\n").into_bytes()));
        take(&client)
    };
    let misconf = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands \
                   that may modify the data set are disabled, because this instance is configured to report errors during \
                   writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for \
                   details about the RDB error.";
    rows.push(Row::refused(
        "it cannot save",
        says(misconf),
        "MISCONF",
        &["unable to persist to disk", "free its disk"],
    ));
    let busy = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    let kill = ["SCRIPT KILL, never with SHUTDOWN NOSAVE"];
    rows.push(Row::refused("a script without end", says(busy), "BUSY", &kill).passing());
    let moved = says("MOVED 866 10.0.0.7:6379");
    rows.push(Row::refused("a cluster behind a proxy", moved, "MOVED", &["Redis Cluster", "10.0.0.7"]));
    rows.push(Row::refused("a text of nobody's", says("ERR odd"), "ERR", &["refused: odd"]));
    let old = "ERR Error running script (call to f_33f3a1b2c3d4e5f60718293a4b5c6d7e8f901234): @user_script:9: @user_script: \
               9: -OOM command not allowed when used memory > 'maxmemory'.";
    rows.push(Row::refused("memory is full, on an old server", says(old), "OOM", &["maxmemory", "free memory"]));
    server.run(&["REPLICAOF", "127.0.0.1", "1"]);
    let replica = ["replica", "connect to its master"];
    rows.push(Row::refused("a master that became a replica", take(&client), "READONLY", &replica).passing());
    server.run(&["REPLICAOF", "NO", "ONE"]);
    server.run(&["HSET", "job", "mode", "read", "somebody", "1"]);
    let other = ["another kind of lock", "data that is no lock", "use another name"];
    rows.push(Row::new("another kind of lock", take(&client), ErrorKind::OtherKind, &other));
    rows.into_iter().map(|row| row.at(port, 0).of("job")).collect()
}

fn rights() -> Vec<Row> {
    let server = RedisServer::start();
    let port = server.port();
    let set = |rules: &[&str]| server.run(&[&["ACL", "SETUSER", "app"], rules].concat());
    set(&["on", ">canary", "~*", "&*", "+@all"]);
    let events = Events::default();
    let client = Client::builder(&format!("redis://app:{CANARY}@127.0.0.1:{port}"))
        .command_timeout(LIMIT)
        .watchdog(Duration::from_secs(3), Duration::from_millis(100))
        .observer(events.clone())
        .connect()
        .unwrap();
    let refused = |situation, error, says: &[&str]| Row::refused(situation, error, "NOPERM", says).at(port, 0);
    let mut rows = vec![];
    let mut without = |situation, take_away, give_back, says: &[&str]| {
        set(&[take_away]);
        rows.push(refused(situation, take(&client), says).of("job"));
        set(&[give_back]);
    };
    let says = ["'evalsha' command", "docs/operations.md#rights", "ACL LOG"];
    without("no right to scripts", "-evalsha", "+evalsha", &says);
    without("no right to a command in a script", "-hset", "+hset", &["command", "docs/operations.md#rights"]);
    without("no right to the key", "resetkeys", "~*", &["key", "give the user the rights", "#rights"]);
    let held = client.get_lock("job").lock().unwrap();
    set(&["resetchannels"]);
    let wait = || client.get_lock("job").owned().try_lock_for(SOON).map(drop).expect_err("it may not listen");
    rows.push(refused("no right to the channel", wait(), &["channel", "docs/operations.md"]).of("job"));
    set(&["&*", "-hexists"]);
    eventually(SOON, "a renewal is refused", || !events.errors_of("not renewed").is_empty());
    let renewal = events.errors_of("not renewed").remove(0);
    rows.push(refused("no right to renew", renewal, &["docs/operations.md"]));
    let extended = held.extend(SOON).unwrap_err();
    rows.push(refused("no right to extend", extended, &["docs/operations.md"]).of("job"));
    set(&["+hexists"]);
    held.unlock().unwrap();
    rows
}

fn silence() -> Vec<Row> {
    let (rig, port) = Rig::start().and(|rig| rig.proxy.port());
    let client = rig.builder().command_timeout(LIMIT).connect().unwrap();
    let connection =
        |situation, error: Error, says: &[&str]| Row::new(situation, error, ErrorKind::Connection, says).passing();
    let mut rows = vec![];
    rig.proxy.mute(Scope::All, Direction::Replies);
    let doubted = take(&client);
    let says = ["did not answer within", "may have been carried out"];
    rows.push(Row::new("a request without an answer", doubted, ErrorKind::Unknown, &says).passing());
    let asked = client.get_lock("job").is_locked().unwrap_err();
    rows.push(connection("a question without an answer", asked, &["did not answer within"]));
    rig.proxy.heal();
    rig.eventually_no_keys(SOON);
    // From here on answers come, also late on a busy machine.
    let patient = rig.client();
    let mut asked = |situation, answer, says| {
        rig.proxy.rule(When::command("HRANDFIELD").always(), answer);
        rows.push(connection(situation, patient.get_lock("job").is_locked().unwrap_err(), &[says]));
        rig.proxy.heal();
    };
    let (other_shape, measureless) = (b"$3\r\nyes\r\n".to_vec(), b"*99999999\r\n".to_vec());
    asked("an answer of another shape", Then::ReplaceReply(other_shape), "does not fit the request");
    asked("an answer without measure", Then::ReplaceReply(measureless), "cannot be read (a length over the limit)");
    asked("a connection that breaks", Then::CutReplyAfter(0), "closed the connection before it answered");
    rig.proxy.new_connections(NewConnections::Refuse);
    rig.proxy.cut(Scope::All);
    rows.push(connection("a server that is gone", take(&client), &["cannot be reached", "nothing listens"]));
    rows.into_iter().map(|row| row.at(port, 0).of("job")).collect()
}

fn holds() -> Vec<Row> {
    let (server, client) = alone();
    let lock = client.get_lock("job");
    let mut rows = vec![];
    let mut lost = |situation, spoil: &dyn Fn(), loss, says: &[&str]| {
        let guard = lock.with_lease(SOON).lock().unwrap();
        spoil();
        rows.push(Row::new(situation, guard.unlock().unwrap_err(), ErrorKind::Lost(loss), says).of("job"));
        server.run(&["DEL", "job"]);
    };
    lost("the key was deleted", &|| server.run(&["DEL", "job"]), Loss::Gone, &["deleted", "unprotected"]);
    let overwrite = || server.run(&["SET", "job", "x"]);
    lost("the key was overwritten", &overwrite, Loss::Taken, &["something else", "unprotected"]);
    let brief = lock.with_lease(Duration::from_millis(5)).lock();
    if let Ok(brief) = brief {
        assert_eq!(brief.wait_lost(SOON), Some(Loss::Expired));
        let (error, kind) = (brief.unlock().unwrap_err(), ErrorKind::Lost(Loss::Expired));
        rows.push(Row::new("the lease ran out", error, kind, &["ran out", "unprotected"]).of("job"));
    }
    let other_kind = |situation, error, says: &[&str]| Row::new(situation, error, ErrorKind::OtherKind, says);
    let once = client.get_non_reentrant_lock("once");
    let held = once.lock().unwrap();
    let again = once.lock().map(drop).unwrap_err();
    rows.push(Row::new("a lock that is taken once", again, ErrorKind::AlreadyHeld, &["this thread"]).of("once"));
    let other = client.get_read_write_lock("once").write().lock().map(drop).unwrap_err();
    let says = ["holds it as non-reentrant and wants it as write"];
    rows.push(other_kind("a hold of another kind", other, &says).of("once"));
    held.unlock().unwrap();
    let both = Lock::multi([client.get_lock("a"), client.get_lock("b")]);
    let says = ["2 of 2 locks: this thread has no hold"];
    rows.push(Row::new("no hold of two", both.unlock().unwrap_err(), ErrorKind::NotHeld, &says).of("multi(a, b)"));
    let seats = client.get_group_lock("hall", ["1", "2"]).lock().unwrap();
    server.run(&["FLUSHALL"]);
    let lost = seats.unlock().unwrap_err();
    let says = ["2 of 2 locks: the lock at redis", "unprotected"];
    rows.push(Row::new("two values lost", lost, ErrorKind::Lost(Loss::Gone), &says).of("group(hall[1], hall[2])"));
    let seat = client.get_election("seat").candidate("me").campaign().unwrap();
    server.run(&["FLUSHALL"]);
    let lost = seat.resign().unwrap_err();
    let says = ["leadership \"seat\": the leadership at redis", "unprotected"];
    rows.push(Row::new("a leadership lost", lost, ErrorKind::Lost(Loss::Gone), &says).of("seat"));
    server.run(&["SET", "stock", "99 pieces"]);
    let permits = client.get_permit_expirable_semaphore("stock").try_acquire(1).map(drop).unwrap_err();
    let says = ["permit \"stock\": ", "or data", "use another name"];
    rows.push(other_kind("permits on data", permits, &says).of("stock"));
    server.run(&["DEL", "stock"]);
    server.run(&["HSET", "stock", "pieces", "99"]);
    let counted = client.get_semaphore("stock").try_acquire(1).map(drop).unwrap_err();
    let says = ["semaphore \"stock\": ", "or data", "another name"];
    rows.push(other_kind("a semaphore on data", counted, &says).of("stock"));
    let error = lock.unlock().unwrap_err();
    rows.push(Row::new("nothing to give back", error, ErrorKind::NotHeld, &["this thread has no hold"]).of("job"));
    let gate = client.get_read_write_lock("job").read().once_per(SOON).unwrap_err();
    rows.push(Row::new("a gate that lets everybody in", gate, ErrorKind::BadInput, &["use the write lock"]).of("job"));
    let options = TokenOptions::new().with_release_by(ReleaseBy::Server);
    let token = client.get_token_lock_with("token", options).with_lease(SOON);
    if let Err(error) = token.lock().and_then(Guard::unlock) {
        let row = Row::new("a command of newer servers", error, ErrorKind::Unsupported, &["DELEX", "8.4"]);
        rows.push(row.at(server.port(), 0).of("token"));
    }
    let cancel = Cancel::new();
    cancel.cancel();
    let busy = lock.lock().unwrap();
    let cancelled = thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.with_cancel(&cancel).try_lock_for(SOON).map(drop));
        waiting.join().unwrap().unwrap_err()
    });
    let says = ["cancelled", "nothing was taken"];
    rows.push(Row::new("a wait that was cancelled", cancelled, ErrorKind::Cancelled, &says).of("job"));
    client.close();
    let closed = |situation, error, kind| Row::new(situation, error, kind, &["client was closed"]).of("job");
    rows.push(closed("a closed client", lock.lock().map(drop).unwrap_err(), ErrorKind::Closed));
    rows.push(closed("a lock of a closed client", busy.unlock().unwrap_err(), ErrorKind::Lost(Loss::Closed)));
    rows
}
