//! A key without a time to live: questions leave the key alone, and no request shortens its life.

use super::{KINDS, Kind, run};
use crate::support::prelude::*;
use crate::support::read_write_channel;

/// The kind beside the exclusive kinds.
pub(super) static READ: Kind = Kind {
    label: "read",
    lock: |client, name| client.get_read_write_lock(name).read(),
    reenters: true,
    counted: true,
    channel: Some(read_write_channel),
    member: None,
};

#[test]
fn a_question_about_a_lease_writes_nothing() {
    run(KINDS.iter().chain([&READ]), |kind| {
        let proxy = Proxy::start(RedisServer::shared().address());
        let client = Client::builder(&proxy.url()).command_timeout(PATIENCE * 2).connect().unwrap();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.with_lease(ms(60_000)).lock().unwrap();
        RedisServer::shared().run(&["PERSIST", lock.name()]);
        // The client cannot know whether the lock was forced open, so the watchdog asks.
        let forced = proxy.rule(When::any().containing(lock.name()), Then::SwallowRequest);
        assert_eq!(kind_of(lock.force_unlock()), ErrorKind::Unknown);
        let mark = forced.wait_hit(SOON).number + 1;
        await_answer(&proxy, mark, &question(kind).containing(lock.name()));
        assert_eq!(ttl_ms(RedisServer::shared(), lock.name()), -1);
        assert!(rival(kind, lock.name()).try_lock().unwrap().is_none(), "the lock is held");
        assert!(guard.is_held());
        guard.unlock().unwrap();
    });
}

#[test]
fn a_message_about_a_lease_costs_a_question_and_no_lock() {
    let listening = KINDS.iter().chain([&READ]).filter(|kind| kind.channel.is_some() && !kind.label.contains("fair"));
    run(listening, |kind| {
        let proxy = Proxy::start(RedisServer::shared().address());
        let client = Client::connect(&proxy.url()).unwrap();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.with_lease(ms(60_000)).lock().unwrap();
        RedisServer::shared().run(&["PERSIST", lock.name()]);
        let waiting = client.get_read_write_lock(lock.name()).write();
        let waiting = if kind.label == "read" { waiting } else { lock.clone() };
        thread::scope(|scope| {
            let waiter = scope.spawn(move || waiting.try_lock_for(SOON * 3).unwrap().is_some());
            kind.await_waiter(RedisServer::shared(), lock.name());
            let mark = proxy.mark();
            RedisServer::shared().run(&["PUBLISH", &kind.channel.unwrap()(lock.name()), "0"]);
            await_answer(&proxy, mark, &question(kind).containing(guard.owner()));
            assert_eq!(ttl_ms(RedisServer::shared(), lock.name()), -1);
            assert!(rival(kind, lock.name()).try_lock().unwrap().is_none(), "the lock is held");
            assert!(guard.is_held());
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap(), "the waiter is granted the lock afterwards");
        });
    });
}

#[test]
fn a_key_without_end_gets_no_less_than_its_holder_believes() {
    run(KINDS.iter().chain([&READ]).filter(|kind| kind.reenters), |kind| {
        let server = RedisServer::shared();
        let lock = kind.get_lock(&client(), &kind.fresh());
        let short = lock.with_lease(ms(1_000));
        let outer = lock.with_lease(ms(60_000)).lock().unwrap();
        server.run(&["PERSIST", lock.name()]);
        let inner = short.lock().unwrap();
        assert!(ttl_ms(server, lock.name()) > 58_000, "re-entered");
        server.run(&["PERSIST", lock.name()]);
        inner.extend(ms(1_000)).unwrap();
        assert!(ttl_ms(server, lock.name()) > 58_000, "extended");
        drop((inner, outer));

        let lock = kind.get_lock(&brisk_client(), &kind.fresh());
        let (outer, inner) = (lock.lock().unwrap(), lock.with_lease(ms(60_000)).lock().unwrap());
        server.run(&["PERSIST", lock.name()]);
        eventually(SOON, "the hold is renewed", || ttl_ms(server, lock.name()) != -1);
        assert!(ttl_ms(server, lock.name()) > 40_000, "renewed");
        drop((inner, outer));
    });
}

/// A lock of another client that conflicts with this lock.
fn rival(kind: &Kind, name: &str) -> Lock {
    if kind.label == READ.label { client().get_read_write_lock(name).write() } else { kind.get_lock(&client(), name) }
}

/// How the watchdog asks whether a lock is held.
fn question(kind: &Kind) -> When {
    match kind.label {
        "read" | "write" => When::command("EVALSHA"),
        "token" => When::command("GET"),
        _ => When::command("HEXISTS"),
    }
}

/// Waits until a request of this sort had its effect.
fn await_answer(proxy: &Proxy, mark: u64, when: &When) {
    let had_effect = |fate| matches!(fate, Fate::Answered(reply) if !reply.starts_with(b"-NOSCRIPT"));
    eventually(SOON, "the server was asked", || {
        proxy.fitting_since(mark, when).iter().any(|request| had_effect(proxy.fate(request)))
    });
}

#[test]
fn no_request_lowers_a_time_to_live_set_by_others() {
    run(KINDS.iter().chain([&READ]), |kind| {
        let (server, events) = (RedisServer::shared(), Events::default());
        let client = brisk(server).observer(events.clone()).connect().unwrap();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.lock().unwrap();
        server.run(&["PEXPIRE", lock.name(), "600000"]);
        let is_kept = |what: &str| {
            let left = ttl_ms(server, lock.name());
            assert!((500_000..=600_000).contains(&left), "{what}: {left}");
        };
        let renewals = || events.count_of("renewed");
        let before = renewals();
        eventually(SOON, "the hold is renewed", || renewals() > before + 1);
        is_kept("renewal");
        guard.extend(ms(5_000)).unwrap();
        is_kept("extend");
        if kind.reenters {
            lock.try_lock().unwrap().expect("a re-entry").leave_to_unlock();
            is_kept("re-entry");
            lock.unlock().unwrap();
        }
        guard.unlock().unwrap();
    });
}
