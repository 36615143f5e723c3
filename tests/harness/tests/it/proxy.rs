//! The promises of the proxy without faults.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use lockson_harness::proxy::{Fate, Proxy, When};
use lockson_harness::{HelperProcess, RedisServer, eventually};
use redis::Commands;

use crate::wire::{SOON, Wire};

#[test]
fn a_client_sees_no_difference() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    for url in [proxy.url(), format!("{}?protocol=resp3", proxy.url())] {
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_connection().unwrap();
        let long = "x".repeat(3_000_000);
        let () = connection.set("long", &long).unwrap();
        let back: String = connection.get("long").unwrap();
        assert!(back == long);
        let () = connection.hset_multiple("hash", &[("a", 1), ("b", 2)]).unwrap();
        let hash: BTreeMap<String, i32> = connection.hgetall("hash").unwrap();
        assert_eq!(hash["b"], 2);
        let missing: Option<String> = connection.get("missing").unwrap();
        assert_eq!(missing, None);
        let script = redis::Script::new("return {KEYS[1], {1, 2, {ok='fine'}}}");
        let _: redis::Value = script.key("k").invoke(&mut connection).unwrap();
        let wrong: redis::RedisResult<i64> = connection.incr("hash", 1);
        assert!(wrong.unwrap_err().to_string().contains("WRONGTYPE"));
        let (one, two): (i64, i64) = redis::pipe().atomic().incr("n", 1).incr("n", 1).query(&mut connection).unwrap();
        assert_eq!(two, one + 1);
    }
}

#[test]
fn requests_are_recorded_with_their_fate() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let mut first = Wire::open(proxy.address());
    let mut second = Wire::open(proxy.address());
    first.ask(&["set", "key", "a value"], "+OK\r\n");
    second.ask(&["GET", "key"], "$7\r\na value\r\n");
    let mark = proxy.mark();
    first.ask(&["DEL", "key"], ":1\r\n");
    let requests = proxy.requests();
    let commands: Vec<&str> = requests.iter().map(|request| &*request.command).collect();
    assert_eq!(commands, ["SET", "GET", "DEL"]);
    let connections: Vec<usize> = requests.iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 1, 0]);
    assert_eq!(requests[0].text(1), "a value");
    assert!(requests[0].contains("val") && !requests[0].contains("SET"));
    assert!(requests[0].at <= requests[1].at);
    assert_eq!(proxy.fate(&requests[1]), Fate::Answered(b"$7\r\na value\r\n".to_vec()));
    assert_eq!(proxy.fitting(&When::any().on_connection(1)).len(), 1);
    assert_eq!(proxy.fitting(&When::any().containing("value")).len(), 1);
    assert_eq!(proxy.fitting_since(mark, &When::any()).len(), 1);
    assert_eq!(proxy.fitting(&When::any().that(|request| request.arguments.len() == 1)).len(), 2);
}

#[test]
fn a_request_can_be_waited_for() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    thread::scope(|scope| {
        let seen = scope.spawn(|| proxy.wait_for(&When::command("ECHO").nth(2), SOON));
        let mut wire = Wire::open(proxy.address());
        for word in ["one", "two", "three"] {
            wire.ask(&["ECHO", word], &format!("${}\r\n{word}\r\n", word.len()));
        }
        assert_eq!(seen.join().unwrap().text(0), "two");
    });
    let wait = || proxy.wait_for(&When::command("GET"), Duration::from_millis(20));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
}

#[test]
fn subscriptions_pair_with_their_many_confirmations() {
    for hello in [false, true] {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.address());
        let mut wire = Wire::open(proxy.address());
        let push = if hello { '>' } else { '*' };
        if hello {
            wire.stream.set_read_timeout(Some(SOON)).unwrap();
            wire.send(&["HELLO", "3"]);
            proxy.wait_fate(&proxy.wait_for(&When::command("HELLO"), SOON), SOON);
            let Fate::Answered(reply) = proxy.fate(&proxy.requests()[0]) else { panic!() };
            wire.expect(&String::from_utf8(reply).unwrap());
        }
        let confirmed = |verb: &str, channel: &str, count| {
            let length = verb.len();
            format!("{push}3\r\n${length}\r\n{verb}\r\n$1\r\n{channel}\r\n:{count}\r\n")
        };
        wire.send(&["SUBSCRIBE", "a", "b"]);
        let both = confirmed("subscribe", "a", 1) + &confirmed("subscribe", "b", 2);
        wire.expect(&both);
        wire.ask(&["PSUBSCRIBE", "c"], &confirmed("psubscribe", "c", 3));
        server.run(&["PUBLISH", "a", "hello"]);
        wire.expect(&format!("{push}3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n"));
        let pong = if hello { "+PONG\r\n" } else { "*2\r\n$4\r\npong\r\n$0\r\n\r\n" };
        wire.ask(&["PING"], pong);
        wire.send(&["UNSUBSCRIBE"]);
        wire.expect(&format!("{push}3\r\n$11\r\nunsubscribe\r\n$1\r\n"));
        wire.expect(if wire_next_is_a(&proxy) { "a" } else { "b" });
        let last = proxy.wait_for(&When::command("UNSUBSCRIBE"), SOON);
        let Fate::Answered(reply) = proxy.wait_fate(&last, SOON) else { panic!() };
        assert_eq!(reply.iter().filter(|byte| **byte == push as u8).count(), 2);
        wire.expect(&String::from_utf8_lossy(&reply[reply.len() / 2 - 6..]));
        wire.ask(&["PUNSUBSCRIBE", "c"], &confirmed("punsubscribe", "c", 0));
        wire.ask(&["ECHO", "end"], "$3\r\nend\r\n");
        let fates: Vec<Fate> = proxy.requests().iter().map(|request| proxy.fate(request)).collect();
        assert!(fates.iter().all(|fate| matches!(fate, Fate::Answered(_))), "{fates:?}");
        let answer = |command| {
            let request = proxy.wait_for(&When::command(command), SOON);
            proxy.fate(&request)
        };
        assert_eq!(answer("SUBSCRIBE"), Fate::Answered(both.into_bytes()));
        assert_eq!(answer("PING"), Fate::Answered(pong.into()));
        let messages = proxy.fitting(&When::message());
        assert_eq!(messages.len(), 1);
        assert_eq!((&*messages[0].command, messages[0].text(1)), ("MESSAGE", "hello".to_owned()));
        assert_eq!(proxy.fate(&messages[0]), Fate::Forwarded);
    }
}

#[test]
fn an_array_that_looks_like_a_message_is_a_reply() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let mut wire = Wire::open(proxy.address());
    let reply = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n";
    wire.ask(&["EVAL", "return {'message','a','b'}", "0"], reply);
    let request = proxy.requests().remove(0);
    assert_eq!(proxy.fate(&request), Fate::Answered(reply.into()));
    assert!(proxy.fitting(&When::message()).is_empty());
}

#[test]
fn lines_and_foreign_bytes_pass() {
    use std::io::Write;
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let mut wire = Wire::open(proxy.address());
    wire.stream.write_all(b"PING\r\n\r\nECHO hi\r\n").unwrap();
    wire.expect("+PONG\r\n$2\r\nhi\r\n");
    assert_eq!(proxy.count(&When::command("PING")), 1);
    // Not a Redis server: all bytes pass unchanged.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.retarget(other.local_addr().unwrap());
    let mut wire = Wire::open(proxy.address());
    wire.stream.write_all(b"\x16\x03\x01 hello").unwrap();
    let (mut stream, _) = other.accept().unwrap();
    let mut bytes = [0; 9];
    std::io::Read::read_exact(&mut stream, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\x16\x03\x01 hello");
    stream.write_all(b"\x15bye").unwrap();
    drop(stream);
    assert_eq!(wire.rest(), b"\x15bye");
}

#[test]
fn either_end_closes_the_other() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let mut first = Wire::open(proxy.address());
    first.ask(&["PING"], "+PONG\r\n");
    let infos = proxy.connections();
    let address = infos[0].server_side_address.unwrap().to_string();
    let is_alone = |clients: &[BTreeMap<String, String>]| clients.len() == 1 && clients[0]["addr"] == address;
    eventually(SOON, "only this client is connected", || is_alone(&server.clients()));
    drop(first);
    proxy.wait_client_closed(0, SOON);
    eventually(SOON, "the server's side is closed", || server.clients().is_empty());
    eventually(SOON, "the connection is over", || proxy.connections().is_empty());
    let mut second = Wire::open(proxy.address());
    let id = second.id();
    server.run(&["CLIENT", "KILL", "ID", &id]);
    second.expect_end();
    assert_eq!(proxy.connections_made(), 2);
}

#[test]
fn a_request_right_before_the_end_is_executed() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    for number in 0..50 {
        let mut wire = Wire::open(proxy.address());
        wire.send(&["INCR", "n"]);
        drop(wire);
        let request = proxy.wait_for(&When::command("INCR").nth(number + 1), SOON);
        let reply = format!(":{}\r\n", number + 1).into_bytes();
        assert_eq!(proxy.wait_fate(&request, SOON), Fate::Answered(reply));
    }
}

#[test]
fn a_dropped_proxy_leaves_nothing_open() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let mut wires: Vec<Wire> = (0..5).map(|_| Wire::open(proxy.address())).collect();
    wires.iter_mut().for_each(|wire| wire.ask(&["PING"], "+PONG\r\n"));
    let rule = proxy.rule(When::any(), lockson_harness::proxy::Then::HoldRequest);
    wires[0].send(&["PING"]);
    rule.wait_hit(SOON);
    let address = proxy.address();
    drop(proxy);
    assert!(std::net::TcpStream::connect(address).is_err());
    wires[1..].iter_mut().for_each(Wire::expect_end);
    eventually(SOON, "the server's side is closed", || server.clients().is_empty());
}

#[test]
fn a_dropped_proxy_leaves_no_thread_and_no_descriptor() {
    let server = RedisServer::start();
    let address = server.address();
    let mut helper = HelperProcess::spawn(env!("CARGO_BIN_EXE_harness-child"), &["listen"]);
    // In a separate process, because other tests of this process open and close descriptors meanwhile.
    let before = helper.ask(&format!("proxies 1 {address}"), SOON);
    let after = helper.ask(&format!("proxies 20 {address}"), SOON);
    assert_eq!(before, after);
}

/// The channel that the server names first when leaving both.
fn wire_next_is_a(proxy: &Proxy) -> bool {
    let request = proxy.wait_for(&When::command("UNSUBSCRIBE"), SOON);
    let Fate::Answered(reply) = proxy.wait_fate(&request, SOON) else {
        panic!("an unsubscribe was not answered");
    };
    let text = String::from_utf8(reply).unwrap();
    text.find("\r\na\r\n").unwrap() < text.find("\r\nb\r\n").unwrap()
}
