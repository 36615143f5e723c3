//! The promises of the proxy: what a fault lets through, to the byte.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;

use lockson_harness::eventually;
use lockson_harness::proxy::{Direction, Fate, Proxy, Scope, Then, When};

use crate::wire::{PONG, SOON, Wire, frame, rig};

#[test]
fn a_request_right_before_the_end_is_executed() {
    let (_server, proxy, _) = rig();
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
fn a_request_is_cut_after_every_byte() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(server.local_addr().unwrap());
    let request = frame(&["PING"]);
    for sent in 0..=request.len() + 1 {
        let rule = proxy.rule(When::command("PING"), Then::CutRequestAfter(sent));
        let mut wire = Wire::open(proxy.address());
        let (mut arriving, _) = server.accept().unwrap();
        wire.send(&["PING"]);
        let mut arrived = Vec::new();
        arriving.read_to_end(&mut arrived).unwrap();
        assert_eq!(arrived, request[..sent.min(request.len())]);
        wire.expect_end();
        let fate = proxy.wait_fate(&rule.wait_hit(SOON), SOON);
        if sent < request.len() {
            assert_eq!(fate, Fate::Dropped);
        } else {
            assert!(matches!(fate, Fate::Failed(_)), "{fate:?}");
        }
    }
}

#[test]
fn a_reply_is_cut_after_every_byte() {
    let (server, proxy, _) = rig();
    let script = "return {redis.call('RPUSH', 'list', 'x') * 0, 'a\\r\\nb', {1, false, {ok='fine'}}}";
    let words = ["EVAL", script, "0"];
    let whole = "*3\r\n:0\r\n$4\r\na\r\nb\r\n*3\r\n:1\r\n$-1\r\n+fine\r\n";
    for seen in 0..=whole.len() + 1 {
        let rule = proxy.rule(When::script(), Then::CutReplyAfter(seen));
        let mut wire = Wire::open(proxy.address());
        wire.send(&words);
        let got = wire.rest();
        assert_eq!(String::from_utf8_lossy(&got), whole[..seen.min(whole.len())]);
        let fate = proxy.wait_fate(&rule.wait_hit(SOON), SOON);
        assert_eq!(fate, Fate::Answered(whole.into()));
        let pushed: usize = server.query(&["LLEN", "list"]);
        assert_eq!(pushed, seen + 1);
    }
    assert!(proxy.connections().iter().all(|connection| connection.index == 0));
}

#[test]
fn a_fenced_original_is_seen_to_fail() {
    let (server, proxy, _) = rig();
    for _ in 0..30 {
        let mut wire = Wire::open(proxy.address());
        let id = wire.id();
        let rule = proxy.rule(When::command("RPUSH"), Then::HoldRequest);
        wire.send(&["RPUSH", "list", "x"]);
        let request = rule.wait_hit(SOON);
        drop(wire);
        proxy.wait_client_closed(request.connection, SOON);
        let killed: i64 = server.query(&["CLIENT", "KILL", "ID", &id]);
        assert_eq!(killed, 1);
        rule.release(); // at once: the proxy may not have heard of the end yet
        let fate = proxy.wait_fate(&request, SOON);
        assert!(matches!(fate, Fate::Failed(_)), "{fate:?}");
        assert!(server.keys().is_empty());
    }
}

#[test]
fn a_cut_can_be_a_reset() {
    let (_server, proxy, mut wire) = rig();
    proxy.cut_by_reset(true);
    wire.ask(&["PING"], PONG);
    proxy.cut(Scope::All);
    let error = wire.stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    proxy.rule(When::command("PING"), Then::CutReplyAfter(0));
    let mut wire = Wire::open(proxy.address());
    wire.send(&["PING"]);
    let error = wire.stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_mute_connection_hides_its_ends() {
    let (server, proxy, mut wire) = rig();
    let mut other = Wire::open(proxy.address());
    wire.ask(&["PING"], PONG);
    other.ask(&["PING"], PONG);
    proxy.mute(Scope::All, Direction::Both);
    drop(wire);
    proxy.wait_client_closed(0, SOON);
    // The server has not heard of the end.
    eventually(SOON, "both connections alone are there", || server.clients().len() == 2);
    server.kill();
    other.expect_silence(); // nor has the client
    proxy.unmute();
    other.expect_end();
}

#[test]
fn messages_are_lost_held_and_cut_like_replies() {
    let (server, proxy, mut wire) = rig();
    let message = |text: &str| format!("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n{text}\r\n");
    wire.ask(&["SUBSCRIBE", "a"], "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    let lost = proxy.rule(When::message().containing("1"), Then::SwallowReply);
    let held = proxy.rule(When::message().containing("3"), Then::HoldReply);
    for text in ["1", "2", "3", "4"] {
        server.run(&["PUBLISH", "a", text]);
    }
    wire.expect(&message("2"));
    assert_eq!(proxy.fate(&lost.wait_hit(SOON)), Fate::Dropped);
    let third = held.wait_hit(SOON);
    wire.expect_silence();
    assert_eq!(proxy.fate(&third), Fate::Waiting);
    held.release();
    wire.expect(&(message("3") + &message("4")));
    assert_eq!(proxy.fate(&third), Fate::Forwarded);
    proxy.rule(When::message(), Then::CutReplyAfter(5));
    server.run(&["PUBLISH", "a", "5"]);
    assert_eq!(wire.rest(), &message("5").as_bytes()[..5]);
}
