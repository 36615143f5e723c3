//! The promises of the proxy about faults of whole connections.

use std::io::{ErrorKind, Read};

use lockson_harness::eventually;
use lockson_harness::proxy::{Direction, Fate, NewConnections, Scope, Then, When};

use crate::wire::{OK, PONG, SOON, Wire, rig};

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
fn a_cut_meets_only_its_scope() {
    let (_server, proxy, mut first) = rig();
    let mut second = Wire::open(proxy.address());
    first.ask(&["PING"], PONG);
    second.ask(&["PING"], PONG);
    proxy.cut(Scope::Connection(1));
    second.expect_end();
    first.ask(&["PING"], PONG);
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
fn one_direction_alone_is_mute() {
    let (server, proxy, mut wire) = rig();
    proxy.mute(Scope::All, Direction::Replies);
    wire.send(&["SET", "key", "1"]);
    let request = proxy.wait_for(&When::command("SET"), SOON);
    assert_eq!(proxy.wait_fate(&request, SOON), Fate::Answered(OK.into()));
    wire.expect_silence();
    assert_eq!(server.keys(), ["key"]);
    proxy.unmute();
    wire.expect(OK);
    let held = proxy.rule(When::command("GET"), Then::HoldReply);
    wire.send(&["GET", "key"]);
    proxy.wait_fate(&held.wait_hit(SOON), SOON);
    proxy.mute(Scope::All, Direction::Requests);
    held.release();
    wire.expect("$1\r\n1\r\n"); // replies still come
    wire.send(&["DEL", "key"]);
    wire.expect_silence();
    assert_eq!(server.keys(), ["key"]);
}

#[test]
fn a_rule_makes_its_connection_mute() {
    let (server, proxy, mut wire) = rig();
    let mut other = Wire::open(proxy.address());
    let rule = proxy.rule(When::command("SET"), Then::Mute(Direction::Replies));
    wire.send(&["SET", "key", "1"]);
    let request = rule.wait_hit(SOON);
    assert_eq!(proxy.wait_fate(&request, SOON), Fate::Answered(OK.into()));
    wire.send(&["PING"]);
    wire.expect_silence();
    other.ask(&["PING"], PONG);
    let rule = proxy.rule(When::command("DEL"), Then::Mute(Direction::Both));
    other.send(&["DEL", "key"]);
    assert_eq!(proxy.fate(&rule.wait_hit(SOON)), Fate::Waiting);
    other.expect_silence();
    assert_eq!(server.keys(), ["key"]);
    proxy.heal();
    wire.expect(OK);
    wire.expect(PONG);
    other.expect(":1\r\n");
}

#[test]
fn new_connections_are_ignored_until_healed() {
    let (_server, proxy, mut old) = rig();
    old.ask(&["PING"], PONG);
    proxy.new_connections(NewConnections::Ignore);
    let mut wire = Wire::open(proxy.address());
    wire.send(&["PING"]);
    wire.expect_silence();
    old.ask(&["PING"], PONG);
    proxy.heal();
    wire.expect(PONG);
}
