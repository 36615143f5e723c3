//! The promises of the proxy about originals and copies that arrive late.

use lockson_harness::RedisServer;
use lockson_harness::proxy::{Fate, Proxy, Request, RuleHandle, Then, When};

use crate::wire::{SOON, Wire};

#[test]
fn a_fenced_original_is_seen_to_fail() {
    let (server, proxy) = rig();
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
fn a_held_request_fails_with_its_server() {
    let (server, proxy) = rig();
    let (rule, request) = hold_and_leave(&proxy);
    server.restart();
    rule.release();
    assert!(matches!(proxy.wait_fate(&request, SOON), Fate::Failed(_)));
    assert!(server.keys().is_empty());
}

fn rig() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    (server, proxy)
}

/// A client whose request is held, and that leaves without waiting.
fn hold_and_leave(proxy: &Proxy) -> (RuleHandle, Request) {
    let rule = proxy.rule(When::command("RPUSH"), Then::HoldRequest);
    let mut wire = Wire::open(proxy.address());
    wire.send(&["RPUSH", "list", "x"]);
    let request = rule.wait_hit(SOON);
    drop(wire);
    proxy.wait_client_closed(request.connection, SOON);
    (rule, request)
}
