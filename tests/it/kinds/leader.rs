//! Elections: one leader at a time, a leader that learns of its loss in time, observers that miss no change.

use std::panic::catch_unwind;
use std::time::SystemTime;

use lockson::{Leader, LockKind};

use crate::faults::other_process::OtherProcess;
use crate::support::prelude::*;

#[test]
fn one_candidate_leads_and_everybody_can_ask_which() {
    let (server, name) = (RedisServer::shared(), fresh("election"));
    let (ours, theirs) = (client().get_election(&name), client().get_election(&name));
    assert_eq!(theirs.leader().unwrap(), None);
    let before = SystemTime::now();
    let leadership = ours.candidate("host-7 {ä}\n").campaign().unwrap();
    assert!(leadership.is_held());
    assert!(theirs.candidate("b").try_campaign().unwrap().is_none());
    assert!(ours.candidate("c").campaign_for(ms(50)).unwrap().is_none(), "a thread does not re-enter a leadership");
    let leader = theirs.leader().unwrap().expect("somebody leads");
    assert_eq!((leader.candidate(), leader.token()), ("host-7 {ä}\n", leadership.token()));
    let apart = leader.since().duration_since(before).unwrap_or_else(|earlier| earlier.duration());
    assert!(apart < SOON, "the server and this test have one clock: {apart:?}");
    assert_eq!(fields(server, &name), [(leadership.hold().owner().to_owned(), "1".to_owned())]);
    leadership.resign().unwrap();
    assert_eq!(theirs.leader().unwrap(), None);
    assert_eq!(ttl_ms(server, &leader_key(&name)), -2, "the text goes with the lock");
    let next = theirs.candidate("b").try_campaign().unwrap().expect("nobody leads");
    assert!(next.token() > leader.token());
}

#[test]
fn a_token_exceeds_the_last_one_where_the_clock_is_behind() {
    let (server, name) = (RedisServer::shared(), fresh("election"));
    server.run(&["SET", &prefixed("redisson_lock_token", &name), "9000000000000000"]);
    let leadership = client().get_election(&name).candidate("a").campaign().unwrap();
    assert_eq!(leadership.token().value(), 9_000_000_000_000_001);
}

#[test]
fn dropping_a_leadership_resigns() {
    let election = client().get_election(fresh("election"));
    drop(election.candidate("a").campaign().unwrap());
    assert_eq!(election.leader().unwrap(), None);
    assert!(election.candidate("b").try_campaign().unwrap().is_some());
}

/// The second copy of the request finds its own grant.
#[test]
fn a_campaign_whose_answer_is_lost_begins_one_term() {
    let (rig, election) = Rig::start().and(|rig| rig.client().get_election("election"));
    let lost = rig.proxy.rule(rig.script_of(include_str!("../../../lua/fenced/acquire.lua")), Then::SwallowReply);
    thread::scope(|scope| {
        let campaign = scope.spawn(|| election.candidate("a").campaign().unwrap());
        lost.wait_hit(SOON);
        let first = rig.direct().get_election("election").leader().unwrap();
        let leadership = joined(campaign);
        assert_eq!(first.as_ref().map(Leader::token), Some(leadership.token()));
        assert_eq!(election.leader().unwrap(), first);
    });
}

#[test]
fn who_may_not_delete_the_text_wins_nothing() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "meek", "on", ">secret", "~*", "&*", "+@all", "-del"]);
    let client = Client::connect(&format!("redis://meek:secret@127.0.0.1:{}", server.port())).unwrap();
    let refused = client.get_election("election").candidate("a").try_campaign().unwrap_err();
    assert_eq!((refused.redis_word(), server.query(&["EXISTS", "election"])), (Some("NOPERM"), 0));
}

#[test]
fn work_runs_in_each_term_until_one_lasts_to_its_end() {
    let election = client().get_election(fresh("election"));
    let mut tokens = vec![];
    let outcome = election.candidate("a").lead(|leadership| {
        tokens.push(leadership.token());
        if tokens.len() == 1 {
            assert!(election.depose().unwrap());
            assert!(leadership.wait_lost(SOON).is_some());
        }
        tokens.len()
    });
    assert_eq!((outcome.unwrap(), tokens.len()), (2, 2), "the outcome is that of the second term");
    assert!(tokens[0] < tokens[1]);
    assert_eq!(election.leader().unwrap(), None, "the candidate has resigned");
    let panicked = catch_unwind(|| election.candidate("a").lead(|_| panic!("this panic is part of the test")));
    assert!(panicked.is_err() && election.leader().unwrap().is_none());
}

#[test]
fn a_cancel_ends_the_campaign_of_a_job_and_not_the_job() {
    let (election, stop) = (client().get_election(fresh("election")), Cancel::new());
    let candidate = election.with_cancel(&stop).candidate("a");
    let lasted = candidate.lead(|leadership| {
        stop.cancel();
        leadership.is_held()
    });
    assert!(lasted.unwrap());
    assert_eq!(kind_of(candidate.lead(|_| panic!("it must not run"))), ErrorKind::Cancelled);
}

#[test]
fn the_text_lives_exactly_as_long_as_the_lock() {
    let (server, name) = (RedisServer::start(), fresh("election"));
    let election = brisk(&server).connect().unwrap().get_election(&name);
    let leadership = election.candidate("a").campaign().unwrap();
    for _ in 0..5 {
        thread::sleep(TICK * 5); // renewals happen meanwhile
        let (lock, text) = (ttl_ms(&server, &name), ttl_ms(&server, &leader_key(&name)));
        assert!(lock > 0 && (lock - text).abs() < 200, "{lock} and {text}");
    }
    assert!(leadership.is_held() && election.leader().unwrap().is_some());
    // Text without its lock is nobody's.
    server.run(&["DEL", &name]);
    assert_eq!(election.leader().unwrap(), None);
    assert_eq!(leadership.wait_lost(SOON), Some(Loss::Gone));
    // A lock of another client has no text of its own, and must not get the old one.
    server.run(&["HSET", &name, "somebody:1", "1"]);
    assert_eq!(election.leader().unwrap(), None);
    assert!(election.candidate("b").try_campaign().unwrap().is_none());
}

#[test]
fn text_and_token_always_belong_together() {
    const TERMS: usize = 200;
    let name = fresh("election");
    let clients = [client(), client()];
    let terms = thread::scope(|scope| {
        let reign = |client: &Client, who: &str| -> Vec<(String, lockson::FencingToken)> {
            let candidate = client.get_election(&name).candidate(who);
            (0..TERMS).map(|_| (who.to_owned(), candidate.campaign().unwrap().token())).collect()
        };
        let reigns = [("a", &clients[0]), ("b", &clients[1])];
        let running = reigns.map(|(who, client)| scope.spawn(move || reign(client, who)));
        let election = client().get_election(&name);
        let mut seen: Vec<Leader> = vec![];
        let mut last = None;
        while running.iter().any(|thread| !thread.is_finished()) {
            let now = election.wait_change(last.as_ref(), ms(100)).unwrap();
            seen.extend(now.clone());
            last = now;
        }
        let terms: Vec<_> = running.into_iter().flat_map(joined).collect();
        assert!(seen.len() > 10, "{} sightings", seen.len());
        assert!(seen.is_sorted_by(|a, b| a.token() <= b.token()), "no sighting is older than the one before");
        for leader in seen {
            let term = (leader.candidate().to_owned(), leader.token());
            assert!(terms.contains(&term), "{term:?} was never elected");
        }
        terms
    });
    assert_eq!(terms.len(), 2 * TERMS);
}

#[test]
fn a_resignation_and_a_victory_wake_observers_at_once() {
    let (server, name) = (RedisServer::shared(), fresh("election"));
    let (election, seen) = (client().get_election(&name), client().get_election(&name));
    let watches = || eventually(SOON, "the observer listens", || server.subscribers(&leader_channel(&name)) == 1);
    let slept = median(5, |_| {
        thread::scope(|scope| {
            let won = scope.spawn(|| (seen.wait_change(None, SOON).unwrap(), Instant::now()));
            watches();
            thread::sleep(ms(20));
            let at = Instant::now();
            let leadership = election.candidate("a").campaign().unwrap();
            let (leader, told) = joined(won);
            assert_eq!(leader.as_ref().map(Leader::token), Some(leadership.token()));
            let seen = &seen;
            let gone = scope.spawn(move || (seen.wait_change(leader.as_ref(), SOON).unwrap(), Instant::now()));
            thread::sleep(ms(20));
            let resigned = Instant::now();
            leadership.resign().unwrap();
            let (nobody, told_again) = joined(gone);
            assert_eq!(nobody, None);
            (told - at).max(told_again - resigned)
        })
    });
    assert!(slept < ms(300), "without a message it takes half a second: {slept:?}");
}

#[test]
fn a_leader_that_won_again_before_the_question_is_a_change() {
    let name = fresh("election");
    let (election, seen) = (client().get_election(&name), client().get_election(&name));
    let candidate = election.candidate("a");
    let first = candidate.campaign().unwrap();
    let last = seen.leader().unwrap();
    first.resign().unwrap();
    let second = candidate.campaign().unwrap();
    let (took, now) = timed(|| seen.wait_change(last.as_ref(), SOON).unwrap());
    assert!(took < SOON / 2, "{took:?}");
    assert_eq!(now.as_ref().map(Leader::token), Some(second.token()));
    assert_ne!(now, last, "the same text, another term");
}

#[test]
fn the_expiry_of_a_leader_is_a_change_without_a_message() {
    let (server, name) = (RedisServer::shared(), fresh("election"));
    let seen = client().get_election(&name);
    let leadership = client().get_election(&name).candidate("a").campaign().unwrap();
    let last = seen.leader().unwrap();
    server.run(&["PEXPIRE", &name, "300"]);
    let (took, now) = timed(|| seen.wait_change(last.as_ref(), SOON).unwrap());
    assert_eq!(now, None);
    assert!(took < ms(300) + SCHEDULING, "{took:?}");
    assert!(leadership.wait_lost(SOON).is_some());
}

#[test]
fn a_wait_for_a_change_ends_with_its_time_or_its_cancel() {
    let election = client().get_election(fresh("election"));
    let leadership = election.candidate("a").campaign().unwrap();
    let last = election.leader().unwrap();
    for wait in [Duration::ZERO, ms(150)] {
        let (took, now) = timed(|| election.wait_change(last.as_ref(), wait).unwrap());
        assert_eq!(now, last);
        assert!(took >= wait && took < wait + SCHEDULING, "{took:?}");
    }
    let stop = Cancel::new();
    let waits = election.with_cancel(&stop);
    thread::scope(|scope| {
        let observer = scope.spawn(|| waits.wait_change(last.as_ref(), Duration::MAX).map(drop));
        let rivals = [waits.candidate("b"), election.with_cancel(&stop).candidate("c")]
            .map(|rival| scope.spawn(move || rival.campaign().map(drop)));
        thread::sleep(ms(50));
        stop.cancel();
        assert_eq!(kind_of(joined(observer)), ErrorKind::Cancelled);
        assert_eq!(rivals.map(|rival| kind_of(joined(rival))), [ErrorKind::Cancelled; 2]);
    });
    assert!(leadership.is_held());
}

#[test]
fn closing_the_client_ends_leadership_and_observation() {
    let (ours, theirs, name) = (client(), client(), fresh("election"));
    let leadership = ours.get_election(&name).candidate("a").campaign().unwrap();
    let election = ours.get_election(&name);
    let last = election.leader().unwrap();
    thread::scope(|scope| {
        let observer = scope.spawn(|| election.wait_change(last.as_ref(), SOON).map(drop));
        thread::sleep(ms(50));
        ours.close();
        assert_eq!(kind_of(joined(observer)), ErrorKind::Closed);
    });
    assert_eq!(leadership.lost(), Some(Loss::Closed));
    assert!(theirs.get_election(&name).candidate("b").try_campaign().unwrap().is_some());
}

#[test]
fn deposing_ends_the_term_of_any_leader() {
    let name = fresh("election");
    let (ours, theirs) = (client().get_election(&name), client().get_election(&name));
    assert!(!theirs.depose().unwrap());
    let leadership = ours.candidate("a").campaign().unwrap();
    thread::sleep(ms(300)); // the hold is watched
    assert!(theirs.depose().unwrap());
    assert_eq!(theirs.leader().unwrap(), None);
    assert_eq!(leadership.wait_lost(SOON), Some(Loss::Gone));
    assert!(kind_of(leadership.resign()) == ErrorKind::Lost(Loss::Gone));
}

#[test]
fn a_fenced_lock_of_the_name_keeps_candidates_out() {
    let (client, name) = (client(), fresh("election"));
    let (lock, election) = (client.get_fenced_lock(&name), client.get_election(&name));
    let guard = lock.lock().unwrap();
    let token = guard.token();
    assert!(election.candidate("a").try_campaign().unwrap().is_none());
    assert_eq!(election.leader().unwrap(), None);
    guard.unlock().unwrap();
    let leadership = election.candidate("a").campaign().unwrap();
    assert!(leadership.token() > token, "one counter for both");
    assert!(elsewhere(|| lock.try_lock().unwrap().is_none()));
}

#[test]
fn a_leadership_is_listed_and_its_text_is_bounded() {
    let (client, name) = (client(), fresh("election"));
    let election = client.get_election(&name);
    let _leadership = election.candidate("a").campaign().unwrap();
    let held = client.held();
    assert_eq!((held[0].kind(), held[0].name()), (LockKind::Leader, &*name));
    assert_eq!(LockKind::Leader.to_string(), "leader");
    let long = client.get_election(fresh("election")).candidate("x".repeat(4_097));
    assert_eq!(kind_of(long.try_campaign()), ErrorKind::BadInput);
    assert_eq!(kind_of(client.get_election("").leader()), ErrorKind::BadInput);
    let text = fresh("text");
    RedisServer::shared().run(&["SET", &text, "data"]);
    assert_eq!(kind_of(client.get_election(&text).leader()), ErrorKind::Refused);
}

#[test]
fn a_leader_cut_off_stands_down_before_another_wins() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let cut_off = Client::builder(&proxy.url()).watchdog(TTL, TICK).command_timeout(ms(500)).connect().unwrap();
    let rival = brisk(&server).connect().unwrap();
    let leadership = cut_off.get_election("job").candidate("a").campaign().unwrap();
    let told = Arc::new(parking_lot::Mutex::new(None));
    let note = Arc::clone(&told);
    leadership.on_lost(move |_| *note.lock() = Some(Instant::now()));
    thread::scope(|scope| {
        let winner = scope.spawn(|| {
            let leadership = rival.get_election("job").candidate("b").campaign().unwrap();
            let won = Instant::now();
            leadership.resign().unwrap();
            won
        });
        thread::sleep(TICK * 3);
        assert!(leadership.is_held());
        proxy.mute(Scope::All, Direction::Both);
        assert_eq!(leadership.wait_lost(SOON), Some(Loss::Expired));
        let stood_down = Instant::now();
        assert!(!leadership.is_held());
        let won = joined(winner);
        assert!(stood_down <= won, "{:?} late", stood_down - won);
        assert!(told.lock().is_some_and(|told| told <= won), "the callback ran before, too");
    });
    proxy.heal();
}

#[test]
fn a_stopped_leader_knows_of_its_end_at_its_first_look() {
    let server = RedisServer::start();
    let mut leader = OtherProcess::start(&server);
    assert!(leader.ask(0, "campaign job").starts_with("leads "));
    let client = Client::connect(&server.url()).unwrap();
    leader.stop();
    let next = client.get_election("job").candidate("next").campaign_for(SOON).unwrap().expect("the term expires");
    leader.send(0, "look");
    leader.resume();
    assert_eq!(leader.answer(0), "lost");
    assert_eq!(leader.ask(0, "resign"), "failed");
    assert!(next.is_held());
    assert_eq!(client.get_election("job").leader().unwrap().map(|leader| leader.token()), Some(next.token()));
}

#[test]
fn an_election_in_braces_has_its_own_leader() {
    let (client, name) = (client(), fresh("election"));
    let [bare, braced] = [name.clone(), format!("{{{name}}}")].map(|name| client.get_election(name));
    let ours = bare.candidate("bare").campaign().unwrap();
    let theirs = braced.candidate("braced").campaign().unwrap();
    let leads = |election: &lockson::Election| election.leader().unwrap().map(|leader| leader.candidate().to_owned());
    assert_eq!([&bare, &braced].map(leads), ["bare", "braced"].map(|text| Some(text.to_owned())));
    theirs.resign().unwrap();
    assert_eq!([&bare, &braced].map(leads), [Some("bare".to_owned()), None]);
    ours.resign().unwrap();
}

fn leader_key(name: &str) -> String {
    crate::support::prefixed("lockson_leader", name)
}

fn leader_channel(name: &str) -> String {
    crate::support::prefixed("lockson_leader__channel", name)
}
