//! Tests of exactly-once requests with scripted replies: repetition, fencing, cleanup.
#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::conn::scripted::{Reaction, Scripted, Seen};
use crate::conn::{PubSubChoice, Server, Standalone};
use crate::error::{ErrorKind, Loss};

const TIMEOUT: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_secs(10);

const GRANTED: &str = "*1\r\n:1\r\n";
const BUSY: &str = "*2\r\n:0\r\n:20\r\n";
const DONE: &str = ":1\r\n";
const RELEASED: &str = "*2\r\n:1\r\n:0\r\n";
const FOUND_NOTHING: &str = "*1\r\n:0\r\n";

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Acquire,
    Reenter,
    Part,
    Last,
    Renew,
    Fence,
    Other,
}

fn what(seen: &Seen) -> What {
    let word = |index: usize| seen.words.get(index).map_or("", String::as_str);
    if word(0) == "CLIENT" && word(1) == "KILL" {
        return What::Fence;
    }
    // Told apart by the number of arguments after the key: EVALSHA hash 1 key ...
    match (word(0), seen.words.len()) {
        ("EVALSHA", 6) if word(5).parse::<u64>().is_ok() => What::Renew,
        ("EVALSHA", 6) => What::Acquire,
        ("EVALSHA", 7) => What::Reenter,
        ("EVALSHA", 10) if word(5) == "0" => What::Last,
        ("EVALSHA", 10) => What::Part,
        _ => What::Other,
    }
}

/// A server with this script of replies, counted from the first request of the kind, and a client.
fn scene(answer: impl Fn(What, usize) -> Reaction + Send + Sync + 'static) -> (Arc<Scripted>, Client) {
    scene_within(TIMEOUT * 2, answer)
}

fn scene_within(
    limit: Duration,
    answer: impl Fn(What, usize) -> Reaction + Send + Sync + 'static,
) -> (Arc<Scripted>, Client) {
    let counts: [AtomicUsize; 7] = Default::default();
    let server = Scripted::start(move |seen| {
        let what = what(seen);
        let number = counts[what as usize].fetch_add(1, Ordering::Relaxed);
        answer(what, number)
    });
    let builder = Client::builder(&server.url()).command_timeout(limit).drop_timeout(limit);
    (Arc::new(server), builder.connect_lazily().unwrap())
}

/// The usual reply of a server that runs the request.
fn usual(what: What) -> Reaction {
    Reaction::Reply(match what {
        What::Acquire => GRANTED,
        What::Part | What::Last => RELEASED,
        What::Renew => "*1\r\n:1\r\n",
        What::Reenter | What::Fence | What::Other => DONE,
    })
}

/// A server that never answers `extend`, and no fence while the flag is set.
fn scene_without_extensions() -> (Arc<Scripted>, Client, Arc<AtomicBool>) {
    let deaf = Arc::new(AtomicBool::new(true));
    let is_deaf = Arc::clone(&deaf);
    let (server, client) = scene(move |what, _| match what {
        What::Renew => Reaction::Mute,
        What::Fence if is_deaf.load(Ordering::Relaxed) => Reaction::Mute,
        _ => usual(what),
    });
    (server, client, deaf)
}

fn asked(server: &Scripted) -> Vec<What> {
    server.seen().iter().map(what).collect()
}

#[track_caller]
fn eventually(text: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < 3 * SOON, "{text}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Checks that the first matching request is fenced, by the id of its connection, before the second is sent.
#[track_caller]
fn assert_fenced(server: &Scripted, of: What) {
    let seen = server.seen();
    let mut fitting = seen.iter().enumerate().filter(|(_, seen)| what(seen) == of).map(|(at, _)| at);
    let (first, second) = (fitting.next().expect("sent"), fitting.next().expect("sent again"));
    let id = seen[first].connection.to_string();
    let fence = seen.iter().position(|seen| what(seen) == What::Fence && seen.words[3] == id);
    assert!(fence.is_some_and(|fence| first < fence && fence < second), "{:?}", asked(server));
    let fence = &seen[fence.unwrap()];
    assert_eq!(fence.words[4], "ADDR", "numbers begin anew with a restart");
    assert_ne!(fence.connection, seen[first].connection);
}

#[test]
fn a_mute_answer_is_fenced_and_repeated_in_time() {
    let check = |of: What, fault: Reaction| {
        // A busy machine answers within a part of this time.
        let (server, client) =
            scene_within(
                TIMEOUT * 6,
                move |what, number| {
                    if what == of && number == 0 { fault.clone() } else { usual(what) }
                },
            );
        let lock = client.get_lock("scene");
        let outer = lock.try_lock().unwrap().expect("free");
        let inner = lock.try_lock_for(SOON).unwrap().expect("ours");
        outer.extend(Duration::from_secs(60)).unwrap();
        inner.unlock().unwrap();
        outer.unlock().unwrap();
        assert_fenced(&server, of);
    };
    std::thread::scope(|scope| {
        for of in [What::Acquire, What::Reenter, What::Part, What::Last, What::Renew] {
            for fault in [Reaction::Mute, Reaction::HangUp] {
                scope.spawn(move || check(of, fault));
            }
        }
    });
}

#[test]
fn a_fence_refused_briefly_is_repeated_before_the_request() {
    let (server, client) = scene(|what, number| match (what, number) {
        (What::Acquire, 0) => Reaction::Mute,
        (What::Fence, 0) => Reaction::Reply("-LOADING Redis is loading the dataset in memory\r\n"),
        _ => usual(what),
    });
    client.get_lock("scene").try_lock_for(SOON).unwrap().expect("repeated").unlock().unwrap();
    assert_eq!(asked(&server), [What::Acquire, What::Fence, What::Fence, What::Acquire, What::Last]);
}

#[test]
fn a_busy_answer_after_a_mute_one_is_believed() {
    let (server, client) = scene(|what, number| match (what, number) {
        (What::Acquire, 0) => Reaction::Mute,
        (What::Acquire, _) => Reaction::Reply(BUSY),
        _ => usual(what),
    });
    assert!(client.get_lock("scene").try_lock().unwrap().is_none());
    assert_fenced(&server, What::Acquire);
}

#[test]
fn a_repeated_release_that_finds_nothing_was_done() {
    let found_nothing = |what, number| match (what, number) {
        (What::Last, 0) => Reaction::HangUp,
        (What::Last, _) => Reaction::Reply(FOUND_NOTHING),
        _ => usual(what),
    };
    let (_server, client) = scene(found_nothing);
    client.get_lock("scene").lock().unwrap().unlock().unwrap();
    let (_server, client) = scene(|what, _| match what {
        What::Last => Reaction::Reply(FOUND_NOTHING),
        _ => usual(what),
    });
    let error = client.get_lock("scene").lock().unwrap().unlock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(Loss::Gone), "nothing was repeated");
}

#[test]
fn a_last_release_that_got_no_turn_is_made_up_for() {
    let script = |seen: &Seen| match what(seen) {
        What::Renew | What::Fence => Reaction::Mute,
        other => usual(other),
    };
    let server = Scripted::start(script);
    let builder = Client::builder(&server.url()).command_timeout(TIMEOUT).drop_timeout(Duration::from_millis(50));
    let client = builder.connect_lazily().unwrap();
    let guard = client.get_lock("scene").with_lease(Duration::from_secs(20)).lock().unwrap();
    let hold = guard.hold().clone();
    std::thread::scope(|scope| {
        let extension = scope.spawn(move || hold.extend(Duration::from_secs(60)));
        eventually("the extension is under way", || asked(&server).contains(&What::Renew));
        // The drop has no time to wait for its turn.
        drop(guard);
        assert!(extension.join().unwrap().is_err());
    });
    eventually("the lock is given back in the background", || asked(&server).contains(&What::Last));
}

#[test]
fn a_grant_remembers_a_busy_answer_that_a_ghost_may_follow() {
    let (server, client) = scene(|what, number| match (what, number) {
        (What::Acquire, 0) => Reaction::Mute,
        (What::Acquire, 1) => Reaction::Reply(BUSY),
        (What::Fence, _) => Reaction::Reply("-NOPERM no right to client|kill\r\n"),
        _ => usual(what),
    });
    let lock = client.get_lock("scene").with_lease(Duration::from_millis(1_200));
    lock.try_lock_for(SOON).unwrap().expect("free by then").unlock().unwrap();
    let releases = || asked(&server).iter().filter(|what| **what == What::Last).count();
    eventually("the first copy may still come, so the release is repeated", || releases() >= 3);
}

#[test]
fn an_unanswered_request_of_a_kept_hold_is_fenced_later() {
    let (server, client, deaf) = scene_without_extensions();
    let guard = client.get_lock("scene").with_lease(Duration::from_secs(20)).lock().unwrap();
    assert_eq!(guard.extend(Duration::from_secs(3_600)).unwrap_err().kind(), ErrorKind::Unknown);
    let before = server.seen().len();
    deaf.store(false, Ordering::Relaxed);
    guard.keep_until_expiry();
    eventually("a late copy would raise the time to live", || asked(&server)[before..].contains(&What::Fence));
}

#[test]
fn a_fence_at_another_server_does_not_count() {
    let server = Arc::new(std::sync::OnceLock::<Arc<Scripted>>::new());
    let in_script = Arc::clone(&server);
    let (scripted, client) = scene(move |what, number| match (what, number) {
        (What::Acquire, 0) => {
            // The host name leads to another server from now on.
            in_script.get().unwrap().becomes("10.0.0.2:6379");
            Reaction::Mute
        }
        _ => usual(what),
    });
    let _ = server.set(Arc::clone(&scripted));
    let guard = client.get_lock("scene").try_lock().unwrap().expect("repeated");
    assert!(!asked(&scripted).contains(&What::Fence), "the copy is not there");
    guard.unlock().unwrap();
    let releases = || asked(&scripted).iter().filter(|what| **what == What::Last).count();
    eventually("the copy may still come, so its owner is released again", || releases() >= 3);
}

#[test]
fn a_grant_older_than_its_lease_is_retried_as_a_new_owner() {
    let (server, client) = scene(|what, number| match (what, number) {
        (What::Acquire, 0) => {
            std::thread::sleep(Duration::from_millis(60));
            Reaction::Reply(GRANTED)
        }
        _ => usual(what),
    });
    let lock = client.get_lock("scene").with_lease(Duration::from_millis(50));
    while lock.try_lock_for(SOON).unwrap().is_none() {}
    let owners: Vec<_> = server
        .seen()
        .into_iter()
        .filter(|seen| what(seen) == What::Acquire)
        .map(|seen| seen.words[5].clone())
        .collect();
    assert!(owners.len() >= 2 && owners[0] != owners[1], "{owners:?}");
    eventually("the first owner is cleared away", || {
        server.seen().iter().any(|seen| what(seen) == What::Last && seen.words[4] == owners[0])
    });
}

#[test]
fn one_mute_connection_closes_those_that_lie_idle() {
    let (server, client) = scene(|what, number| match (what, number) {
        (What::Last, 4) => Reaction::Mute,
        _ => usual(what),
    });
    // Several connections, all idle afterwards.
    let barrier = &std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for index in 0..4 {
            let lock = client.get_lock(format!("scene:{index}"));
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                barrier.wait();
                guard.unlock().unwrap();
            });
        }
    });
    let before: std::collections::BTreeSet<_> = server.seen().iter().map(|seen| seen.connection).collect();
    client.get_lock("scene").lock().unwrap().unlock().unwrap();
    let seen = server.seen();
    let fence = seen.iter().find(|seen| what(seen) == What::Fence).expect("fenced");
    assert!(!before.contains(&fence.connection), "what made one mute may have made all of them mute");
}

mod redirects;
mod several;

#[test]
fn nothing_is_sent_before_the_kind_of_pub_sub_is_chosen() {
    let knows = Arc::new(AtomicBool::new(false));
    let is_told = Arc::clone(&knows);
    let scripted = Scripted::start(move |seen| match what(seen) {
        What::Other if seen.words[0] == "PUBSUB" && is_told.load(Ordering::Relaxed) => Reaction::Reply("*0\r\n"),
        What::Other if seen.words[0] == "PUBSUB" => Reaction::Mute,
        what => usual(what),
    });
    let server = Server::choosing_for_test(&scripted.url(), PubSubChoice::new());
    let builder = Client::builder(&scripted.url()).command_timeout(TIMEOUT).drop_timeout(TIMEOUT);
    let client = builder.open(Box::new(Standalone(Arc::new(server)))).unwrap();
    assert_eq!(client.get_lock("a").lock().unwrap_err().kind(), ErrorKind::Connection);
    let seen = |wanted| scripted.seen().into_iter().filter(|seen| what(seen) == wanted).collect::<Vec<_>>();
    assert_eq!(seen(What::Acquire), []);
    knows.store(true, Ordering::Relaxed);
    client.get_lock("a").lock().unwrap().unlock().unwrap();
    assert_eq!(seen(What::Last)[0].words[9], "SPUBLISH");
}
