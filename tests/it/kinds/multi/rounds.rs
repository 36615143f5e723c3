//! The rounds of a take: the lock a caller waits for, the locks a waiter holds, and the keys that failed rounds leave.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

use lockson::Backoff;

use super::names;
use crate::support::prelude::*;
use crate::support::{Busy, listeners};

fn plain(client: &Client, names: &[&String]) -> Lock {
    Lock::multi(names.iter().map(|name| client.get_lock(name)))
}

/// Checks that no key of these locks is left: no hold and no queue.
#[track_caller]
fn assert_no_trace(server: &RedisServer, names: &[String]) {
    let keys = server.keys();
    let left: Vec<_> = keys.iter().filter(|key| names.iter().any(|name| key.contains(name.as_str()))).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_holder_of_one_and_a_taker_of_both_get_through() {
    let (ours, theirs) = (client(), client());
    // Plain locks are taken by one request, and fenced locks one by one.
    let fenced: fn(&Client, &str) -> Lock = |client, name| client.get_fenced_lock(name).into();
    let kinds: [fn(&Client, &str) -> Lock; 2] = [|client, name| client.get_lock(name), fenced];
    for (client, kind) in [(&ours, kinds[0]), (&theirs, kinds[0]), (&ours, kinds[1]), (&theirs, kinds[1])] {
        for round in 0..10 {
            let [one, two] = names();
            let multi = |client: &Client| Lock::multi([kind(client, &one), kind(client, &two)]);
            let (first, second) = (Barrier::new(2), Barrier::new(2));
            let (took, ()) = timed(|| {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let held = kind(&ours, &two).lock().unwrap();
                        first.wait();
                        second.wait();
                        let guard = multi(&ours).lock().unwrap();
                        guard.unlock().unwrap();
                        held.unlock().unwrap();
                    });
                    scope.spawn(|| {
                        first.wait();
                        second.wait();
                        multi(client).lock().unwrap().unlock().unwrap();
                    });
                });
            });
            assert!(took < ms(900) + SCHEDULING, "round {round}: {took:?}");
            assert!(is_free(&multi(&theirs)));
        }
    }
}

#[test]
fn a_waiting_group_blocks_no_thread_at_its_free_members() {
    let (client, names) = (client(), names::<3>());
    let held = crate::support::client().get_lock(&names[0]).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..3).map(|_| scope.spawn(|| plain(&client, &names.each_ref()).lock().map(drop))).collect();
        eventually(SOON, "a group waits", || listeners(RedisServer::shared(), &names[0]) == 1);
        for _ in 0..20 {
            for name in &names[1..] {
                let (took, guard) = timed(|| client.get_lock(name).lock().unwrap());
                assert!(took < SCHEDULING, "{took:?}");
                thread::sleep(ms(1));
                guard.unlock().unwrap();
            }
        }
        held.unlock().unwrap();
        waiters.into_iter().for_each(|waiter| joined(waiter).unwrap());
    });
    assert_no_trace(RedisServer::shared(), &names);
}

#[test]
fn groups_that_fail_on_one_member_wake_nobody_at_the_others() {
    const THREADS: usize = 50;
    let (server, client) = alone();
    let names = names::<3>();
    let held = Client::connect(&server.url()).unwrap().get_lock(&names[2]).owned().lock().unwrap();
    let mut connection = server.connection();
    let mut messages = connection.as_pubsub();
    messages.psubscribe("*").unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let multi = plain(&client, &[&names[number % 2], &names[1 - number % 2], &names[2]]);
            scope.spawn(move || {
                assert!(multi.try_lock().unwrap().is_none());
                assert!(multi.try_lock_for(ms(300)).unwrap().is_none());
            });
        }
    });
    server.run(&["PUBLISH", "end", "of test"]);
    let mut heard = vec![];
    loop {
        match messages.get_message().unwrap().get_channel_name() {
            "end" => break,
            other => heard.push(other.to_owned()),
        }
    }
    assert_eq!(heard, Vec::<String>::new());
    held.unlock().unwrap();
    assert_eq!(messages.get_message().unwrap().get_channel_name(), channel(&names[2]));
    assert_eq!(client.held(), []);
}

#[test]
fn a_failed_group_leaves_the_queue_of_a_fair_member() {
    let (client, names) = (client(), names::<2>());
    for busy in [0, 1] {
        let theirs = crate::support::client();
        let multi = Lock::multi([client.get_fair_lock(&names[0]), client.get_lock(&names[1])]);
        let held = match busy {
            0 => theirs.get_fair_lock(&names[0]).owned().lock().unwrap(),
            _ => theirs.get_lock(&names[1]).owned().lock().unwrap(),
        };
        let before = fields(RedisServer::shared(), &names[busy]);
        let queued = || RedisServer::shared().keys().iter().any(|key| key.contains(&format!("_queue:{{{}", names[0])));
        assert!(multi.try_lock().unwrap().is_none());
        assert!(!queued(), "a caller that does not wait does not queue");
        assert!(multi.try_lock_for(ms(100)).unwrap().is_none());
        assert!(!queued(), "a caller that gave up");
        let cancel = Cancel::new();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| kind_of(multi.with_cancel(&cancel).lock()));
            eventually(SOON, "it waits", || !client.waiting().is_empty());
            assert!(busy == 1 || queued());
            cancel.cancel();
            assert_eq!(joined(waiter), ErrorKind::Cancelled);
        });
        assert!(!queued(), "a cancelled caller");
        assert_eq!(fields(RedisServer::shared(), &names[busy]), before);
        held.unlock().unwrap();
        assert_no_trace(RedisServer::shared(), &names);
    }
}

#[test]
fn a_member_that_got_short_is_extended_before_the_return() {
    let (client, names) = (client(), names::<3>());
    // The re-entry at the beginning of the wait is the only grant that grows old.
    let outer = client.get_lock(&names[0]).lock().unwrap();
    let lease = ms(1_500);
    let theirs = crate::support::client().get_lock(&names[1]).with_lease(ms(1_000)).owned().lock().unwrap();
    outer.keep_until_expiry();
    theirs.keep_until_expiry();
    let again = client.get_lock(&names[0]);
    assert!(!again.is_held_by_current_thread());
    RedisServer::shared().run(&["DEL", &names[0]]);
    let _outer = again.with_lease(ms(1_400)).lock().unwrap();
    let guard = plain(&client, &names.each_ref()).with_lease(lease).lock().unwrap();
    for member in guard.hold().members() {
        assert!(member.remaining() >= lease / 2 - ms(100), "{member:?}");
        assert!(ttl_ms(RedisServer::shared(), member.name()) >= 650);
    }
    guard.unlock().unwrap();
    // What the take needed was promised to no outer section.
    assert!(ttl_ms(RedisServer::shared(), &names[0]) < 650);
}

#[test]
fn a_lease_that_is_shorter_than_the_rounds_is_never_handed_out() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let proxy = Proxy::start(servers[1].address());
    let (quick, slow) = (Client::connect(&servers[0].url()).unwrap(), Client::connect(&proxy.url()).unwrap());
    let multi = Lock::multi([quick.get_lock("quick").with_lease(ms(400)), slow.get_lock("slow")]);
    multi.lock().unwrap().unlock().unwrap();
    let late = proxy.rule(When::script().times(2), Then::DelayReply(ms(600)));
    let guard = multi.lock().unwrap();
    assert!(late.hits() >= 1);
    for (server, member) in servers.iter().zip(guard.hold().members()) {
        let held = fields(server, member.name());
        assert_eq!(held, [(member.owner().to_owned(), "1".to_owned())], "{guard:?}");
        assert!(member.is_held());
    }
    assert!(guard.remaining() >= ms(100), "{guard:?}");
    guard.unlock().unwrap();
    assert!(servers.iter().all(|server| server.keys().is_empty()));
}

#[test]
fn a_member_lost_before_the_last_grant_is_taken_again() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let proxy = Proxy::start(servers[1].address());
    let (first, second) = (Client::connect(&servers[0].url()).unwrap(), Client::connect(&proxy.url()).unwrap());
    let multi = Lock::multi([first.get_lock("a"), second.get_lock("b")]);
    multi.lock().unwrap().unlock().unwrap();
    let busy = Client::connect(&servers[0].url()).unwrap().get_lock("a").owned().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = multi.lock().unwrap();
            for (server, member) in servers.iter().zip(guard.hold().members()) {
                assert_eq!(fields(server, member.name()), [(member.owner().to_owned(), "1".to_owned())]);
            }
            assert!(guard.is_held());
            guard.unlock().unwrap();
        });
        eventually(SOON, "it waits", || !first.waiting().is_empty());
        let last = proxy.rule(When::script(), Then::HoldReply);
        busy.unlock().unwrap();
        proxy.wait_fate(&last.wait_hit(SOON), SOON);
        assert_eq!(first.held().len(), 1, "the first is granted");
        assert!(first.get_lock("a").force_unlock().unwrap());
        last.release();
        joined(waiter);
    });
    assert!(servers.iter().all(|server| server.keys().is_empty()));
}

#[test]
fn a_cancel_between_two_members_leaves_nothing_held() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let proxy = Proxy::start(servers[1].address());
    let first = Client::connect(&servers[0].url()).unwrap();
    let second = Client::builder(&proxy.url()).command_timeout(ms(500)).connect().unwrap();
    for held in [Then::HoldRequest, Then::HoldReply] {
        let multi = Lock::multi([first.get_lock("a"), second.get_lock("b")]);
        multi.lock().unwrap().unlock().unwrap();
        let cancel = Cancel::new();
        thread::scope(|scope| {
            let rule = proxy.rule(When::script(), held);
            let waiter = scope.spawn(|| kind_of(multi.with_cancel(&cancel).lock()));
            let request = rule.wait_hit(SOON);
            cancel.cancel();
            let (took, kind) = timed(|| joined(waiter));
            assert!(matches!(kind, ErrorKind::Cancelled | ErrorKind::Unknown), "{kind:?}");
            assert!(took < ms(1_500) + SCHEDULING, "{took:?}");
            assert_eq!((first.held(), second.held()), (vec![], vec![]));
            assert_eq!(servers[0].keys(), Vec::<String>::new(), "the member that was granted is given back");
            rule.release();
            proxy.wait_fate(&request, SOON);
        });
        eventually(SOON, "the other is given back", || servers[1].keys().is_empty());
    }
}

#[test]
fn a_panic_in_the_pauses_of_a_member_gives_back_the_others() {
    let (client, names) = (client(), names::<3>());
    let panics = Backoff::new(|_| panic!("this panic is part of the test"));
    let multi = Lock::multi([
        client.get_lock(&names[0]),
        client.get_spin_lock_with(&names[1], panics),
        client.get_fair_lock(&names[2]),
    ]);
    let re_entered = client.get_lock(&names[0]).lock().unwrap();
    let held = crate::support::client().get_spin_lock(&names[1]).owned().lock().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(multi.lock()))).is_err());
    assert_eq!(client.get_lock(&names[0]).hold_count(), 1, "the re-entry is given back");
    re_entered.unlock().unwrap();
    held.unlock().unwrap();
    assert_no_trace(RedisServer::shared(), &names);
    multi.lock().unwrap().unlock().unwrap();
    assert_eq!((client.held(), client.waiting()), (vec![], vec![]));
}

#[test]
fn an_outage_while_parts_are_held_does_not_end_the_take() {
    let server = Arc::new(RedisServer::start());
    let proxies = [Proxy::start(server.address()), Proxy::start(server.address())];
    let clients = proxies.each_ref().map(|proxy| Client::connect(&proxy.url()).unwrap());
    let multi = Lock::multi([clients[0].get_lock("a"), clients[1].get_lock("b")]);
    multi.lock().unwrap().unlock().unwrap();
    // Each lock is busy while the other one is held: each round is in vain.
    let acquire: String = server.query(&["SCRIPT", "LOAD", include_str!("../../../../lua/plain/acquire.lua")]);
    for (proxy, other) in proxies.iter().zip(["b", "a"]) {
        let (acquire, server, asked) = (acquire.clone(), Arc::clone(&server), AtomicUsize::new(0));
        let is_busy = move |request: &Request| {
            let is_first = request.text(0) == acquire && asked.fetch_add(1, Ordering::SeqCst) == 0 && other == "a";
            request.text(0) == acquire && (is_first || server.query(&["EXISTS", other]))
        };
        let busy = Then::AnswerInstead(b"*2\r\n:0\r\n:20\r\n".to_vec());
        proxy.rule(When::script().times(usize::MAX).that(is_busy), busy);
    }
    thread::scope(|scope| {
        let taken = scope.spawn(|| multi.lock().map(|guard| guard.is_held()));
        for _ in 0..8 {
            thread::sleep(ms(100));
            for proxy in &proxies {
                proxy.new_connections(NewConnections::Refuse);
                proxy.cut(Scope::All);
            }
            thread::sleep(ms(250));
            proxies.iter().for_each(|proxy| proxy.new_connections(NewConnections::Accept));
        }
        assert!(!taken.is_finished(), "{:?}", joined(taken));
        proxies.iter().for_each(Proxy::heal);
        assert!(joined(taken).unwrap());
    });
    eventually(SOON, "nothing is left", || server.keys().is_empty());
}

#[test]
fn hot_members_do_not_starve_a_group() {
    const TAKES: u32 = 10;
    let (ours, names) = (client(), names::<2>());
    let members = names.each_ref().map(|name| Busy::new(client().get_lock(name)));
    thread::scope(|scope| {
        members.iter().for_each(|member| member.start(scope, (8, ms(2))));
        let multi = plain(&ours, &names.each_ref());
        let mut longest = Duration::ZERO;
        for _ in 0..TAKES {
            let (took, guard) = timed(|| multi.try_lock_for(SOON * 2));
            longest = longest.max(took);
            guard.unwrap().expect("the group gets its turn").unlock().unwrap();
        }
        members.iter().for_each(Busy::end);
        println!("longest wait of a group over two hot members: {longest:?}");
    });
    assert_no_trace(RedisServer::shared(), &names);
}

#[test]
fn several_locks_do_not_ask_ahead_of_threads_of_their_process() {
    let (server, names) = (RedisServer::shared(), names::<2>());
    let proxy = Proxy::start(server.address());
    let ours = Client::connect(&proxy.url()).unwrap();
    let held = client().get_lock(&names[0]).owned().lock().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| ours.get_lock(&names[0]).lock().unwrap().unlock());
        eventually(SOON, "a thread waits in line", || ours.waiting().len() == 1);
        let mark = proxy.mark();
        let several = scope.spawn(|| plain(&ours, &names.each_ref()).lock().unwrap().unlock());
        eventually(SOON, "so does the caller of both", || ours.waiting().len() == 2);
        assert!(proxy.fitting_since(mark, &When::script().containing(&names[1])).is_empty(), "it asked before");
        held.unlock().unwrap();
        joined(first).unwrap();
        joined(several).unwrap();
    });
    assert_no_trace(server, &names);
}

#[test]
fn no_question_follows_an_answer_that_came_too_late() {
    let (server, [one, two], other) = (RedisServer::shared(), names(), client());
    let proxy = Proxy::start(server.address());
    let (wait, late) = (ms(1_000), ms(1_000));
    let slow = Client::builder(&proxy.url()).command_timeout(ms(4_000)).connect().unwrap();
    let multi = Lock::multi([slow.get_lock(&one), slow.get_fair_lock(&two)]);
    multi.lock().unwrap().unlock().unwrap(); // the scripts are known
    let first = other.get_lock(&one).lock().unwrap();
    let (took, outcome) = thread::scope(|scope| {
        let waits = scope.spawn(|| timed(|| multi.try_lock_for(wait).map(|guard| guard.is_some())));
        eventually(SOON, "it waits", || !slow.waiting().is_empty());
        thread::sleep(ms(500));
        let second = other.get_fair_lock(&two).lock().unwrap();
        // The first lock is granted when the time is over, and the other one is busy; no further answer would come.
        proxy.rule(When::script().containing(&one), Then::DelayReply(late));
        (2..6).for_each(|nth| _ = proxy.rule(When::script().containing(&two).nth(nth), Then::SwallowReply));
        first.unlock().unwrap();
        let outcome = joined(waits);
        second.unlock().unwrap();
        outcome
    });
    assert!(matches!(outcome, Ok(false)), "{outcome:?} after {took:?}");
    assert!(took > wait && took < wait + late + ms(50) + SCHEDULING, "{took:?}");
    drop((multi, slow));
    eventually(SOON, "nothing is left", || server.keys().iter().all(|key| !key.contains(&one) && !key.contains(&two)));
}
