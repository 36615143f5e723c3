//! The special properties of the fenced lock: tokens that only rise, and a store that checks tokens.

use lockson::{ACCEPT_IF_NOT_OLDER, FencingToken};

use crate::faults::other_process::OtherProcess;
use crate::support::prelude::*;

#[test]
fn every_way_to_take_it_gives_a_greater_token() {
    let lock = client().get_fenced_lock(fresh("fenced"));
    let mut last = None;
    let mut check = |guard: Guard<FencingToken>| {
        let token = guard.token();
        assert!(Some(token) > last, "{token:?} after {last:?}");
        assert_eq!(guard.hold().token(), Some(token));
        last = Some(token);
        guard.unlock().unwrap();
    };
    for _ in 0..5 {
        check(lock.lock().unwrap());
        check(lock.try_lock().unwrap().unwrap());
        check(lock.try_lock_for(SOON).unwrap().unwrap());
        check(lock.with_lease(ms(5_000)).lock().unwrap());
        check(lock.with_max_hold(ms(5_000)).lock().unwrap());
    }
    let owned = lock.owned().lock().unwrap();
    let from_another_thread = elsewhere(|| owned.token());
    assert!(from_another_thread == owned.token() && Some(owned.token()) > last);
    owned.unlock().unwrap();
}

#[test]
fn a_counter_beyond_the_numbers_of_lua_grants_nothing() {
    let (server, client) = (RedisServer::shared(), client());
    // The last counter that leads to another number, a time in nanoseconds, and no number.
    for (last, grants) in [("9007199254740991", true), ("1764000000000000000", false), ("nan", false)] {
        let name = fresh("fenced");
        let (lock, candidate) = (client.get_fenced_lock(&name), client.get_election(&name).candidate("a"));
        let takes: [&dyn Fn() -> lockson::Result<u64>; 2] =
            [&|| Ok(lock.try_lock()?.expect("it is free").token().value()), &|| {
                Ok(candidate.try_campaign()?.expect("it is free").token().value())
            }];
        for take in takes {
            server.run(&["SET", &prefixed("redisson_lock_token", &name), last]);
            if grants {
                assert_eq!(take().unwrap(), 9_007_199_254_740_992);
            }
            assert_eq!(kind_of(take()), ErrorKind::Refused, "no token is greater than {last}");
            assert_eq!(server.query::<i64>(&["EXISTS", &name]), 0);
        }
    }
}

#[test]
fn re_entering_and_a_busy_try_draw_no_token() {
    let (server, name) = (RedisServer::shared(), fresh("fenced"));
    let lock = client().get_fenced_lock(&name);
    let outer = lock.lock().unwrap();
    let token = outer.token();
    let inner = [lock.lock().unwrap(), lock.try_lock().unwrap().unwrap(), lock.with_lease(ms(60_000)).lock().unwrap()];
    assert!(inner.iter().all(|guard| guard.token() == token));
    let others = client().get_fenced_lock(&name);
    assert!(others.try_lock().unwrap().is_none() && others.try_lock_for(ms(50)).unwrap().is_none());
    assert_eq!(counter(server, &name), Some(token.value()));
    drop(outer);
    assert!(inner.iter().all(|guard| guard.token() == token), "whichever guard is left");
}

#[test]
fn only_fenced_locks_have_tokens() {
    let client = client();
    for guard in [
        client.get_lock(fresh("plain")).lock().unwrap(),
        client.get_fair_lock(fresh("fair")).lock().unwrap(),
        client.get_spin_lock(fresh("spin")).lock().unwrap(),
        client.get_read_write_lock(fresh("rw")).write().lock().unwrap(),
    ] {
        assert_eq!(guard.hold().token(), None);
    }
    // A guard of a fenced lock always has a token, so no fenced guard can come from a plain hold.
    let name = fresh("both");
    let plain = client.get_lock(&name).lock().unwrap();
    assert_eq!(kind_of(client.get_fenced_lock(&name).lock()), ErrorKind::OtherKind);
    elsewhere(|| {
        assert!(client.get_fenced_lock(&name).try_lock().unwrap().is_none(), "for other clients the lock is busy")
    });
    plain.unlock().unwrap();
    client.get_fenced_lock(&name).lock().unwrap().unlock().unwrap();
}

#[test]
fn the_state_is_the_plain_locks_and_a_counter_without_end() {
    for name in ["job", "{tag}:job", "a{b}c"] {
        let server = RedisServer::start();
        let lock = Client::connect(&server.url()).unwrap().get_fenced_lock(name);
        let guard = lock.lock().unwrap();
        let token = guard.token();
        assert_eq!(fields(&server, name), [(guard.owner().to_owned(), "1".to_owned())]);
        assert_eq!(server.query::<String>(&["GET", &token_key(name)]), token.value().to_string());
        assert_eq!(token.to_string(), token.value().to_string());
        assert_eq!(ttl_ms(&server, &token_key(name)), -1);
        guard.unlock().unwrap();
        assert_eq!(server.keys(), [token_key(name)]);
        assert!(!lock.force_unlock().unwrap());
        drop(lock.with_lease(ms(500)).lock().unwrap());
        let _guard = lock.lock().unwrap();
        assert!(lock.force_unlock().unwrap());
        assert_eq!(ttl_ms(&server, &token_key(name)), -1, "a forced release leaves the counter alone");
    }
}

#[test]
fn tokens_go_on_rising_whatever_became_of_the_counter() {
    let (server, client) = alone();
    let lock = client.get_fenced_lock("job");
    let mut last = lock.lock().unwrap().token();
    let mut check = |what: &str| {
        let token = lock.try_lock_for(SOON).unwrap().unwrap().token();
        assert!(token > last, "{what}: {token:?} after {last:?}");
        last = token;
    };
    let key = token_key("job");
    for words in [
        &["DEL", &key] as &[&str],
        &["FLUSHALL"],
        &["SET", &key, "7"],
        &["SET", &key, "no number"],
        &["SET", &key, "-9"],
    ] {
        server.run(words);
        check(&words.join(" "));
    }
    for _ in 0..2 {
        server.restart(); // with no data
        check("restarted empty");
    }
    assert!(last.value() >= now_us(&server) - 60_000_000, "at least the time in microseconds");
}

#[test]
fn tokens_follow_a_java_client_that_counts_one_by_one() {
    let (server, name) = (RedisServer::shared(), fresh("fenced"));
    let lock = client().get_fenced_lock(&name);
    let mut last = lock.lock().unwrap().token().value();
    for _ in 0..5 {
        // The effect of a grant to Redisson on the counter.
        let java: u64 = server.query(&["INCR", &token_key(&name)]);
        assert_eq!(java, last + 1);
        last = lock.lock().unwrap().token().value();
        assert!(last > java, "{last} after {java}");
    }
    // A counter ahead of the clock goes on in steps of 1.
    let ahead = now_us(server) + 3_600_000_000;
    server.run(&["SET", &token_key(&name), &ahead.to_string()]);
    for next in 1..=3 {
        assert_eq!(lock.lock().unwrap().token().value(), ahead + next);
    }
}

#[test]
fn no_token_is_given_twice_across_threads_and_processes() {
    const EACH: usize = 100;
    let (server, client) = alone();
    let mut processes = [OtherProcess::start(&server), OtherProcess::start(&server)];
    for process in &mut processes {
        (0..2).for_each(|lane| process.send(lane, &format!("tokens fenced job {EACH}")));
    }
    let mut series: Vec<Vec<u64>> = thread::scope(|scope| {
        let take = || (0..EACH).map(|_| client.get_fenced_lock("job").lock().unwrap().token().value()).collect();
        [(); 2].map(|()| scope.spawn(take)).map(joined).to_vec()
    });
    for process in &mut processes {
        for lane in 0..2 {
            series.push(process.answer(lane).split(' ').map(|token| token.parse().unwrap()).collect());
        }
    }
    assert!(series.iter().all(|series| series.len() == EACH && series.is_sorted_by(|a, b| a < b)));
    let mut all: Vec<u64> = series.concat();
    all.sort_unstable();
    let greatest = all.last().copied();
    all.dedup();
    assert_eq!(all.len(), 6 * EACH);
    assert_eq!(counter(&server, "job"), greatest, "the counter is the last token");
}

#[test]
fn a_take_whose_answer_was_lost_has_the_token_that_it_drew() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let lock = Client::connect(&proxy.url()).unwrap().get_fenced_lock("job");
    drop(lock.lock().unwrap());
    let mut last = counter(&server, "job");
    for cut in [0, 1, 8] {
        let rule = proxy.rule(When::script(), Then::CutReplyAfter(cut));
        let guard = lock.try_lock_for(SOON).unwrap().expect("no other client wants the lock");
        rule.wait_hit(SOON);
        let token = Some(guard.token().value());
        assert!(token == counter(&server, "job") && token > last, "{token:?} after {last:?}");
        last = token;
        guard.unlock().unwrap();
    }
}

#[test]
fn a_grant_with_a_lost_answer_and_counter_has_a_token() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let client = Client::builder(&proxy.url()).command_timeout(ms(2_000)).connect().unwrap();
    let lock = client.get_fenced_lock("job");
    let first = lock.lock().unwrap().token();
    let held = proxy.rule(When::script(), Then::HoldReply);
    let fence = proxy.rule(When::command("CLIENT").that(|request| request.text(0) == "KILL"), Then::HoldRequest);
    thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let guard = lock.try_lock_for(SOON).unwrap().expect("no other client wants the lock");
            (guard.token(), guard.is_held())
        });
        held.wait_hit(SOON);
        // The connection breaks before the answer, and meanwhile the counter is deleted.
        fence.wait_hit(SOON);
        server.run(&["DEL", &token_key("job")]);
        fence.release();
        let (token, held) = joined(taker);
        assert!(held && token > first, "{token:?} after {first:?}");
    });
}

#[test]
fn a_counter_that_is_none_is_refused_and_leaves_no_lock() {
    let (server, name) = (RedisServer::shared(), fresh("fenced"));
    let lock = client().get_fenced_lock(&name);
    server.run(&["RPUSH", &token_key(&name), "1"]);
    for outcome in [lock.lock().map(Some), lock.try_lock(), lock.try_lock_for(ms(100))] {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGTYPE")));
    }
    assert!(fields(server, &name).is_empty());
    server.run(&["DEL", &token_key(&name)]);
    assert!(lock.try_lock().unwrap().is_some());
}

#[test]
fn a_store_that_asks_for_the_token_rejects_the_late_writer() {
    let (server, name) = (RedisServer::shared(), fresh("fenced"));
    let (token, value) = (format!("{name}:newest"), format!("{name}:value"));
    let write = |by: &Guard<FencingToken>, text: &str| -> bool {
        let by = by.token().to_string();
        server.query::<u8>(&["EVAL", ACCEPT_IF_NOT_OLDER, "2", &token, &value, &by, text]) == 1
    };
    let read = || server.query::<String>(&["GET", &value]);
    let (ours, theirs) = (client().get_fenced_lock(&name), client().get_fenced_lock(&name));
    let late = ours.with_lease(ms(200)).lock().unwrap();
    assert!(write(&late, "first"), "the first run ever");
    assert!(write(&late, "second"), "as often as one likes");
    let successor = theirs.try_lock_for(SOON).unwrap().expect("the lease ends");
    assert!(write(&late, "third"), "the store has not heard of the successor yet");
    assert!(write(&successor, "fourth"));
    assert!(!write(&late, "fifth"));
    assert_eq!(read(), "fourth");
    assert!(write(&successor, "sixth"));
    assert_eq!(read(), "sixth");
    assert_eq!(kind_of(late.unlock()), ErrorKind::Lost(Loss::Expired));
    successor.unlock().unwrap();
    // As numbers, to the last digit.
    for (newest, accepted) in [("1000000000000000", true), ("999999999999999", false), ("1000000000000001", true)] {
        let key = format!("{name}:numbers");
        let told: u8 = server.query(&["EVAL", ACCEPT_IF_NOT_OLDER, "2", &key, &value, newest, "x"]);
        assert_eq!(told == 1, accepted, "{newest}");
    }
}

#[test]
fn a_grant_without_a_token_is_given_back() {
    let (server, name) = (RedisServer::start(), fresh("fenced"));
    let proxy = Proxy::start(server.address());
    let lock = Client::connect(&proxy.url()).unwrap().get_fenced_lock(&name);
    proxy.rule(When::script(), Then::ReplaceReply(b"*1\r\n:1\r\n".to_vec()));
    let error = lock.lock().unwrap_err();
    assert_eq!((error.kind(), error.lock_name()), (ErrorKind::Connection, Some(&*name)), "{error}");
    assert_eq!(fields(&server, &name), []);
    assert!(!lock.is_held_by_current_thread());
}

#[test]
fn a_fenced_lock_among_others_still_tells_its_token() {
    let client = client();
    let name = fresh("fenced");
    let locks: [Lock; 2] =
        [client.get_fenced_lock(&name).with_lease(ms(5_000)).into(), client.get_lock(fresh("plain"))];
    let guard = locks[0].lock().unwrap();
    assert!(ttl_ms(RedisServer::shared(), &name) <= 5_000, "the modifiers stay");
    assert_eq!(guard.hold().token(), Some(client.get_fenced_lock(&name).lock().unwrap().token()));
}

#[test]
fn a_token_is_a_plain_number_that_can_be_kept_compared_and_sent() {
    fn check<T: Copy + Ord + Send + Sync + std::hash::Hash + 'static>(_: T) {}
    check(client().get_fenced_lock(fresh("fenced")).lock().unwrap().token());
}

fn token_key(name: &str) -> String {
    if name.contains('{') { format!("redisson_lock_token:{name}") } else { format!("redisson_lock_token:{{{name}}}") }
}

#[track_caller]
fn counter(server: &RedisServer, name: &str) -> Option<u64> {
    server.query(&["GET", &token_key(name)])
}

#[track_caller]
fn now_us(server: &RedisServer) -> u64 {
    let (seconds, micros): (u64, u64) = server.query(&["TIME"]);
    seconds * 1_000_000 + micros
}
