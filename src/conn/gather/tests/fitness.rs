//! Tests of requests to independent servers: servers that are down, and servers that started lately.
#![cfg(test)]

use super::*;
use crate::conn::server_start::ServerStart;

const UP: Fitness = Fitness { is_up: true, age: None, advice: "" };

fn if_up<'a>(server: &Arc<Server>, word: &'a str, limit: Duration) -> Request<'a, String> {
    Request { fitness: UP, ..request(server, word, limit) }
}

/// A request that is sent once the server has run for so long.
fn after(server: &Arc<Server>, age: Duration) -> Request<'static, String> {
    let fitness = Fitness { is_up: false, age: Some(age), advice: "be patient" };
    Request { fitness, ..request(server, "a", SOON) }
}

/// A server whose introduction tells this uptime, and that repeats the words of all other requests.
fn running_for(seconds: u64) -> (Scripted, Arc<Server>) {
    let info = format!("# Server\r\nrun_id:run-{seconds}\r\nuptime_in_seconds:{seconds}\r\n");
    let info: &str = Box::leak(format!("${}\r\n{info}\r\n", info.len()).into_boxed_str());
    served(move |seen| if seen.words[0] == "INFO" { Reaction::Reply(info) } else { Reaction::Echo })
}

fn error_of(outcome: Response<String>) -> String {
    match outcome.answer {
        Err(Fault::NotSent(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The number of requests that are no part of an introduction.
fn requests_to(scripted: &Scripted) -> usize {
    scripted.seen().iter().filter(|seen| seen.words[0] != "INFO").count()
}

#[test]
fn dead_servers_cost_one_time_limit_and_then_nothing() {
    let (_scripted, quick) = served(|_| Reaction::Echo);
    let (mute, mute_server) = odd_at("b", Reaction::Mute);
    let (_listener, silent) = silent();
    let closed = Arc::new(Server::for_test("redis://127.0.0.1:1"));
    let servers = [&quick, &mute_server, &silent, &closed];
    let all = || servers.map(|server| if_up(server, "b", SHORT)).into_iter().collect::<Vec<_>>();
    assert_eq!(in_short(gather(all())), ["b", "unanswered by 1", "not sent", "not sent"]);
    let begun = Instant::now();
    let mut outcomes = gather(all());
    assert!(begun.until(Instant::now()) < SHORT, "no server is waited for");
    let error = error_of(outcomes.remove(1));
    assert!(error.contains(" was not asked: it has not answered for "), "{error}");
    assert_eq!(in_short(outcomes), ["b", "not sent", "not sent"]);
    assert_eq!(mute.seen().len(), 1);
    // Requests to any server are sent.
    assert_eq!(ask(&mute_server, &["c"], SOON), ["c"]);
}

#[test]
fn a_trial_ends_the_mark_and_keeps_its_connection() {
    let (scripted, server) = served(|seen| if seen.connection == 1 { Reaction::Mute } else { Reaction::Echo });
    assert!(!server.claim_trial(Instant::now(), Instant::now().after(SOON)), "nothing failed");
    let deadline = Instant::now().after(SOON);
    assert_eq!(in_short(vec![super::super::ask(if_up(&server, "a", SHORT), Instant::now())]), ["unanswered by 1"]);
    assert!(server.claim_trial(Instant::now(), deadline));
    assert!(!server.claim_trial(Instant::now(), deadline), "one at a time");
    assert_eq!(in_short(vec![super::super::ask(if_up(&server, "b", SHORT), Instant::now())]), ["not sent"]);
    server.try_again(deadline);
    assert_eq!(in_short(vec![super::super::ask(if_up(&server, "c", SOON), Instant::now())]), ["c"]);
    assert_eq!(connections(&scripted), [1, 2], "no third one is opened");
}

#[test]
fn a_trial_in_vain_prolongs_the_mark() {
    let server = Arc::new(Server::for_test("redis://127.0.0.1:1"));
    let deadline = Instant::now().after(SOON);
    assert_eq!(in_short(gather(vec![if_up(&server, "a", SHORT)])), ["not sent"]);
    assert!(server.claim_trial(Instant::now(), deadline));
    server.try_again(deadline);
    assert!(server.why_down(Instant::now()).is_some());
    assert!(server.why_down(Instant::now().after(Duration::from_millis(1_500))).is_some(), "longer than a second");
    assert!(!server.claim_trial(Instant::now(), deadline), "the next trial comes later");
    let later = Instant::now().after(Duration::from_millis(1_200));
    assert!(server.claim_trial(later, deadline), "the first trial is over");
}

#[test]
fn a_pool_without_a_free_connection_is_no_dead_server() {
    let (_scripted, server) = served(|_| Reaction::Echo);
    open(&server);
    let connection = server.take_idle().unwrap().expect("one is open");
    assert_eq!(in_short(gather(vec![if_up(&server, "a", SHORT)])), ["not sent"]);
    server.put_away(connection, true);
    assert_eq!(in_short(gather(vec![if_up(&server, "b", SHORT)])), ["b"]);
}

#[test]
fn a_refusal_is_an_answer() {
    let (_scripted, server) = odd_at("a", Reaction::Reply("-OOM no memory\r\n"));
    for _ in 0..2 {
        assert_eq!(in_short(gather(vec![if_up(&server, "a", SHORT)])), ["refused: OOM"]);
    }
}

#[test]
fn a_server_that_started_lately_is_not_asked() {
    let (scripted, server) = running_for(5);
    let error = error_of(gather(vec![after(&server, Duration::from_secs(30))]).remove(0));
    let (asked, rest) = error.split_once(": ").unwrap();
    assert!(asked.ends_with(" was not asked"), "{error}");
    let told = "it started 4 s ago and may have forgotten locks, so it counts 26 s from now; be patient";
    assert_eq!(rest, told, "{error}");
    assert_eq!(requests_to(&scripted), 0);
    assert_eq!(in_short(gather(vec![after(&server, Duration::from_secs(4))])), ["a"]);
    // Requests to any server, for instance releases, are sent.
    let requests = vec![after(&server, Duration::from_secs(30)), request(&server, "b", SOON)];
    assert_eq!(in_short(gather(requests)), ["not sent", "b"]);
    assert_eq!(connections(&scripted), [1], "asked once for each connection");
}

#[test]
fn a_server_that_does_not_tell_its_start_is_asked() {
    for refusal in ["-NOPERM no right to info\r\n", "-ERR unknown command 'INFO'\r\n", "$2\r\nno\r\n"] {
        let (_scripted, server) =
            served(move |seen| if seen.words[0] == "INFO" { Reaction::Reply(refusal) } else { Reaction::Echo });
        let outcomes = gather(vec![after(&server, Duration::from_secs(30))]);
        assert_eq!(outcomes[0].run_id, None);
        assert_eq!(in_short(outcomes), ["a"]);
    }
}

#[test]
fn connections_that_did_not_ask_for_the_start_are_replaced() {
    let (scripted, server) = running_for(60);
    open(&server);
    assert!(!scripted.seen().iter().any(|seen| seen.words[0] == "INFO"), "no other request needs it");
    for _ in 0..2 {
        let outcomes = gather(vec![after(&server, Duration::from_secs(30))]);
        assert_eq!(outcomes[0].run_id.as_deref(), Some("run-60"));
    }
    open(&server);
    assert_eq!(connections(&scripted), [1, 2]);
}

#[test]
fn two_addresses_of_one_server_have_one_run() {
    let (scripted, server) = running_for(60);
    let alias = Arc::new(Server::for_test(&scripted.url().replace("127.0.0.1", "localhost")));
    let (_other, other) = running_for(61);
    let requests = [&server, &alias, &other].map(|server| after(server, Duration::ZERO));
    let runs: Vec<_> = gather(requests.into()).into_iter().map(|outcome| outcome.run_id.unwrap()).collect();
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[test]
fn a_restart_that_was_seen_counts_more_than_an_uptime() {
    let (_scripted, server) = served(|seen| match (seen.words[0].as_str(), seen.connection) {
        ("INFO", 1) => Reaction::Reply("$38\r\nrun_id:a\r\nuptime_in_seconds:1000000000\r\n"),
        // The clock of the machine was set right after the restart.
        ("INFO", _) => Reaction::Reply("$38\r\nrun_id:b\r\nuptime_in_seconds:1000000000\r\n"),
        _ if seen.words[1] == "end" => Reaction::HangUp,
        _ => Reaction::Echo,
    });
    let age = Duration::from_secs(30);
    gather(vec![after(&server, age)]);
    let answered = gather(vec![after(&server, age)]).remove(0);
    let other = ServerStart::read("run_id:c\r\nuptime_in_seconds:1000000000\r\n", Instant::now()).unwrap();
    assert_eq!(server.runs.lock().learn(&other), answered.sent, "it began after the last answer");
    assert_eq!(ask(&server, &["end"], SOON), ["unanswered by 1"]);
    let error = error_of(gather(vec![after(&server, age)]).remove(0));
    assert!(error.contains("it started 0 s ago"), "{error}");
}
