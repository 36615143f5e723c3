//! Many faults at once, over and over, or at the worst moment.

use lockson_harness::Peer;

use crate::support::prelude::*;

#[test]
fn in_chaos_every_call_ends_in_time_and_no_two_are_inside() {
    let taken = chaos(7, Duration::from_secs(3));
    assert!(taken > 10, "only {taken} grants: too much chaos for a verdict");
}

/// Threads of two clients use one lock, while every connection is disturbed; returns the number of grants.
pub(crate) fn chaos(seed: u64, how_long: Duration) -> usize {
    const THREADS: usize = 4;
    const WAIT: Duration = Duration::from_millis(500);
    let rig = Rig::start();
    let clients: Vec<_> = (0..2).map(|_| rig.impatient().connect().unwrap()).collect();
    let calm = AtomicBool::new(false);
    let [inside, taken] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        let _ends_the_loops = Calm(&calm);
        for thread in 0..THREADS {
            let (client, calm, inside, taken) = (&clients[thread % 2], &calm, &inside, &taken);
            scope.spawn(move || {
                let lock = client.get_lock("chaos");
                while !calm.load(Ordering::Relaxed) {
                    let (took, answer) = timed(|| lock.try_lock_for(WAIT));
                    assert!(took < WAIT + PATIENCE + SCHEDULING, "try_lock_for took {took:?}");
                    let Ok(Some(guard)) = answer else { continue };
                    let alone = inside.fetch_add(1, Ordering::SeqCst) == 0;
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    // No lease ends here: the time to live is 30 s.
                    assert!(alone, "two were inside");
                    assert!(guard.is_held());
                    taken.fetch_add(1, Ordering::Relaxed);
                    let (took, answer) = timed(|| guard.unlock());
                    assert!(took < PATIENCE + SCHEDULING, "unlock took {took:?}");
                    if let Err(error) = answer {
                        let kinds = [ErrorKind::Connection, ErrorKind::Unknown];
                        assert!(kinds.contains(&error.kind()), "{error:?}");
                    }
                }
            });
        }
        make_chaos(&rig.proxy, seed, how_long);
    });
    rig.eventually_no_keys(SOON);
    for client in &clients {
        client.get_lock("chaos").try_lock_for(SOON).unwrap().expect("all is well again").unlock().unwrap();
    }
    taken.into_inner()
}

/// Ends the loops that read the flag, also when the test fails.
struct Calm<'a>(&'a AtomicBool);

impl Drop for Calm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Disturbs every connection, in an order that the seed decides; ends all faults at the end.
fn make_chaos(proxy: &Proxy, seed: u64, how_long: Duration) {
    let until = Instant::now() + how_long;
    let mut random = Random(seed | 1);
    let mut below = |limit: usize| usize::try_from(random.below(limit as u64)).unwrap();
    while Instant::now() < until {
        let when = When::any().nth(1 + below(5)).times(1 + below(3));
        match below(9) {
            0 => proxy.cut(Scope::All),
            1 => proxy.mute(Scope::All, Direction::Both),
            2 => proxy.mute(Scope::All, Direction::Replies),
            3 => drop(proxy.rule(when, Then::CutReplyAfter(below(12)))),
            4 => drop(proxy.rule(when, Then::CutRequestAfter(below(120)))),
            5 => drop(proxy.rule(when, Then::SwallowReply)),
            6 => drop(proxy.rule(when, Then::HoldRequest)),
            7 => drop(proxy.rule(when, Then::DelayReply(ms(below(400) as u64)))),
            _ => drop(proxy.rule(when, Then::ReplaceReply(b"*1\r\n$3\r\n".to_vec()))),
        }
        thread::sleep(ms(10 + below(60) as u64));
        proxy.heal(); // the held request arrives late
        thread::sleep(ms(below(40) as u64));
    }
}

#[test]
fn killed_connections_return_with_login_database_and_name() {
    let rig = Rig::around(RedisServer::builder().password("secret").start());
    for protocol in ["", "?protocol=resp3"] {
        let url = format!("redis://:secret@127.0.0.1:{}/3{protocol}", rig.proxy.port());
        let client = Client::builder(&url).client_name("storm").connect().unwrap();
        let calm = AtomicBool::new(false);
        thread::scope(|scope| {
            let ends_the_loops = Calm(&calm);
            for thread in 0..3 {
                let (client, calm) = (&client, &calm);
                scope.spawn(move || {
                    let lock = client.get_lock(if thread == 0 { "alone" } else { "shared" });
                    while !calm.load(Ordering::Relaxed) {
                        lock.lock().unwrap().unlock().unwrap();
                    }
                });
            }
            for _ in 0..50 {
                rig.server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
                rig.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                rig.assert_no_keys(); // a connection without SELECT would use this database
            }
            drop(ends_the_loops);
        });
        assert!(rig.server.clients_named("storm") > 0);
        assert!(!client.get_lock("alone").is_locked().unwrap() && !client.get_lock("shared").is_locked().unwrap());
    }
}

#[test]
fn resets_at_any_byte_are_like_ends() {
    let rig = Rig::start();
    rig.proxy.cut_by_reset(true);
    let lock = rig.client().get_lock("reset");
    for when in [rig.script("acquire"), rig.release(false)] {
        for cut in 0..=12 {
            for then in [Then::CutReplyAfter(cut), Then::CutRequestAfter(cut * 20)] {
                rig.proxy.rule(when.clone(), then);
                let guard = lock.try_lock().unwrap().expect("no other client wants the lock");
                rig.assert_held_by("reset", guard.owner(), 1);
                guard.unlock().unwrap();
                rig.assert_no_keys();
            }
        }
    }
}

#[test]
fn renewals_do_not_wait_for_a_connection_of_a_full_pool() {
    let (rig, builder) = Rig::start().and(|rig| rig.builder().max_connections(1).command_timeout(ms(1_500)));
    let client = builder.watchdog(Duration::from_secs(2), ms(200)).connect().unwrap();
    let guard = client.get_lock("kept").lock().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // One call after another occupies the only connection.
        let stuck = rig.proxy.rule(rig.script("acquire").containing("stuck").always(), Then::HoldReply);
        let caller = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                drop(client.get_lock("stuck").try_lock())
            }
        });
        stuck.wait_hit(SOON);
        let lost = guard.wait_lost(Duration::from_secs(3));
        over.store(true, Ordering::Relaxed);
        stuck.remove();
        stuck.release();
        joined(caller);
        assert_eq!(lost, None);
    });
    guard.unlock().unwrap();
    let over = |requests: &When| -> BTreeSet<usize> {
        rig.proxy.fitting(requests).iter().map(|request| request.connection).collect()
    };
    let (of_callers, of_watchdog) = (over(&rig.script("acquire")), over(&rig.script("renew")));
    assert!(of_callers.is_disjoint(&of_watchdog), "{of_callers:?}, {of_watchdog:?}");
}

#[test]
fn a_slow_link_loses_no_renewal_of_many_locks() {
    const LOCKS: usize = 4_000;
    let rig = Rig::start();
    let client = rig.builder().watchdog(Duration::from_secs(4), Duration::from_secs(1)).connect().unwrap();
    let names: Vec<_> = (0..LOCKS).map(|number| format!("slow {number}")).collect();
    let guards: Vec<_> = names.iter().map(|name| client.get_lock(name).owned().lock().unwrap()).collect();
    // Every answer takes a sixth of a second from now on.
    rig.proxy.rule(When::any().always(), Then::DelayReply(ms(160)));
    assert_eq!(guards[0].wait_lost(Duration::from_secs(6)), None);
    assert!(guards.iter().all(|guard| guard.is_held()));
    rig.proxy.heal();
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
}

#[test]
fn a_process_stopped_and_continued_all_the_time_notices_nothing() {
    let (rig, held) = Rig::start().and(|rig| rig.direct().get_lock("storm").owned().lock().unwrap());
    let mut peer = open_peer(&format!("address={} watchdog_ms=3000", rig.proxy.url().trim_end_matches("/0")));
    let waiting = peer.send("try_lock kind=plain name=storm wait_ms=20000");
    eventually(SOON, "it listens", || rig.server.subscribers("redisson_lock__channel:{storm}") == 1);
    let storm = |peer: &Peer| {
        for _ in 0..100 {
            peer.stop();
            peer.resume();
            thread::sleep(ms(2)); // time to block again in a system call
        }
    };
    storm(&peer); // while the thread waits
    held.unlock().unwrap();
    assert!(peer.answer(waiting, SOON).expect_ok().flag("acquired"));
    storm(&peer); // while the thread holds
    assert!(peer.ask("is_held kind=plain name=storm").expect_ok().flag("held"));
    peer.ask("unlock kind=plain name=storm").expect_ok();
    rig.assert_no_keys();
}
