//! Refusals that begin, end or take their time; `servers/refusals.rs` has the answer to each call.

use crate::servers::refuses;
use crate::support::prelude::*;

#[test]
fn a_wait_that_is_long_enough_sees_the_end_of_a_busy_time() {
    let rig = Rig::around(RedisServer::builder().config("lua-time-limit 20").start());
    let client = rig.impatient().connect().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| rig.server.try_query::<()>(&["EVAL", "while true do end", "0"]));
        eventually(SOON, "the lock is busy", || refuses(&rig, "BUSY"));
        let waiter = scope.spawn(|| client.get_lock("free").try_lock_for(SOON).unwrap().is_some());
        rig.proxy.wait_for_since(rig.proxy.mark(), &rig.script("acquire").nth(2), SOON);
        rig.server.run(&["SCRIPT", "KILL"]);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn a_server_that_is_busy_for_ever_costs_the_bound_and_no_more() {
    let rig = Rig::around(RedisServer::builder().config("lua-time-limit 20").start());
    let client = rig.impatient().connect().unwrap();
    let guard = client.get_lock("held").with_lease(PATIENCE * 4).lock().unwrap();
    let writes = "redis.call('SET', 'x', 1) while true do end"; // what wrote cannot be killed
    thread::scope(|scope| {
        scope.spawn(|| rig.server.try_query::<()>(&["EVAL", writes, "0"]));
        eventually(SOON, "the lock is busy", || refuses(&rig, "BUSY"));
        let (took, answer) = timed(|| client.get_lock("wanted").lock());
        let error = answer.unwrap_err();
        // A server that is busy may be late with its refusal, too: then the outcome of that request is unknown.
        assert_eq!(error.redis_word(), Some("BUSY").filter(|_| !error.is_in_doubt()), "{error:?}");
        assert!(error.to_string().contains("BUSY"), "{error:?}");
        assert!(took < PATIENCE * 3 + SCHEDULING, "{took:?}");
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
        rig.server.kill();
    });
}

#[test]
fn a_replica_is_left_for_the_master_behind_its_name() {
    let rig = Rig::start();
    let successor = RedisServer::start();
    let client = rig.builder().watchdog(Duration::from_secs(4), ms(100)).connect().unwrap();
    let kept = client.get_lock("kept").lock().unwrap();
    let leased = client.get_lock("leased").with_lease(Duration::from_secs(60)).lock().unwrap();
    // Several idle connections, and the watchdog's own.
    thread::scope(|scope| {
        let busy = rig.proxy.rule(rig.script("acquire").times(4), Then::DelayReply(ms(200)));
        let takes: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn({
                    let lock = client.get_lock(format!("other:{number}"));
                    move || lock.lock().unwrap().unlock().unwrap()
                })
            })
            .collect();
        busy.wait_hits(4, SOON);
        takes.into_iter().for_each(|take| take.join().unwrap());
    });
    fail_over(&rig, &successor, "kept", successor.port());
    let taken = client.get_lock("wanted").try_lock_for(SOON).unwrap().expect("the new master grants the lock");
    assert_eq!(successor.query::<i64>(&["EXISTS", "wanted"]), 1);
    leased.extend(Duration::from_secs(90)).unwrap();
    assert_eq!(kept.wait_lost(Duration::from_secs(6)), None, "the hold is renewed there");
    for guard in [taken, kept, leased] {
        guard.unlock().unwrap();
    }
    assert!(successor.keys().is_empty());
}

/// Makes a replica of the server its master. The server becomes a replica of the port, where perhaps nobody is.
fn fail_over(rig: &Rig, successor: &RedisServer, key: &str, port: u16) {
    successor.run(&["REPLICAOF", "127.0.0.1", &rig.server.port().to_string()]);
    eventually(SOON, "the server has the key", || successor.query::<i64>(&["EXISTS", key]) == 1);
    successor.run(&["REPLICAOF", "NO", "ONE"]);
    rig.proxy.retarget(successor.address()); // connections that are open stay where they are
    rig.server.run(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
}

#[test]
fn a_re_entry_goes_where_the_hold_is_renewed() {
    let (rig, successor) = (Rig::start(), RedisServer::start());
    let client = rig.builder().watchdog(Duration::from_secs(2), ms(100)).connect().unwrap();
    let kept = client.get_lock("kept").lock().unwrap();
    fail_over(&rig, &successor, "kept", 1);
    eventually(SOON, "the copy is over", || rig.server.query::<i64>(&["EXISTS", "kept"]) == 0);
    let again = client.get_lock("kept").try_lock().unwrap().expect("it is held");
    [again, kept].into_iter().for_each(|guard| guard.unlock().unwrap());
    assert!(successor.keys().is_empty());
}

#[test]
fn who_waits_at_a_replica_goes_to_the_master_behind_its_name() {
    let (rig, successor) = (Rig::start(), RedisServer::start());
    let client = rig.builder().watchdog(Duration::from_secs(1), ms(100)).connect().unwrap();
    let latch = client.get_count_down_latch("latch");
    latch.set_count_once(1).unwrap();
    fail_over(&rig, &successor, "latch", 1);
    let other = Client::connect(&successor.url()).unwrap();
    other.get_count_down_latch("latch").count_down().unwrap();
    assert!(latch.wait_for(SOON).unwrap(), "there it is open");
}

#[test]
fn a_refusal_that_takes_its_time_is_still_told_as_one() {
    let rig = Rig::start();
    // An attempt waits for at least a third of the patience; the last answer before the end decides.
    let (patience, pause) = (Duration::from_secs(3), ms(800));
    let client = rig.builder().command_timeout(patience).outage_limit(patience).connect().unwrap();
    let guard = client.get_lock("held").lock().unwrap();
    rig.server.run(&["REPLICAOF", "127.0.0.1", "1"]);
    rig.proxy.rule(When::script().always(), Then::DelayReply(pause));
    let refused = thread::scope(|scope| {
        let other = scope.spawn(|| client.get_lock("free").lock().unwrap_err());
        [guard.unlock().unwrap_err(), joined(other)]
    });
    for error in refused {
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("READONLY")), "{error}");
    }
    rig.server.run(&["REPLICAOF", "NO", "ONE"]);
    rig.eventually_no_keys(SOON);
}

#[test]
fn a_password_that_changed_is_told_on_the_next_connection() {
    let rig = Rig::around(RedisServer::builder().password("first").start());
    let url = format!("redis://:first@127.0.0.1:{}", rig.proxy.port());
    let client = Client::builder(&url).command_timeout(PATIENCE).connect().unwrap();
    let mut admin = rig.server.connection();
    let () = redis::cmd("CONFIG").arg(&["SET", "requirepass", "second"]).query(&mut admin).unwrap();
    client.get_lock("wanted").lock().unwrap().unlock().unwrap(); // whoever is in stays in
    rig.proxy.cut(Scope::All);
    let error = client.get_lock("wanted").lock().unwrap_err();
    assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGPASS")), "{error}");
    let () = redis::cmd("CONFIG").arg(&["SET", "requirepass", "first"]).query(&mut admin).unwrap();
    client.get_lock("wanted").lock().unwrap().unlock().unwrap();
}

#[test]
fn scripts_the_server_forgot_are_sent_again_unnoticed() {
    let rig = Rig::start();
    let ttl = Duration::from_secs(1);
    let client = rig.builder().watchdog(ttl, ms(100)).connect().unwrap();
    let lock = client.get_lock("once");
    let forget = || rig.server.run(&["SCRIPT", "FLUSH"]);
    for _ in 0..2 {
        forget();
        let outer = lock.lock().unwrap();
        forget();
        let inner = lock.lock().unwrap();
        rig.assert_held_by("once", outer.owner(), 2);
        forget();
        inner.unlock().unwrap();
        // Renewals, too, for longer than the time to live.
        let since = Instant::now();
        while since.elapsed() < ttl * 3 / 2 {
            forget();
            assert_eq!(outer.wait_lost(ms(20)), None);
        }
        forget();
        outer.extend(SOON).unwrap();
        rig.assert_held_by("once", outer.owner(), 1);
        forget();
        drop(outer);
        rig.assert_no_keys();
        let forced = lock.lock().unwrap();
        forget();
        assert!(lock.force_unlock().unwrap());
        assert_eq!(forced.lost(), Some(Loss::Gone));
        drop(forced);
        rig.assert_no_keys();
    }
}

#[test]
fn a_user_who_may_not_send_scripts_needs_them_loaded() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-eval"]);
    let rig = Rig::around(server);
    let client = Client::connect(&format!("redis://app:secret@127.0.0.1:{}", rig.proxy.port())).unwrap();
    client.get_lock("once").lock().unwrap().unlock().unwrap();
    rig.server.run(&["SCRIPT", "FLUSH"]);
    let error = client.get_lock("once").lock().unwrap_err();
    assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("NOPERM")), "{error}");
}

#[test]
fn a_foreign_lock_without_a_ttl_is_asked_for_every_second() {
    at_once([["somebody:1", "no-number"], ["somebody:1", "9223372036854775807"]], |field| {
        let (rig, lock) = Rig::start().and(|rig| rig.client().get_lock("data"));
        rig.server.run(&["HSET", "data", field[0], field[1]]); // without a time to live
        assert!(lock.try_lock().unwrap().is_none());
        assert_eq!(lock.remaining_time_to_live().unwrap(), Some(Duration::MAX));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(SOON).unwrap().is_some());
            rig.proxy.wait_for_since(rig.proxy.mark(), &rig.script("acquire").nth(2), SOON);
            rig.server.run(&["DEL", "data"]);
            assert!(waiter.join().unwrap());
        });
    });
}
