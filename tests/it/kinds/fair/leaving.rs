//! Waiters that give up leave nothing behind, and pass a received wake-up on.

use super::{Queue, hasty_client, leave};
use crate::support::prelude::*;

#[test]
fn a_wait_that_ends_by_time_or_by_a_cancel_leaves_no_entry() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let guard = client().get_fair_lock(&name).lock().unwrap();
    thread::scope(|scope| {
        let patient = queue.waiter(scope, client().get_fair_lock(&name), leave);
        let alive = queue.owners();
        let others = client().get_fair_lock(&name);
        assert!(others.try_lock_for(ms(100)).unwrap().is_none());
        assert_eq!(queue.owners(), alive, "after the wait was over");

        let stop = Cancel::new();
        let cancellable = others.with_cancel(&stop);
        let cancelled = scope.spawn(move || kind_of(cancellable.lock()));
        queue.await_length(2);
        stop.cancel();
        assert_eq!(joined(cancelled), ErrorKind::Cancelled);
        eventually(ms(2_000), "the waiter left the queue", || queue.owners() == alive);
        assert_eq!(queue.left_ms().len(), 1);

        let released = Instant::now();
        guard.unlock().unwrap();
        let waited = joined(patient).0 - released;
        assert!(waited <= SCHEDULING, "{waited:?}");
    });
    queue.assert_gone();
}

#[test]
fn a_wait_that_fails_leaves_no_entry() {
    let faults = [
        ("'hset', KEYS[1], 'mode', 'read', 'somebody:1', 1", (ErrorKind::OtherKind, None)), // a read-write lock
        ("'set', KEYS[1], 'something else'", (ErrorKind::Refused, Some("WRONGTYPE"))),
    ];
    for (write, told) in faults {
        let (server, name) = (RedisServer::shared(), fresh("fair"));
        let queue = Queue { server, name: &name };
        let guard = client().get_fair_lock(&name).lock().unwrap();
        thread::scope(|scope| {
            let failing = scope.spawn(|| client().get_fair_lock(&name).lock().map(drop).unwrap_err());
            queue.await_length(1);
            guard.keep_until_expiry();
            // In one script: the waiter may send a request between two commands.
            let overwrite = format!("redis.call('del', KEYS[1]) redis.call({write})");
            server.run(&["EVAL", &overwrite, "1", &name]);
            let error = joined(failing);
            assert_eq!((error.kind(), error.redis_word()), told);
        });
        eventually(ms(2_000), "the waiter left the queue", || queue.owners().is_empty() && queue.left_ms().is_empty());
        server.run(&["DEL", &name]);
    }
}

#[test]
fn a_withdrawal_whose_answer_was_lost_leaves_no_entry() {
    at_once([Then::SwallowReply, Then::SwallowRequest, Then::CutBeforeRequest, Then::CutReplyAfter(1)], |then| {
        let server = RedisServer::start();
        let queue = Queue { server: &server, name: "job" };
        let proxy = Proxy::start(server.address());
        let disturbed = Client::builder(&proxy.url()).command_timeout(ms(1_000)).connect().unwrap();
        let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
        let leaving: String = server.query(&["SCRIPT", "LOAD", include_str!("../../../../lua/fair/leave.lua")]);
        let rule = proxy.rule(When::script().that(move |request| request.text(0) == leaving), then.clone());
        let (took, got) = timed(|| disturbed.get_fair_lock("job").try_lock_for(ms(100)).unwrap().is_some());
        assert!(!got);
        assert!(took <= ms(100) + GRACE + SCHEDULING * 2, "{then:?}: {took:?}");
        rule.wait_hit(SOON);
        eventually(SOON, "the waiter is out of the queue", || queue.owners().is_empty() && queue.left_ms().is_empty());
        guard.unlock().unwrap();
        queue.assert_gone();
    });
}

#[test]
fn a_waiter_that_gives_up_passes_its_turn_on() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let proxy = Proxy::start(server.address());
    // The first waiter never receives the message of the release.
    proxy.rule(When::message().always(), Then::SwallowReply);
    let deaf = Client::connect(&proxy.url()).unwrap();
    for _ in 0..3 {
        let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
        let stop = Cancel::new();
        thread::scope(|scope| {
            let first = scope.spawn(|| deaf.get_fair_lock("job").with_cancel(&stop).lock().map(drop));
            queue.await_length(1);
            let next = queue.waiter(scope, hasty_client(&server).get_fair_lock("job"), leave);
            let mut stranger = server.connection();
            let mut messages = stranger.as_pubsub();
            messages.subscribe(queue.channel_of(&queue.owners()[1])).unwrap();
            // The first waiter has just asked, so the waiter sleeps for a second.
            let asked = proxy.wait_for_since(proxy.mark(), &When::script(), SOON);
            proxy.wait_fate(&asked, SOON);
            guard.unlock().unwrap();
            let told = Instant::now();
            stop.cancel();
            assert_eq!(kind_of(joined(first)), ErrorKind::Cancelled);
            assert_eq!(
                messages.get_message().unwrap().get_payload::<String>().unwrap(),
                "0",
                "the wake-up was passed on"
            );
            let waited = joined(next).0 - told;
            assert!(waited <= SCHEDULING, "{waited:?}");
        });
        queue.assert_gone();
    }
}

#[test]
fn a_wait_cancelled_while_the_server_is_mute_ends_at_once() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let proxy = Proxy::start(server.address());
    let _guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
    let client = Client::connect(&proxy.url()).unwrap();
    let stop = Cancel::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| kind_of(client.get_fair_lock("job").with_cancel(&stop).lock()));
        queue.await_length(1);
        queue.await_listening(&queue.owners()[0]);
        let asked = proxy.wait_for_since(proxy.mark(), &When::script(), SOON);
        proxy.wait_fate(&asked, SOON);
        // The waiter has just asked and sleeps for a second.
        proxy.mute(Scope::All, Direction::Both);
        let (took, kind) = timed(|| {
            stop.cancel();
            joined(waiter)
        });
        assert_eq!(kind, ErrorKind::Cancelled);
        assert!(took <= GRACE + SCHEDULING, "{took:?}");
        proxy.heal();
        eventually(SOON, "the waiter still leaves the queue", || queue.owners().is_empty());
    });
}

#[test]
fn many_waits_that_end_leave_deadlines_within_reason() {
    const WAITERS: usize = 30;
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let client = hasty_client(server);
    let guard = client.get_fair_lock(&name).with_lease(Duration::from_secs(30)).lock().unwrap();
    thread::scope(|scope| {
        let (client, name) = (&client, &name);
        for wait in 0..WAITERS as u64 {
            scope.spawn(move || {
                assert!(client.get_fair_lock(name).try_lock_for(ms(100 + 20 * wait)).unwrap().is_none())
            });
        }
        let last = scope.spawn(move || client.get_fair_lock(name).try_lock_for(ms(1_500)).unwrap().is_some());
        let mut farthest = 0;
        while !last.is_finished() {
            farthest = farthest.max(queue.left_ms().into_values().max().unwrap_or(0));
        }
        assert!(!joined(last));
        let most = 30_000 + 2_000 * (WAITERS as i64 + 1);
        assert!((1..=most).contains(&farthest), "{farthest}");
    });
    assert!(queue.owners().is_empty() && queue.left_ms().is_empty());
    guard.unlock().unwrap();
    queue.assert_gone();
}

#[test]
fn waiters_of_a_closed_client_delay_no_other() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let doomed = Client::builder(&server.url()).drop_timeout(SOON).connect().unwrap();
    let guard = client().get_fair_lock(&name).lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| scope.spawn(|| kind_of(doomed.get_fair_lock(&name).lock()))).collect();
        queue.await_length(5);
        let live = queue.waiter(scope, client().get_fair_lock(&name), leave);
        let owner = queue.owners().pop();
        doomed.close();
        assert_eq!(queue.owners(), Vec::from_iter(owner), "the waiters of the closed client have left the queue");
        assert_eq!(queue.left_ms().len(), 1);
        let released = Instant::now();
        guard.unlock().unwrap();
        let waited = joined(live).0 - released;
        assert!(waited <= SCHEDULING, "{waited:?}");
        assert!(waiters.into_iter().all(|waiter| joined(waiter) == ErrorKind::Closed));
    });
    queue.assert_gone();
}

#[test]
fn a_late_last_answer_and_the_leave_share_one_time_out() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let proxy = Proxy::start(server.address());
    let (wait, command_timeout) = (ms(300), ms(3_000));
    let slow = Client::builder(&proxy.url()).command_timeout(command_timeout).connect().unwrap();
    let queue = Queue { server, name: &name };
    slow.get_fair_lock(fresh("fair")).lock().unwrap().unlock().unwrap(); // the scripts are known
    let guard = client().get_fair_lock(&name).lock().unwrap();
    let leaving: String = server.query(&["SCRIPT", "LOAD", include_str!("../../../../lua/fair/leave.lua")]);
    let leaves = |request: &Request, leaving: &str| request.text(0) == leaving;
    let asks = || {
        let leaving = leaving.clone();
        When::script().containing(&name).that(move |request| !leaves(request, &leaving))
    };
    // The question at the end of the wait is answered at the second try, and late.
    proxy.rule(asks().nth(2), Then::SwallowReply);
    proxy.rule(asks().nth(3), Then::DelayReply(ms(1_000)));
    proxy.rule(When::script().that(move |request| leaves(request, &leaving)).times(4), Then::SwallowReply);
    let (took, outcome) = timed(|| slow.get_fair_lock(&name).try_lock_for(wait));
    assert!(outcome.unwrap().is_none());
    assert!(took > wait + ms(1_900), "the last answer was late: {took:?}");
    assert!(took <= wait + command_timeout + ms(50) + SCHEDULING, "{took:?}");
    guard.unlock().unwrap();
    drop(slow);
    eventually(SOON, "the background has left the queue", || queue.owners().is_empty());
}
