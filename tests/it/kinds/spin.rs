//! The special property of the spin lock: no messages; waiters ask again after pauses.

use std::panic::catch_unwind;

use lockson::Backoff;

use crate::support::handed_over;
use crate::support::prelude::*;

#[test]
fn spin_waiters_neither_listen_nor_get_messages() {
    let server = RedisServer::start();
    let [ours, theirs] = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
    for backoff in [Backoff::default(), Backoff::fixed(ms(50))] {
        let guard = ours.get_spin_lock("job").lock().unwrap();
        thread::scope(|scope| {
            let waiters = [&ours, &theirs].map(|client| {
                let lock = client.get_spin_lock_with("job", backoff.clone());
                scope.spawn(move || {
                    assert!(lock.try_lock_for(ms(100)).unwrap().is_none());
                    lock.lock().unwrap().unlock().unwrap();
                })
            });
            let asked = server.calls_of("evalsha");
            eventually(SOON, "they ask", || server.calls_of("evalsha") > asked + 20);
            assert_eq!(server.channels(), Vec::<String>::new());
            guard.unlock().unwrap();
            waiters.into_iter().for_each(joined);
        });
        let _guard = ours.get_spin_lock("job").lock().unwrap();
        assert!(theirs.get_spin_lock("job").force_unlock().unwrap());
    }
    let calls = server.calls();
    for command in ["ssubscribe", "psubscribe", "publish", "spublish"] {
        assert!(!calls.contains_key(command), "{command}: {calls:?}");
    }
    // A holder may listen for changes of its key, and for nothing else.
    assert!(calls.get("subscribe").is_none_or(|calls| *calls == 1), "{calls:?}");
    assert!(server.keys().is_empty());
}

#[test]
fn the_state_is_the_plain_locks() {
    let (server, name) = (RedisServer::shared(), fresh("spin"));
    let client = client();
    let spin = client.get_spin_lock(&name).lock().unwrap();
    assert_eq!(fields(server, &name), [(spin.owner().to_owned(), "1".to_owned())]);
    let inner = client.get_lock(&name).lock().unwrap();
    assert_eq!(inner.owner(), spin.owner(), "the plain lock of the name is the same lock");
    elsewhere(|| assert!(client.get_lock(&name).try_lock().unwrap().is_none()));
    drop((inner, spin));
    let plain = client.get_lock(&name).lock().unwrap();
    elsewhere(|| assert!(client.get_spin_lock(&name).try_lock().unwrap().is_none()));
    drop(plain);
}

#[test]
fn an_unwoken_plain_waiter_is_served_within_a_second() {
    let (server, name) = (RedisServer::shared(), fresh("spin"));
    let guard = client().get_spin_lock(&name).lock().unwrap();
    let listens = || eventually(SOON, "it listens", || crate::support::listeners(server, &name) == 1);
    let waited = handed_over(&client().get_lock(&name), listens, || guard.unlock().unwrap());
    assert!(waited <= ms(1_000) + SCHEDULING, "{waited:?}");
}

#[test]
fn three_tries_half_a_second_apart_are_three_tries() {
    let (server, client) = alone();
    let lock = client.get_spin_lock_with("job", Backoff::new(|tries| (tries < 3).then_some(ms(500))));
    drop(lock.lock().unwrap()); // from here on the scripts are known
    let guard = Client::connect(&server.url()).unwrap().get_spin_lock("job").lock().unwrap();
    server.reset_counters();
    let (took, got) = timed(|| lock.try_lock_for(SOON).unwrap().is_some());
    assert!(!got && took >= ms(1_000) && took <= ms(1_000) + SCHEDULING, "{took:?}");
    assert_eq!(server.calls_of("evalsha"), 3);
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(server.calls_of("evalsha"), 4, "without a wait it is one");
    assert!(lock.try_lock_for(ms(450)).unwrap().is_none());
    assert_eq!(server.calls_of("evalsha"), 6, "at once, and when the time is up");
    guard.unlock().unwrap();
    assert!(lock.try_lock_for(SOON).unwrap().is_some());
}

#[test]
fn a_backoff_counts_the_tries_of_one_take_from_one() {
    let seen = Arc::new(Mutex::new(vec![]));
    let notes = Arc::clone(&seen);
    let backoff = Backoff::new(move |tries| {
        notes.lock().push(tries);
        (tries < 4).then_some(ms(10))
    });
    let name = fresh("spin");
    let _guard = client().get_spin_lock(&name).lock().unwrap();
    let lock = client().get_spin_lock_with(&name, backoff);
    for _ in 0..2 {
        assert!(lock.try_lock_for(SOON).unwrap().is_none());
    }
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(*seen.lock(), [1, 2, 3, 4, 1, 2, 3, 4]);
}

/// Each thread has its tries and its time, as a thread of its own process would have.
#[test]
fn one_thread_asks_as_often_as_all_that_wait() {
    const PAUSE: Duration = ms(200);
    let (ours, seen, name) = (client(), Arc::new(Mutex::new(vec![])), fresh("spin"));
    let holder = client();
    let _guard = holder.get_spin_lock(&name).with_lease(Duration::from_secs(600)).lock().unwrap();
    let (waiters, notes) = (ours.clone(), Arc::clone(&seen));
    let backoff = Backoff::new(move |tries| {
        if notes.lock().is_empty() {
            eventually(SOON, "the others stand in line", || waiters.waiting().len() == 3);
        }
        notes.lock().push(tries);
        (tries < 3).then_some(PAUSE)
    });
    let lock = ours.get_spin_lock_with(&name, backoff);
    let (took, ()) = timed(|| {
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| lock.try_lock_for(SOON * 2).unwrap().is_some())).collect();
            assert!(threads.into_iter().map(joined).all(|granted| !granted));
        });
    });
    assert_eq!(*seen.lock(), [1, 1, 1, 1, 2, 2, 2, 2, 3, 1, 1, 1, 2, 2, 2, 3, 1, 1, 2, 2, 3, 1, 2, 3]);
    // Twice the pause for each of the four; with whole pauses it would be twenty times the pause.
    assert!(took >= PAUSE * 8 && took < PAUSE * 20, "{took:?}");
}

/// The tries that it made for the others were not its own.
#[test]
fn a_thread_that_the_others_leave_has_its_own_tries_left() {
    let (ours, holder, name) = (client(), client(), fresh("spin"));
    let _guard = holder.get_spin_lock(&name).lock().unwrap();
    let twenty = ours.get_spin_lock_with(&name, Backoff::new(|tries| (tries < 20).then_some(ms(100))));
    thread::scope(|scope| {
        let first = scope.spawn(|| timed(|| twenty.try_lock_for(SOON).unwrap().is_some()));
        eventually(SOON, "it waits", || ours.waiting().len() == 1);
        for _ in 0..15 {
            scope.spawn(|| assert!(ours.get_spin_lock(&name).try_lock_for(ms(500)).unwrap().is_none()));
        }
        let (took, got) = joined(first);
        assert!(!got && took >= ms(1_700), "gave up after {took:?}");
    });
}

#[test]
fn the_default_slows_to_eight_requests_a_second() {
    let (server, client) = alone();
    let _guard = client.get_spin_lock("job").lock().unwrap();
    let lock = Client::connect(&server.url()).unwrap().get_spin_lock("job");
    server.reset_counters();
    assert!(lock.try_lock_for(ms(2_000)).unwrap().is_none());
    // 1 + 2 + 4 .. 128 ms, each up to a quarter longer; then 128 to 160 ms each.
    let asked = server.calls_of("evalsha");
    assert!((8..=23).contains(&asked), "asked {asked} times");
}

#[test]
fn a_wait_is_not_longer_than_it_may_be_whatever_the_pauses_are() {
    let name = fresh("spin");
    let guard = client().get_spin_lock(&name).lock().unwrap();
    for pause in [ms(0), ms(7), ms(10_000), Duration::MAX] {
        let lock = client().get_spin_lock_with(&name, Backoff::fixed(pause));
        let (took, got) = timed(|| lock.try_lock_for(ms(200)).unwrap().is_some());
        assert!(!got && took >= ms(200) && took <= ms(200) + GRACE + SCHEDULING, "{pause:?}: {took:?}");
    }
    let doubling = client().get_spin_lock_with(&name, Backoff::exponential(Duration::MAX, Duration::MAX));
    assert!(doubling.try_lock_for(ms(50)).unwrap().is_none(), "a pause that overflows is only long");
    // The last question comes when the time is up.
    let lock = client().get_spin_lock_with(&name, Backoff::fixed(Duration::MAX));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| timed(|| lock.try_lock_for(ms(1_500)).unwrap().is_some()));
        guard.unlock().unwrap();
        let (took, got) = joined(waiter);
        assert!(got && took <= ms(1_500) + GRACE + SCHEDULING, "{took:?}");
    });
}

#[test]
fn a_lock_without_limit_waits_on_when_the_tries_are_used_up() {
    let (server, client) = alone();
    let guard = client.get_spin_lock("job").lock().unwrap();
    let lock = Client::connect(&server.url()).unwrap().get_spin_lock_with("job", Backoff::new(|_| None));
    server.reset_counters();
    let asks = || eventually(SOON, "the waiter asks again and again", || server.calls_of("evalsha") >= 3);
    let waited = handed_over(&lock, asks, || guard.unlock().unwrap());
    assert!(waited <= ms(1_000) + SCHEDULING, "{waited:?}");
    assert!(server.calls_of("evalsha") <= 10, "a second at a time");

    let guard = client.get_spin_lock("job").lock().unwrap();
    server.reset_counters();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(Duration::MAX).unwrap().is_some());
        asks();
        guard.unlock().unwrap();
        assert!(joined(waiter), "the longest wait is one without limit");
    });
}

#[test]
fn a_release_in_the_process_ends_a_long_pause() {
    let (server, client) = alone();
    let lock = client.get_spin_lock_with("job", Backoff::fixed(Duration::from_secs(60)));
    let guard = lock.lock().unwrap();
    let asked = || server.calls_of("evalsha") + server.calls_of("eval");
    let before = asked();
    let asks = || eventually(SOON, "the waiter has asked", || asked() > before);
    let waited = handed_over(&lock, asks, || guard.unlock().unwrap());
    assert!(waited <= SCHEDULING, "{waited:?}");
}

#[test]
fn a_cancel_and_a_close_end_a_long_pause_at_once() {
    let server = RedisServer::start();
    let _guard = Client::connect(&server.url()).unwrap().get_spin_lock("job").lock().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let lock = client.get_spin_lock_with("job", Backoff::fixed(Duration::from_secs(60)));
    let check = |kind: ErrorKind, stop: &Cancel, end: &dyn Fn()| {
        let lock = lock.with_cancel(stop);
        let asked = server.calls_of("evalsha");
        thread::scope(|scope| {
            // The first waiter sleeps, the second is behind the first in the local queue.
            let waiters = [scope.spawn(|| kind_of(lock.lock())), scope.spawn(|| kind_of(lock.try_lock_for(SOON)))];
            eventually(SOON, "the first waiter has asked", || server.calls_of("evalsha") > asked);
            let (took, ()) = timed(|| {
                end();
                assert_eq!(waiters.map(joined), [kind, kind]);
            });
            assert!(took <= GRACE + SCHEDULING, "{took:?}");
        });
    };
    let stop = Cancel::new();
    check(ErrorKind::Cancelled, &stop, &|| stop.cancel());
    check(ErrorKind::Closed, &Cancel::new(), &|| client.close());
}

#[test]
fn a_moment_without_the_server_after_a_long_pause_is_no_outage() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let (pauses, begun) = unbounded();
    let backoff = Backoff::new(move |_| {
        pauses.send(()).unwrap();
        Some(ms(1_500))
    });
    let limit = ms(1_000); // shorter than a pause
    let client = Client::builder(&proxy.url()).outage_limit(limit).connect().unwrap();
    let guard = Client::connect(&server.url()).unwrap().get_spin_lock("job").lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get_spin_lock_with("job", backoff).lock().map(drop));
        begun.recv_timeout(SOON).unwrap();
        proxy.new_connections(NewConnections::CloseAtOnce);
        proxy.cut(Scope::All);
        let before = proxy.connections_made();
        eventually(SOON, "the waiter asks in vain", || proxy.connections_made() > before);
        proxy.new_connections(NewConnections::Accept);
        begun.recv_timeout(SOON).expect("the waiter has asked again, and pauses");
        guard.unlock().unwrap();
        joined(waiter).unwrap();
    });
}

#[test]
fn a_backoff_that_panics_harms_no_later_call() {
    let client = client();
    let name = fresh("spin");
    let guard = client.get_spin_lock(&name).lock().unwrap();
    let odd = client.get_spin_lock_with(&name, Backoff::new(|_| panic!("this panic is part of the test")));
    elsewhere(|| assert!(catch_unwind(|| odd.try_lock_for(SOON)).is_err()));
    assert_eq!(client.waiting(), []);
    elsewhere(|| assert!(client.get_spin_lock(&name).try_lock_for(ms(50)).unwrap().is_none()));
    guard.unlock().unwrap();
    elsewhere(|| assert!(odd.try_lock().unwrap().is_some()));
    // No call counts as under way, so a close has nothing to wait for.
    let (took, ()) = timed(|| client.close());
    assert!(took < ms(500) + STANDSTILLS, "{took:?}");
}
