//! The cost of a client: connections, threads, channels, keys.

use lockson_harness::{Peer, thread_names_of};

use crate::support::prelude::*;

#[test]
fn the_pool_grows_to_its_limit_and_shrinks_to_one() {
    const MOST: usize = 6;
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    // A slow server, so that requests certainly overlap.
    let slow = proxy.rule(When::script().always(), Then::DelayReply(ms(30)));
    let storm = |client: &Client| {
        thread::scope(|scope| {
            for number in 0..4 * MOST {
                let lock = client.get_lock(format!("pool:{number}")).with_lease(ms(20_000));
                scope.spawn(move || (0..4).for_each(|_| drop(lock.lock().unwrap())));
            }
        });
    };
    // None is closed for being idle, so as many were ever made as were open at a time.
    let client = Client::builder(&proxy.url()).max_connections(MOST).connect().unwrap();
    storm(&client);
    let made = proxy.connections_made();
    // Plus two outside the pool: a hold that waits for its release is watched.
    assert!((MOST..=MOST + 2).contains(&made), "{made}");
    let client = Client::builder(&proxy.url()).client_name("shrinking").idle_timeout(ms(300)).connect().unwrap();
    storm(&client);
    assert!(proxy.connections_made() > made + MOST, "it grew");
    slow.remove();
    eventually(SOON, "one connection is kept", || server.clients_named("shrinking") == 1);
    drop(client.get_lock("pool:again").with_lease(ms(20_000)).lock().unwrap());
    assert_eq!(server.clients_named("shrinking"), 1);
}

#[test]
fn an_idle_client_has_three_connections_and_four_threads() {
    let server = RedisServer::start();
    let mut peer = open_peer(&format!("address=redis://127.0.0.1:{} client_name=rest", server.port()));
    peer.ask("lock kind=plain name=first").expect_ok();
    peer.ask("unlock kind=plain name=first").expect_ok();
    assert!(server.clients_named("rest") <= 3);
    if let Some(threads) = ours_of(&peer) {
        // The main thread is the fourth.
        assert!(threads.len() <= 3, "{threads:?}");
    }
    peer.ask("close").expect_ok();
    eventually(SOON, "close leaves no connection", || server.clients_named("rest") == 0);
    eventually(SOON, "close leaves no thread", || ours_of(&peer).is_none_or(|threads| threads.is_empty()));
}

#[test]
fn a_thousand_waiters_share_few_connections_and_threads() {
    const WAITERS: usize = 1_000;
    let server = RedisServer::builder().config("maxclients 200").start();
    let holder = Client::builder(&server.url()).client_name("holder").connect().unwrap();
    let guards: Vec<_> = (0..WAITERS).map(|number| holder.get_lock(format!("many:{number}")).lock().unwrap()).collect();
    let mut peer = open_peer(&format!("address=redis://127.0.0.1:{} client_name=waiting", server.port()));
    let asked: Vec<_> = (0..WAITERS)
        .map(|number| peer.send(&format!("lock kind=plain thread={} name=many%3A{number}", number + 1)))
        .collect();

    eventually(LONG, "all waiters listen", || server.channels().len() == WAITERS);
    if let Some(threads) = ours_of(&peer) {
        assert!(threads.len() <= 3, "{threads:?}");
    }
    for guard in guards {
        guard.unlock().unwrap();
    }
    for id in asked {
        assert!(peer.answer(id, LONG).expect_ok().flag("acquired"));
    }
    // An idle connection is closed only after 30 s: the current number is the highest number so far.
    let most = server.clients_named("waiting");
    assert!(most <= 64 + 2, "{most} connections");
    if let Some(threads) = ours_of(&peer) {
        assert!(threads.len() <= 3, "{threads:?}");
    }
}

#[test]
fn waits_in_vain_leave_no_channel_no_connection_and_no_key() {
    let server = RedisServer::start();
    let holder = Client::builder(&server.url()).client_name("holder").connect().unwrap();
    let waiting = Client::builder(&server.url()).client_name("waiting").idle_timeout(ms(500)).connect().unwrap();
    let guards: Vec<_> = (0..20).map(|number| holder.get_lock(format!("vain:{number}")).lock().unwrap()).collect();
    thread::scope(|scope| {
        for number in 0..50 {
            let waiting = &waiting;
            scope.spawn(move || {
                for round in 0..10 {
                    let lock = waiting.get_lock(format!("vain:{}", (number + round) % 20));
                    assert!(lock.try_lock_for(ms(15)).unwrap().is_none());
                }
            });
        }
    });
    let told = || format!("{:?}", server.channels());
    eventually(Duration::from_secs(5), &told(), || server.channels().is_empty());
    eventually(SOON, "one connection is kept", || server.clients_named("waiting") == 1);
    drop(guards);
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn ten_thousand_names_leave_nothing_behind() {
    let (server, client) = alone();
    thread::scope(|scope| {
        for part in 0..4 {
            let client = &client;
            scope.spawn(move || {
                for number in 0..2_500 {
                    client.get_lock(format!("name:{part}:{number}")).lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    assert!(server.keys().is_empty());
    assert!(client.held().is_empty());
    assert!(server.channels().is_empty());
    assert_eq!(server.subscribers(&channel("name:0:0")), 0);
}

#[test]
fn two_hundred_holds_are_renewed_in_batches_over_one_connection() {
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).watchdog(ms(1_500), ms(300)).connect().unwrap();
    let guards: Vec<_> = (0..250).map(|number| client.get_lock(format!("batch:{number}")).lock().unwrap()).collect();
    server.reset_counters();
    let first = guards.first().unwrap();
    assert_eq!(first.wait_lost(ms(3_000)), None);
    assert!(guards.iter().all(|guard| guard.is_held()));
    let rounds = server.calls_of("hexists").div_ceil(250);
    let scripts = server.calls_of("evalsha");
    // Ten ticks or so, each of two batches of 100 locks and one of 50, in scripts of 20.
    let of_a_tick = 5 + 5 + 3;
    assert!((6..=12).contains(&rounds) && scripts <= of_a_tick * (rounds + 1), "{scripts} scripts, {rounds} rounds");
    assert!(server.clients_named("lockson") <= 3);
}

/// The names of the library's threads in a peer, where the system tells.
fn ours_of(peer: &Peer) -> Option<Vec<String>> {
    let mut names = thread_names_of(peer.pid())?;
    names.retain(|name| name.starts_with("lockson-") && !name.starts_with("lockson-peer"));
    Some(names)
}

const LONG: Duration = Duration::from_secs(60);

/// Valgrind cannot be had everywhere; it finds a crash at the first look at the clock.
#[test]
fn a_program_with_the_library_runs_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let test = "kinds::plain::limits::a_lock_is_taken_and_given_back";
    let run = Command::new("valgrind")
        .args(["--tool=none", "-q"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(SERVER, RedisServer::shared().url())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
}

#[test]
fn a_lock_is_taken_and_given_back() {
    let Ok(url) = std::env::var(SERVER) else { return };
    // Valgrind is slow.
    let client = Client::builder(&url).command_timeout(SOON).connect().unwrap();
    client.get_lock(fresh("valgrind")).lock().unwrap().unlock().unwrap();
}

const SERVER: &str = "LOCKSON_TEST_UNDER_VALGRIND";
