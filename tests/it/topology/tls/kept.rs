//! The promises of a plain connection, kept over TLS: reuse, waking, watching, bounds, ends.

use std::io::Write;

use fork::Fork;
use lockson::Tls;
use lockson_harness::proxy::AtByte;
use lockson_harness::{HelperProcess, helper};

use super::{Secured, works};
use crate::support::prelude::*;
use crate::support::{handed_over, listeners, stranger};

const PATIENCE: Duration = Duration::from_millis(500);

#[test]
fn an_idle_connection_is_used_again() {
    let secured = Secured::start();
    let (proxy, builder) = secured.proxied();
    let client = builder.connect().unwrap();
    for _ in 0..5 {
        works(&client);
        thread::sleep(ms(20)); // what the server sends unasked has arrived
    }
    assert_eq!(proxy.connections_made(), 1);
}

#[test]
fn a_kept_lock_needs_three_connections_and_is_watched() {
    let secured = Secured::start();
    let (proxy, builder) = secured.proxied();
    let client = builder.watchdog(TTL, TICK).connect().unwrap();
    let name = fresh("kept");
    let guard = client.get_lock(&name).lock().unwrap();
    assert_eq!(guard.wait_lost(TTL * 3 / 2), None, "it is renewed");
    assert!(proxy.connections_made() <= 3, "{} connections", proxy.connections_made());
    eventually(SOON, "the key is watched", || secured.server.tracked_keys() > 0);
    let (took, loss) = timed(|| {
        secured.server.run(&["DEL", &name]);
        guard.wait_lost(SOON)
    });
    assert_eq!(loss, Some(Loss::Gone));
    assert!(took < SCHEDULING, "told after {took:?}");
}

#[test]
fn a_release_wakes_a_waiter_of_another_client() {
    let secured = Secured::start();
    let (one, other) = (secured.client(), secured.client());
    let took = median(5, |_| {
        let name = fresh("handed");
        let guard = one.get_lock(&name).owned().lock().unwrap();
        handed_over(&other.get_lock(&name), || sleeps(&secured.server, &name), || guard.unlock().unwrap())
    });
    assert!(took < ms(300) + STANDSTILLS, "woken after {took:?}");
}

/// The server sends both messages in one record. The first one fills the buffer of the listening connection, so the
/// second one stays behind in the session.
#[test]
fn a_message_behind_another_in_one_record_wakes_at_once() {
    let secured = Secured::start();
    let took = median(5, |_| {
        let client = secured.client(); // a new one: its buffer has not grown
        let (first, second) = (fresh("first"), fresh("second"));
        for name in [&first, &second] {
            secured.server.run(&["HSET", name, "somebody:1", "1"]);
            secured.server.run(&["PEXPIRE", name, "60000"]);
        }
        thread::scope(|scope| {
            let waits = |name: &String| {
                let lock = client.get_lock(name);
                scope.spawn(move || lock.lock().map(drop))
            };
            let (one, other) = (waits(&first), waits(&second));
            [&first, &second].into_iter().for_each(|name| sleeps(&secured.server, name));
            let released = Instant::now();
            let script = "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[1], string.rep('x', 9000))
                          redis.call('PUBLISH', ARGV[2], '0')";
            secured.server.run(&["EVAL", script, "1", &second, &channel(&first), &channel(&second)]);
            joined(other).unwrap();
            let took = released.elapsed();
            secured.server.run(&["DEL", &first]);
            joined(one).unwrap();
            took
        })
    });
    assert!(took < ms(300) + STANDSTILLS, "woken after {took:?}");
}

#[test]
fn a_request_of_many_records_is_sent_whole() {
    let secured = Secured::start();
    let client = secured.client();
    let name = fresh("many").repeat(300);
    let lock = Lock::multi((0..400).map(|number| client.get_lock(format!("{name}{number}"))));
    for _ in 0..3 {
        let guard = lock.lock().unwrap();
        assert_eq!(secured.server.keys().len(), 400);
        guard.unlock().unwrap();
    }
    assert_eq!(secured.server.keys(), Vec::<String>::new());
}

#[test]
fn a_handshake_that_stops_ends_in_time() {
    let secured = Secured::start();
    at_once([0, 1, 5, 90, 500], |bytes| {
        let (proxy, builder) = secured.proxied();
        proxy.limit_bytes(Scope::All, Direction::Replies, bytes, AtByte::Hold);
        let (took, outcome) = timed(|| builder.command_timeout(PATIENCE).connect().map(drop));
        ends_in_time(took, outcome);
        proxy.heal();
    });
}

#[test]
fn a_handshake_that_never_ends_ends_in_time() {
    let secured = Secured::start();
    let (endless, port) = stranger(|stream| {
        // The head of the longest record, and then its bytes, one at a time.
        let bytes = [0x16, 0x03, 0x03, 0x40, 0x00].into_iter().chain(std::iter::repeat(0));
        bytes.take_while(|byte| stream.write_all(&[*byte]).is_ok()).for_each(|_| thread::sleep(ms(10)));
    });
    let builder = Client::builder(&format!("rediss://127.0.0.1:{port}")).tls(secured.tls()).command_timeout(PATIENCE);
    let (took, outcome) = timed(|| builder.connect().map(drop));
    ends_in_time(took, outcome);
    endless.join().unwrap();
}

#[track_caller]
fn ends_in_time(took: Duration, outcome: lockson::Result<()>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().contains("did not answer the TLS handshake within 500ms"), "{error}");
    assert!(took >= PATIENCE && took < PATIENCE + SCHEDULING, "{took:?}");
}

#[test]
fn close_ends_a_handshake() {
    let secured = Secured::start();
    let (proxy, builder) = secured.proxied();
    let client = builder.command_timeout(SOON * 2).connect_lazily().unwrap();
    proxy.limit_bytes(Scope::All, Direction::Replies, 90, AtByte::Hold);
    thread::scope(|scope| {
        let caller = scope.spawn(|| client.get_lock("never").lock().map(drop));
        eventually(SOON, "the server has begun to answer", || {
            proxy.connections().iter().any(|connection| connection.opaque_replies > 90)
        });
        let (took, ()) = timed(|| client.close());
        assert!(took < Duration::from_secs(1) + SCHEDULING, "closed after {took:?}");
        assert_eq!(kind_of(joined(caller)), ErrorKind::Closed);
    });
}

#[test]
fn a_fork_leaves_the_session_to_the_parent() {
    let secured = Secured::start();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "topology::tls::kept::a_parent_forks", "--nocapture"]);
    command.env(SERVER, secured.server.tls_url()).env(AUTHORITY, secured.authority.file());
    let parent = HelperProcess::spawn_command(command);
    let wanted = "the parent goes on over its connection";
    while parent.next_line(SOON * 2) != wanted {}
}

/// This process is the parent if the variable is set; otherwise there is nothing to test here.
#[test]
fn a_parent_forks() {
    let Ok(url) = std::env::var(SERVER) else { return };
    helper::say("");
    let tls = Tls::new().with_ca_file(std::env::var(AUTHORITY).unwrap());
    let client = Client::builder(&url).tls(tls).connect().unwrap();
    let kept = client.get_lock("kept").lock().unwrap();
    for _ in 0..5 {
        match fork::fork().unwrap() {
            Fork::Child => {
                let refused = kind_of(client.get_lock("mine").lock()) == ErrorKind::Closed;
                drop(kept);
                client.close();
                drop(client);
                std::process::exit(i32::from(!refused));
            }
            Fork::Parent(child) => assert_eq!(fork::waitpid(child).unwrap(), 0),
        }
        works(&client);
        assert!(kept.is_held());
    }
    kept.unlock().unwrap();
    helper::say("the parent goes on over its connection");
}

/// Waits until a waiter sleeps: it listens, and has asked again since.
#[track_caller]
fn sleeps(server: &RedisServer, name: &str) {
    eventually(SOON, "a waiter listens", || listeners(server, name) == 1);
    let asked = server.calls_of("evalsha");
    eventually(SOON, "the waiter has asked again", || server.calls_of("evalsha") > asked);
}

const SERVER: &str = "LOCKSON_TEST_TLS_SERVER";
const AUTHORITY: &str = "LOCKSON_TEST_TLS_AUTHORITY";
