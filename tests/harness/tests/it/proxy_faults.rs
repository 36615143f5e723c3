//! The promises of the proxy about faults of single requests and replies.

use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

use lockson_harness::eventually;
use lockson_harness::proxy::{Fate, Proxy, Then, When};

use crate::wire::{PONG, SOON, Wire, frame, rig};

#[test]
fn a_request_is_cut_after_every_byte() {
    let (server, proxy, _) = rig();
    let words = ["RPUSH", "list", "x"];
    let length = frame(&words).len();
    for sent in 0..=length + 1 {
        let rule = proxy.rule(When::command("RPUSH"), Then::CutRequestAfter(sent));
        let mut wire = Wire::open(proxy.address());
        wire.send(&words);
        wire.expect_end();
        let request = rule.wait_hit(SOON);
        eventually(SOON, "the server's side is closed", || server.clients().is_empty());
        let fate = proxy.wait_fate(&request, SOON);
        if sent < length {
            assert_eq!(fate, Fate::Dropped);
        } else {
            assert!(matches!(fate, Fate::Failed(_)), "{fate:?}");
        }
        let pushed: usize = server.query(&["LLEN", "list"]);
        assert_eq!(pushed, (sent + 1).saturating_sub(length), "after {sent} of {length}");
    }
}

#[test]
fn the_bytes_of_a_cut_request_arrive_to_the_last() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(server.local_addr().unwrap());
    let request = frame(&["PING"]);
    for sent in 0..=request.len() {
        proxy.rule(When::command("PING"), Then::CutRequestAfter(sent));
        let mut wire = Wire::open(proxy.address());
        let (mut arriving, _) = server.accept().unwrap();
        wire.send(&["PING"]);
        let mut arrived = Vec::new();
        arriving.read_to_end(&mut arrived).unwrap();
        assert_eq!(arrived, request[..sent]);
        wire.expect_end();
    }
}

#[test]
fn a_release_or_a_healing_before_the_reply_counts_too() {
    for healed in [false, true] {
        let (server, proxy, mut wire) = rig();
        wire.ask(&["PING"], PONG);
        server.pause();
        let rule = proxy.rule(When::command("ECHO"), Then::HoldReply);
        wire.send(&["ECHO", "x"]);
        rule.wait_hit(SOON);
        if healed {
            proxy.heal()
        } else {
            rule.release()
        }
        server.resume();
        wire.expect("$1\r\nx\r\n");
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

#[test]
fn a_rule_acts_on_the_requests_it_was_made_for() {
    let (_server, proxy, mut wire) = rig();
    let mut other = Wire::open(proxy.address());
    let instead = |text: &str| Then::AnswerInstead(format!("+{text}\r\n").into());
    proxy.rule(When::command("ECHO").nth(2).times(2), instead("nth"));
    for reply in ["$1\r\nx\r\n", "+nth\r\n", "+nth\r\n", "$1\r\nx\r\n"] {
        wire.ask(&["ECHO", "x"], reply);
    }
    other.ask(&["PING"], PONG);
    proxy.rule(When::command("PING").on_connection(1), instead("other"));
    wire.ask(&["PING"], PONG);
    other.ask(&["PING"], "+other\r\n");
    proxy.rule(When::any().containing("bc").always(), instead("part"));
    wire.ask(&["ECHO", "ab"], "$2\r\nab\r\n");
    wire.ask(&["ECHO", "abcd"], "+part\r\n");
    let long = When::any().that(|request| request.text(0).len() > 5).always();
    let long = proxy.rule(long, instead("long"));
    wire.ask(&["ECHO", "123456"], "+long\r\n");
    wire.ask(&["ECHO", "abcdef"], "+part\r\n"); // the older rule acts
    long.remove();
    wire.ask(&["ECHO", "123456"], "$6\r\n123456\r\n");
    assert_eq!(long.hits(), 1);
    proxy.heal();
    wire.ask(&["ECHO", "abcd"], "$4\r\nabcd\r\n");
}

#[test]
fn healing_lets_go_all_that_is_held_delayed_or_slow() {
    let (_server, proxy, mut first) = rig();
    let mut second = Wire::open(proxy.address());
    let mut third = Wire::open(proxy.address());
    let hour = Duration::from_secs(3600);
    let rules = [
        proxy.rule(When::command("ECHO"), Then::HoldRequest),
        proxy.rule(When::command("PING"), Then::DelayReply(hour)),
        proxy.rule(When::command("GET"), Then::SlowReply(hour)),
    ];
    first.send(&["ECHO", "x"]);
    second.send(&["PING"]);
    third.send(&["GET", "key"]);
    rules.iter().for_each(|rule| drop(rule.wait_hit(SOON)));
    third.expect("$");
    proxy.heal();
    first.expect("$1\r\nx\r\n");
    second.expect(PONG);
    third.expect("-1\r\n");
}
