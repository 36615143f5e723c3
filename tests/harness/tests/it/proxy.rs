//! The promises of the proxy without faults.

use std::collections::BTreeMap;

use lockson_harness::proxy::{Fate, Proxy, When};
use lockson_harness::{HelperProcess, RedisServer, eventually};

use crate::wire::{SOON, Wire};

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
