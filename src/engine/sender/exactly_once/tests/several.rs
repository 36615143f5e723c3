//! Tests of several calls at once with scripted replies.
#![cfg(test)]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{SOON, TIMEOUT, eventually};
use crate::conn::scripted::{Reaction, Scripted, Seen};
use crate::conn::{Server, Standalone};
use crate::engine::sender::exactly_once::{Answer, Outgoing, send_all};
use crate::error::ErrorKind;
use crate::name::LockName;
use crate::script::{Call, Script};
use crate::state::exchange::{Bounds, Failed, InDoubt};
use crate::time::Instant;
use crate::transport::{Fitness, PubSub};
use std::time::Duration;

static SCRIPT: Script = Script::new("return 1");

/// The time limit of one server, and the time that a busy machine may take besides.
const LIMIT: Duration = Duration::from_millis(100);
const MARGIN: Duration = Duration::from_secs(1);

fn served(script: impl Fn(&Seen) -> Reaction + Send + Sync + 'static) -> (Scripted, Standalone) {
    let scripted = Scripted::start(script);
    let server = Standalone(Arc::new(Server::for_test(&scripted.url())));
    (scripted, server)
}

fn is(seen: &Seen, word: &str) -> bool {
    seen.words.iter().any(|other| other == word)
}

/// The calls of a script, one for each key. A reply counts if it is an integer.
fn calls(keys: &[&str]) -> Vec<Call<bool>> {
    let call = |key: &&str| {
        let name = LockName::new(key).unwrap();
        SCRIPT.call(&name, &[name.key()], |reply| matches!(reply, redis::Value::Int(_)).then_some(true))
    };
    keys.iter().map(call).collect()
}

fn within(limit: Duration) -> Bounds {
    Bounds::within(Instant::now(), limit, limit)
}

fn send<'a>(topology: &'a Standalone, call: &'a Call<bool>, bounds: Bounds) -> Outgoing<'a, bool> {
    Outgoing::new(topology, InDoubt::default(), call, bounds)
}

/// Sends all calls to one server.
fn send_to(topology: &Standalone, calls: &[Call<bool>], bounds: Bounds) -> Vec<Result<Answer<bool>, Failed>> {
    send_all(calls.iter().map(|call| send(topology, call, bounds)).collect(), None)
}

/// The first word of each request, and its last.
fn asked(server: &Scripted) -> Vec<String> {
    let short = |seen: &Seen| match seen.words[0].as_str() {
        "CLIENT" => format!("fence {}", seen.words[3]),
        word => format!("{word} {}", seen.words.last().unwrap()),
    };
    server.seen().iter().map(short).collect()
}

const ONE: Reaction = Reaction::Reply(":1\r\n");

#[test]
fn calls_without_faults_take_one_round_trip() {
    let (one, first) = served(|_| ONE);
    let (two, second) = served(|_| ONE);
    let calls = calls(&["a", "b", "c"]);
    let begun = Instant::now();
    let topologies = [&first, &second, &first];
    let sends = topologies.into_iter().zip(&calls).map(|(topology, call)| send(topology, call, within(SOON)));
    let answers = send_all(sends.collect(), None);
    for answer in answers {
        let answer = answer.unwrap();
        assert!(answer.value && !answer.repeated && !answer.unfenceable);
        assert!(answer.clear_since <= answer.sent && begun <= answer.sent);
    }
    assert_eq!(asked(&one), ["EVALSHA a", "EVALSHA c"]);
    assert_eq!(asked(&two), ["EVALSHA b"]);
    assert!(send_all::<bool>(vec![], None).is_empty());
}

fn several_round_trips(key: &str) -> Call<bool> {
    let name = LockName::new(key).unwrap();
    Call::with_round_trips(&name.clone(), move |send, _| {
        SCRIPT.call(&name, &[name.key()], |_| Some(true)).run(send, PubSub::Plain)
    })
}

#[test]
fn calls_of_several_round_trips_wait_for_no_other_server() {
    let (_mute, sick) = served(|_| Reaction::Mute);
    let (well, healthy) = served(|_| ONE);
    let (begun, single, several) = (Instant::now(), calls(&["a"]), several_round_trips("b"));
    let sends = vec![send(&sick, &single[0], within(TIMEOUT)), send(&healthy, &several, within(TIMEOUT))];
    let answers = send_all(sends, None);
    assert!(answers[0].is_err() && answers[1].as_ref().unwrap().sent <= begun.after(TIMEOUT / 4));
    assert_eq!(asked(&well), ["EVALSHA b"]);
}

#[test]
fn calls_of_one_request_go_together_beside_round_trips() {
    let (server, topology) = served(|_| ONE);
    let (single, several) = (calls(&["a", "c"]), several_round_trips("b"));
    let sends = [&single[0], &several, &single[1]].map(|call| send(&topology, call, within(SOON)));
    assert!(send_all(sends.into(), None).into_iter().all(|answer| answer.is_ok()));
    let asked = asked(&server).join(", ");
    assert!(asked.contains("EVALSHA a, EVALSHA c"), "{asked}");
}

#[test]
fn a_script_that_is_missing_is_sent_with_its_source() {
    let (server, topology) = served(|seen| match seen.words[0].as_str() {
        "EVALSHA" if is(seen, "b") || is(seen, "c") => Reaction::Reply("-NOSCRIPT No matching script.\r\n"),
        _ => ONE,
    });
    let answers = send_to(&topology, &calls(&["a", "b", "c", "d"]), within(SOON));
    assert!(answers.into_iter().all(|answer| !answer.unwrap().repeated));
    let wanted = ["EVALSHA a", "EVALSHA b", "EVALSHA c", "EVALSHA d", "EVAL b", "EVAL c"];
    assert_eq!(asked(&server), wanted);
    assert!(server.seen().iter().all(|seen| seen.connection == 1));
}

#[test]
fn copies_on_one_connection_are_fenced_once_and_repeated() {
    for fault in [Reaction::Mute, Reaction::HangUp] {
        let (server, topology) = served(move |seen| match seen.words[0].as_str() {
            "EVALSHA" if is(seen, "b") && seen.connection == 1 => fault.clone(),
            _ => ONE,
        });
        let answers = send_to(&topology, &calls(&["a", "b", "c"]), within(TIMEOUT));
        let repeated: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().repeated).collect();
        assert_eq!(repeated, [false, true, true]);
        assert_eq!(asked(&server), ["EVALSHA a", "EVALSHA b", "fence 1", "EVALSHA b", "EVALSHA c"]);
    }
}

#[test]
fn copies_that_cannot_be_fenced_are_marked() {
    let (_server, topology) = served(|seen| match seen.words[0].as_str() {
        "EVALSHA" if seen.connection == 1 => Reaction::HangUp,
        "CLIENT" => Reaction::Reply("-NOPERM no right to client|kill\r\n"),
        _ => ONE,
    });
    for answer in send_to(&topology, &calls(&["a", "b"]), within(SOON)) {
        let answer = answer.unwrap();
        assert!(answer.repeated && answer.unfenceable);
    }
}

#[test]
fn a_copy_in_doubt_is_fenced_once_before_several_calls() {
    let (server, topology) = served(|seen| if is(seen, "a") { Reaction::Mute } else { ONE });
    let calls = calls(&["a", "b", "c"]);
    let bounds = Bounds { repeat: false, ..within(LIMIT) };
    let in_doubt = send_to(&topology, &calls[..1], bounds).pop().unwrap().unwrap_err().in_doubt.unwrap();
    let send = |call| Outgoing::new(&topology, in_doubt.clone(), call, within(SOON));
    for answer in send_all(calls[1..].iter().map(send).collect(), None) {
        let answer = answer.unwrap();
        assert!(!answer.repeated && !answer.unfenceable && answer.clear_since <= answer.sent);
    }
    assert_eq!(asked(&server), ["EVALSHA a", "fence 1", "EVALSHA b", "EVALSHA c"]);
}

#[test]
fn nodes_that_do_not_answer_cost_one_time_limit() {
    let (_quick, quick) = served(|_| ONE);
    let (_mute, mute) = served(|seen| if is(seen, "open") { ONE } else { Reaction::Mute });
    let (_gone, gone) = served(|seen| if is(seen, "open") { ONE } else { Reaction::HangUp });
    // Accepts no connection: the introduction has no reply.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = Standalone(Arc::new(Server::for_test(&format!("redis://{}", listener.local_addr().unwrap()))));
    // A port without a listener.
    let closed = Standalone(Arc::new(Server::for_test("redis://127.0.0.1:1")));
    let open = &calls(&["open"])[0];
    let open = [&quick, &mute, &gone].map(|topology| send(topology, open, within(SOON)));
    assert!(send_all(open.into(), None).into_iter().all(|answer| answer.is_ok()));
    let call = &calls(&["a"])[0];
    let begun = Instant::now();
    let bounds = Bounds { repeat: false, retry_until: begun, ..within(LIMIT) };
    let sends = [&mute, &silent, &quick, &gone, &closed].map(|topology| send(topology, call, bounds));
    let mut answers = send_all(sends.into(), None);
    let took = begun.until(Instant::now());
    assert!(took >= LIMIT && took < LIMIT + MARGIN, "{took:?}");
    assert!(answers.remove(2).unwrap().value);
    let failed: Vec<_> = answers.into_iter().map(Result::unwrap_err).collect();
    let kinds: Vec<_> = failed.iter().map(|failed| failed.error.kind()).collect();
    assert_eq!(kinds, [ErrorKind::Unknown, ErrorKind::Connection, ErrorKind::Unknown, ErrorKind::Connection]);
    let fenceable = |failed: &Failed| failed.in_doubt.as_ref().map(|in_doubt| in_doubt.fenceable.len());
    // No time is left to fence the copy at the mute server; the connection that was closed is fenced.
    let in_doubt: Vec<_> = failed.iter().map(fenceable).collect();
    assert!(matches!(in_doubt[..], [Some(1), None, Some(0 | 1), None]), "{in_doubt:?}");
}

#[test]
fn a_transient_refusal_is_repeated_beside_the_others() {
    let (server, topology) = served(|seen| match seen.words[0].as_str() {
        "EVALSHA" if is(seen, "b") => Reaction::Reply("-LOADING Redis is loading the dataset in memory\r\n"),
        _ => ONE,
    });
    let begun = Instant::now();
    let mut answers = send_to(&topology, &calls(&["a", "b", "c"]), within(TIMEOUT));
    assert_eq!(answers.remove(1).unwrap_err().error.kind(), ErrorKind::Refused);
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
    assert!(begun.until(Instant::now()) < TIMEOUT + MARGIN);
    eventually("the others are not repeated", || {
        asked(&server).iter().filter(|word| *word == "EVALSHA a").count() == 1
    });
    assert!(asked(&server).iter().filter(|word| *word == "EVALSHA b").count() > 1);
}

#[test]
fn a_dead_node_is_asked_once_and_not_waited_for() {
    let closed: Vec<_> = (0..3).map(|_| Standalone(Arc::new(Server::for_test("redis://127.0.0.1:1")))).collect();
    let call = &calls(&["a"])[0];
    let begun = Instant::now();
    // The first requests find out, the others are not sent.
    for _ in 0..2 {
        let fitness = Fitness { is_up: true, ..Fitness::default() };
        let send = |topology| send(topology, call, Bounds { fitness, ..Bounds::once(Instant::now(), SOON) });
        for answer in send_all(closed.iter().map(send).collect(), None) {
            assert!(answer.unwrap_err().in_doubt.is_none());
        }
    }
    assert!(begun.until(Instant::now()) < MARGIN, "a rest helps nobody");
}

/// A mute server takes the whole bound; a call that is to be repeated after a rest must not wait for it.
#[test]
fn a_rest_does_not_wait_for_a_mute_server() {
    let (_mute, first) = served(|_| Reaction::Mute);
    let is_loaded = AtomicBool::new(false);
    let (_loading, second) = served(move |_| match is_loaded.swap(true, Ordering::Relaxed) {
        false => Reaction::Reply("-LOADING Redis is loading the dataset in memory\r\n"),
        true => ONE,
    });
    let calls = calls(&["a", "b"]);
    let sends = [&first, &second].into_iter().zip(&calls).map(|(topology, call)| send(topology, call, within(TIMEOUT)));
    let answers = send_all(sends.collect(), None);
    assert!(answers[0].is_err());
    assert!(answers[1].as_ref().is_ok_and(|answer| answer.value), "{:?}", answers[1]);
}
