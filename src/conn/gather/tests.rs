//! Tests of several requests at once against scripted servers: order, silence, faults, pools.
#![cfg(test)]

use std::net::TcpListener;
use std::sync::Barrier;

use super::*;
use crate::conn::scripted::{Reaction, Scripted, Seen};
use crate::error::ErrorKind;
use crate::reply::command;
use crate::transport::PubSub;

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);
/// The time that a busy machine may take beside a time limit.
const MARGIN: Duration = Duration::from_secs(2);

/// A scripted server, and a client that may open one connection.
fn served(script: impl Fn(&Seen) -> Reaction + Send + Sync + 'static) -> (Scripted, Arc<Server>) {
    let scripted = Scripted::start(script);
    let server = Arc::new(Server::for_test(&scripted.url()));
    (scripted, server)
}

/// A server that reacts to the request with this word, and repeats the words of all others.
fn odd_at(word: &'static str, reaction: Reaction) -> (Scripted, Arc<Server>) {
    served(
        move |seen| if seen.words.last().is_some_and(|last| last == word) { reaction.clone() } else { Reaction::Echo },
    )
}

/// A server that accepts connections and never answers.
fn silent() -> (TcpListener, Arc<Server>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    (listener, Arc::new(Server::for_test(&url)))
}

fn request<'a>(server: &Arc<Server>, word: &'a str, limit: Duration) -> Request<'a, String> {
    Request {
        asking: false,
        server: Arc::clone(server),
        limits: Limits::by(Instant::now().after(limit)),
        fitness: Fitness::default(),
        call: Box::leak(Box::new(Word(word))),
        whole: false,
    }
}

struct Word<'a>(&'a str);

/// A word, with a reply of eight texts.
struct EightTexts<'a>(&'a str);

impl Question<Value, String> for EightTexts<'_> {
    fn read(&self, reply: &Value) -> Option<String> {
        matches!(reply, Value::Array(texts) if texts.len() == 8).then(String::new)
    }

    fn pack(&self, _: bool, _: PubSub, request: &mut Vec<u8>) {
        command("ECHO", self.0).write_packed_command(request);
    }
}

impl Question<Value, String> for Word<'_> {
    fn read(&self, reply: &Value) -> Option<String> {
        match reply {
            Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    fn pack(&self, whole: bool, _: PubSub, request: &mut Vec<u8>) {
        command("ECHO", if whole { "whole" } else { self.0 }).write_packed_command(request);
    }
}

/// Sends one word each to `server`, and returns the outcomes in short.
fn ask(server: &Arc<Server>, words: &[&str], limit: Duration) -> Vec<String> {
    in_short(gather(words.iter().map(|word| request(server, word, limit)).collect()))
}

/// The answer, or the fault in a word.
fn in_short(outcomes: Vec<Response<String>>) -> Vec<String> {
    let short = |outcome: Response<String>| match outcome.answer {
        Ok((word, _)) => word,
        Err(Fault::NotSent(_)) => "not sent".into(),
        Err(Fault::Unanswered(Some(identity), _)) => format!("unanswered by {}", identity.id),
        Err(Fault::Unanswered(None, _)) => "unanswered".into(),
        Err(Fault::Refused(refusal)) => format!("refused: {}", refusal.word()),
    };
    outcomes.into_iter().map(short).collect()
}

/// Opens the connection of a server.
fn open(server: &Arc<Server>) {
    assert_eq!(ask(server, &["open"], SOON), ["open"]);
}

fn connections(scripted: &Scripted) -> Vec<u64> {
    let mut all: Vec<u64> = scripted.seen().iter().map(|seen| seen.connection).collect();
    all.dedup();
    all
}

#[test]
fn the_outcomes_have_the_order_of_the_requests() {
    let servers: Vec<_> = (0..3).map(|_| served(|_| Reaction::Echo)).collect();
    let words: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    for _ in 0..2 {
        let requests = words.iter().enumerate().map(|(at, word)| request(&servers[at % 3].1, word, SOON)).collect();
        assert_eq!(in_short(gather(requests)), words);
    }
    for (scripted, _) in &servers {
        assert_eq!(connections(scripted), [1], "one connection, opened once");
    }
    assert!(gather::<String>(vec![]).is_empty());
}

#[test]
fn a_thousand_requests_take_one_connection() {
    let (scripted, server) = served(|_| Reaction::Echo);
    let words: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let outcomes = gather(words.iter().map(|word| request(&server, word, SOON)).collect());
    let moments: Vec<_> = outcomes.iter().map(|outcome| outcome.sent).collect();
    assert!(moments.is_sorted());
    assert!(moments.iter().filter(|&&moment| moment == moments[0]).count() == 100, "a hundred in a batch");
    assert!(outcomes.iter().all(|outcome| outcome.sent <= outcome.ended));
    assert_eq!(in_short(outcomes), words);
    assert_eq!((scripted.seen().len(), connections(&scripted)), (1_000, vec![1]));
}

#[test]
fn a_mute_server_delays_no_other_one() {
    for is_open in [true, false] {
        let (_mute, mute) = odd_at("a", Reaction::Mute);
        let (scripted, quick) = served(|_| Reaction::Echo);
        if is_open {
            [&mute, &quick].into_iter().for_each(open);
        }
        let begun = Instant::now();
        let words: Vec<String> = (0..250).map(|number| number.to_string()).collect();
        // A busy machine gets all other answers within this time.
        let limit = SHORT * 4;
        let mut requests = vec![request(&mute, "a", limit), request(&mute, "b", limit)];
        requests.extend(words.iter().map(|word| request(&quick, word, SOON)));
        let outcomes = gather(requests);
        assert!(begun.until(Instant::now()) < limit + MARGIN);
        assert!(outcomes[2..].iter().all(|outcome| outcome.ended <= outcomes[0].ended));
        let outcomes = in_short(outcomes);
        assert_eq!(outcomes[..2], ["unanswered by 1", "unanswered by 1"]);
        assert_eq!(outcomes[2..], words);
        assert_eq!(connections(&scripted), [1]);
    }
}

#[test]
fn servers_are_dialled_side_by_side() {
    let silent: Vec<_> = (0..6).map(|_| silent()).collect();
    let (_scripted, quick) = served(|_| Reaction::Echo);
    let begun = Instant::now();
    let mut requests: Vec<_> = silent.iter().map(|(_, server)| request(server, "a", SHORT * 2)).collect();
    requests.push(request(&quick, "b", SHORT * 2));
    let outcomes = in_short(gather(requests));
    let took = begun.until(Instant::now());
    assert_eq!(outcomes.last().unwrap(), "b");
    assert!(outcomes[..6].iter().all(|outcome| outcome == "not sent"), "{outcomes:?}");
    assert!(took < SHORT * 8, "one after the other takes twelve: {took:?}");
}

#[test]
fn half_a_reply_is_no_answer() {
    let (_scripted, server) = served(|seen| match seen.words.last().map(String::as_str) {
        Some("b") => Reaction::Reply("$5\r\nab"),
        Some("c") => Reaction::Mute,
        _ => Reaction::Echo,
    });
    let mute = "unanswered by 1".to_owned();
    assert_eq!(ask(&server, &["a", "b", "c"], SHORT), ["a", &mute, &mute]);
}

#[test]
fn a_batch_without_a_reply_keeps_the_next_ones_from_being_sent() {
    let (scripted, server) = odd_at("50", Reaction::Mute);
    let words: Vec<String> = (0..150).map(|number| number.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcomes = ask(&server, &words, SHORT);
    assert_eq!(outcomes[..50], words[..50]);
    assert!(outcomes[50..100].iter().all(|outcome| outcome == "unanswered by 1"), "{outcomes:?}");
    assert!(outcomes[100..].iter().all(|outcome| outcome == "not sent"), "{outcomes:?}");
    assert_eq!(scripted.seen().len(), 51);
}

#[test]
fn one_reaction_ends_what_it_must_and_no_more() {
    // The reaction to the second of three requests; the outcomes from there on, and whether the connection stays.
    let check = |reaction: Reaction, outcomes: [&str; 2], stays: bool| {
        let (scripted, server) = odd_at("b", reaction.clone());
        assert_eq!(ask(&server, &["a", "b", "c"], SOON), [&["a"], &outcomes[..]].concat(), "{reaction:?}");
        open(&server);
        assert_eq!(connections(&scripted), if stays { vec![1] } else { vec![1, 2] }, "{reaction:?}");
    };
    let gone = ["unanswered by 1"; 2];
    check(Reaction::Reply("-OOM no memory\r\n"), ["refused: OOM", "c"], true);
    let replica = "-READONLY You can't write against a read only replica.\r\n";
    check(Reaction::Reply(replica), ["refused: READONLY", "c"], false);
    check(Reaction::Reply(":1\r\n"), gone, false); // the third is the reply to another request
    check(Reaction::HangUp, gone, false);
}

#[test]
fn a_reply_too_many_answers_no_later_request() {
    let (scripted, server) = odd_at("99", Reaction::Reply("$2\r\n99\r\n$1\r\nx\r\n"));
    let words: Vec<String> = (0..150).map(|number| number.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcomes = ask(&server, &words, SOON);
    assert_eq!(outcomes[..100], words[..100]);
    assert!(outcomes[100..].iter().all(|outcome| outcome == "not sent"), "{outcomes:?}");
    open(&server);
    assert_eq!(connections(&scripted), [1, 2]);
}

#[test]
fn a_full_buffer_holds_up_no_other_server() {
    let (_deaf, deaf) = odd_at("deaf", Reaction::Deaf);
    let (_scripted, quick) = served(|_| Reaction::Echo);
    [&deaf, &quick].into_iter().for_each(open);
    let limit = SHORT * 5; // a busy machine writes megabytes slowly
    let megabyte = "x".repeat(1024 * 1024);
    let mut requests = vec![request(&deaf, "deaf", limit)];
    requests.extend((0..40).map(|_| request(&deaf, &megabyte, limit)));
    requests.push(request(&quick, "a", limit));
    let begun = Instant::now();
    let outcomes = in_short(gather(requests));
    assert!(begun.until(Instant::now()) < limit + MARGIN);
    assert_eq!(outcomes[41], "a");
    let whole = outcomes.iter().take_while(|outcome| *outcome == "unanswered by 1").count();
    assert!((1..40).contains(&whole), "{whole} of 41 fit into the buffers");
    assert!(outcomes[whole..41].iter().all(|outcome| outcome == "not sent"));
}

#[test]
fn replies_are_read_while_requests_are_written() {
    // Neither the requests nor the replies fit into the buffers.
    let texts = format!("$60000\r\n{}\r\n", "x".repeat(60_000)).repeat(8);
    let reply: &str = Box::leak(format!("*8\r\n{texts}").into_boxed_str());
    let (_scripted, server) = served(move |_| Reaction::Reply(reply));
    let word = "x".repeat(400_000);
    let texts = EightTexts(&word);
    let requests = (0..100).map(|_| Request { call: &texts, ..request(&server, &word, SOON) }).collect();
    assert!(gather(requests).iter().all(|outcome| outcome.answer.is_ok()));
}

#[test]
fn an_unknown_script_is_sent_once_with_its_source() {
    for (needs_source, answer) in [(true, "whole"), (false, "refused: NOSCRIPT")] {
        let (scripted, server) = served(move |seen| match seen.words.last().map(String::as_str) {
            Some("whole") if needs_source => Reaction::Echo,
            Some("a" | "whole") => Reaction::Reply("-NOSCRIPT No matching script.\r\n"),
            _ => Reaction::Reply("+OK\r\n"),
        });
        let outcomes = gather(vec![Request { asking: true, ..request(&server, "a", SOON) }]);
        assert_eq!(in_short(outcomes), [answer]);
        let seen: Vec<_> = scripted.seen().iter().map(|seen| (seen.connection, seen.words.join(" "))).collect();
        assert_eq!(seen, ["ASKING", "ECHO a", "ASKING", "ECHO whole"].map(|words| (1, words.to_owned())));
    }
}

#[test]
fn where_a_login_ends_the_rest_goes_over_another_connection() {
    for (refusal, is_for_good) in [("-NOAUTH no\r\n", false), ("-WRONGPASS no\r\n", false), ("-NOAUTH no\r\n", true)] {
        let (scripted, server) = served(move |seen| match seen.words[1].as_str() {
            "b" | "c" if seen.connection == 1 || is_for_good => Reaction::Reply(refusal),
            _ => Reaction::Echo,
        });
        open(&server);
        let of_the_rest = if is_for_good { ["refused: NOAUTH"; 2] } else { ["b", "c"] };
        assert_eq!(ask(&server, &["a", "b", "c"], SOON)[1..], of_the_rest);
        assert_eq!(connections(&scripted), [1, 2]);
    }
}

#[test]
fn bytes_behind_an_unknown_script_are_no_answer() {
    let (scripted, server) = served(|seen| match seen.words.last().map(String::as_str) {
        Some("a") => Reaction::Reply("-NOSCRIPT No matching script.\r\n$5\r\nstray\r\n"),
        _ => Reaction::Echo,
    });
    let outcome = super::ask(request(&server, "a", SOON), Instant::now());
    assert!(matches!(outcome.answer, Err(Fault::NotSent(_))), "{:?}", outcome.answer);
    assert_eq!(scripted.seen().len(), 1, "the connection is out of step");
    let outcome = super::ask(request(&server, "b", SOON), Instant::now());
    assert_eq!(outcome.answer.unwrap().0, "b");
}

#[test]
fn an_unknown_script_is_sent_at_once_beside_a_silent_server() {
    let (_listener, mute) = silent();
    let (scripted, server) = odd_at("b", Reaction::Reply("-NOSCRIPT No matching script.\r\n"));
    let requests = [(&server, "a"), (&mute, "x"), (&server, "b"), (&server, "c")];
    let outcomes = gather(requests.map(|(server, word)| request(server, word, SHORT)).into());
    assert_eq!(in_short(outcomes), ["a", "not sent", "whole", "c"]);
    assert_eq!(scripted.seen().len(), 4);
}

#[test]
fn a_server_that_trickles_gets_no_more_time() {
    let (_slow, slow) = odd_at("a", Reaction::Trickle);
    let (_scripted, quick) = served(|_| Reaction::Echo);
    let begun = Instant::now();
    let outcomes = gather(vec![request(&slow, "a", SHORT), request(&quick, "b", SHORT)]);
    assert!(begun.until(Instant::now()) < SHORT + MARGIN);
    assert_eq!(in_short(outcomes), ["unanswered by 1", "b"]);
}

#[test]
fn a_closed_client_sends_nothing() {
    let (scripted, server) = served(|_| Reaction::Echo);
    let (_other, other) = served(|_| Reaction::Echo);
    open(&server);
    server.close();
    let requests = vec![request(&server, "a", SOON), request(&other, "b", SOON), request(&server, "c", SOON)];
    let outcomes = gather(requests);
    let is_closed =
        |fault: &Result<_, Fault>| matches!(fault, Err(Fault::NotSent(error)) if error.kind() == ErrorKind::Closed);
    assert!(is_closed(&outcomes[0].answer) && is_closed(&outcomes[2].answer), "{outcomes:?}");
    assert_eq!(outcomes[1].answer.as_ref().unwrap().0, "b");
    assert_eq!(scripted.seen().len(), 1);
}

#[test]
fn a_request_whose_time_is_over_is_not_sent() {
    let (scripted, server) = served(|_| Reaction::Echo);
    open(&server);
    let requests = [("a", Duration::ZERO), ("b", SOON), ("c", Duration::ZERO), ("d", SOON)]
        .map(|(word, limit)| request(&server, word, limit));
    assert_eq!(in_short(gather(requests.into())), ["not sent", "b", "not sent", "d"]);
    assert_eq!((scripted.seen().len(), connections(&scripted)), (3, vec![1]));
}

#[test]
fn threads_with_one_connection_each_do_not_block_each_other() {
    let servers: Vec<_> = (0..2).map(|_| served(|_| Reaction::Echo)).collect();
    let barrier = Barrier::new(2);
    let begun = Instant::now();
    thread::scope(|scope| {
        for order in [[0, 1], [1, 0]] {
            let (servers, barrier) = (&servers, &barrier);
            scope.spawn(move || {
                for _ in 0..200 {
                    barrier.wait();
                    let requests = order.map(|at| request(&servers[at].1, "a", SOON));
                    assert_eq!(in_short(gather(requests.into())), ["a", "a"]);
                }
            });
        }
    });
    assert!(begun.until(Instant::now()) < SOON, "no thread waited for its deadline");
    for (scripted, _) in &servers {
        assert_eq!(connections(scripted), [1]);
    }
}

mod fitness;
