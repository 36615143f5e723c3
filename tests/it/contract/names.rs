//! Possible names and durations, and impossible ones, which cost no request.

use lockson::RedLock;

use super::{Kind, for_a_lock_of_every_kind, for_every_single_kind, key, kinds_and_group};
use crate::support::kinds::{self, OfName};
use crate::support::prelude::*;

#[test]
fn names_of_every_form_work_and_do_not_clash() {
    for_every_single_kind(|kind| {
        let (ours, theirs) = (client(), client());
        let names: Vec<String> = forms().into_iter().map(|form| format!("{form}{}", kind.fresh())).collect();
        let guards: Vec<_> = names.iter().map(|name| kind.get_lock(&ours, name).lock().unwrap()).collect();
        for (name, guard) in names.iter().zip(guards) {
            let exists: u8 = RedisServer::shared().query(&["EXISTS", name]);
            assert_eq!((exists, guard.name()), (1, name.as_str()), "the key is the name, byte for byte");
            let others = kind.get_lock(&theirs, name);
            assert!(!is_free(&others), "{name:?}");
            thread::scope(|scope| {
                let waiter = scope.spawn(|| others.try_lock_for(SOON).unwrap().is_some());
                kind.await_waiter(RedisServer::shared(), name);
                guard.unlock().unwrap();
                assert!(joined(waiter), "{name:?}");
            });
            assert!(!others.is_locked().unwrap(), "{name:?}");
        }
        assert!(ours.held().is_empty());
    });
}

#[test]
fn the_shortest_and_the_longest_name_work() {
    for_every_single_kind(|kind| {
        let client = client();
        for name in ["\u{1}".to_owned() + &kind.label[..1], "x".repeat(4_096 - kind.label.len()) + kind.label] {
            let guard = kind.get_lock(&client, &name).lock().unwrap();
            assert!(!is_free(&kind.get_lock(&crate::support::client(), &name)));
            guard.unlock().unwrap();
        }
    });
}

#[test]
fn an_impossible_name_or_lease_is_refused_before_any_request() {
    let server = RedisServer::start();
    // No server listens on this port: a request would fail with another error, or late.
    let nowhere = Client::builder("redis://127.0.0.1:1").connect_lazily().unwrap();
    let connected = Client::connect(&server.url()).unwrap();
    server.reset_counters();
    for kind in kinds_and_group() {
        for client in [&nowhere, &connected] {
            for lock in impossible(kind, client) {
                let (took, kinds) = timed(|| refusals(&lock));
                assert_eq!(kinds, [ErrorKind::BadInput; 9], "{lock:?}");
                assert!(took < SOON / 2, "{took:?}");
            }
            for name in [String::new(), "x".repeat(4_097)] {
                let lock = kind.get_lock(client, &name);
                let kinds = [
                    kind_of(lock.is_locked()),
                    kind_of(lock.holder()),
                    kind_of(lock.remaining_time_to_live()),
                    kind_of(lock.force_unlock()),
                    kind_of(lock.unlock()),
                ];
                assert!(kinds.iter().all(|kind| *kind == ErrorKind::BadInput), "{kinds:?}");
                assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
            }
            let lock = kind.get_lock(client, &kind.fresh());
            for gate in [lock.with_lease(ms(5_000)), lock.with_max_hold(ms(5_000))] {
                assert_eq!(kind_of(gate.once_per(ms(5_000))), ErrorKind::BadInput);
            }
            for lease in impossible_leases() {
                assert_eq!(kind_of(lock.once_per(lease)), ErrorKind::BadInput);
            }
            let owned = lock.owned().with_lease(ms(5_000)).with_max_hold(ms(5_000));
            assert_eq!(kind_of(owned.try_lock()), ErrorKind::BadInput);
        }
    }
    for (lock, client) in OTHERS.iter().flat_map(|lock| [(lock, &nowhere), (lock, &connected)]) {
        let lock = lock(client, "zero");
        assert_eq!(refusals(&lock.with_lease(Duration::ZERO)), [ErrorKind::BadInput; 9], "{lock:?}");
        assert_eq!(refusals(&lock.with_max_hold(Duration::ZERO)), [ErrorKind::BadInput; 9], "{lock:?}");
        assert_eq!(kind_of(lock.once_per(Duration::ZERO)), ErrorKind::BadInput, "{lock:?}");
        assert!(client.held().is_empty());
    }
    let asked = server.calls();
    let known = ["config|resetstat", "hello", "client|setinfo", "info", "auth", "select"];
    assert!(asked.keys().all(|command| known.contains(&command.as_str())), "{asked:?}");
}

#[test]
fn an_impossible_extension_is_refused_and_changes_nothing() {
    for_a_lock_of_every_kind(|_, lock| {
        let guard = lock.lock().unwrap();
        for lease in impossible_leases() {
            assert_eq!(kind_of(guard.extend(lease)), ErrorKind::BadInput);
        }
        assert!(guard.is_held());
        assert!(ttl_ms(RedisServer::shared(), key(lock.name())) > 29_000);
    });
}

/// Every way to take a lock.
fn refusals(lock: &Lock) -> [ErrorKind; 9] {
    [
        kind_of(lock.lock()),
        kind_of(lock.try_lock()),
        kind_of(lock.try_lock_for(ms(2_000))),
        kind_of(lock.run(|_| panic!("it must not run"))),
        kind_of(lock.try_run(|_| panic!("it must not run"))),
        kind_of(lock.try_run_for(ms(2_000), |_| panic!("it must not run"))),
        kind_of(lock.owned().lock()),
        kind_of(lock.owned().try_lock()),
        kind_of(lock.owned().try_lock_for(ms(2_000))),
    ]
}

fn impossible(kind: &Kind, client: &Client) -> Vec<Lock> {
    let mut locks = vec![kind.get_lock(client, ""), kind.get_lock(client, &"x".repeat(4_097))];
    let lock = kind.get_lock(client, &kind.fresh());
    locks.extend(impossible_leases().map(|lease| lock.with_lease(lease)));
    let (lease, most) = (ms(5_000), ms(50_000));
    locks.push(lock.with_max_hold(Duration::ZERO));
    locks.extend([lock.with_lease(lease).with_max_hold(most), lock.with_max_hold(most).with_lease(lease)]);
    locks
}

/// The locks that the contract does not know, with zero as another impossible limit.
const OTHERS: [OfName; 5] = [
    kinds::read,
    |client, name| client.get_token_lock_with(name, TokenOptions::new().with_release_by(ReleaseBy::Transaction)),
    |client, name| client.get_group_lock(name, ["1", "2"]),
    |client, name| Lock::multi([client.get_lock(name).with_max_hold(Duration::ZERO), client.get_lock("other")]),
    |client, name| RedLock::new([client.get_lock(name)]).into(),
];

fn impossible_leases() -> [Duration; 5] {
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999), year + ms(1), Duration::MAX]
}

fn forms() -> Vec<String> {
    let forms = [
        "plain",
        "with:colon:",
        "{tag}:",
        "a{b}c",
        "brace{",
        "}brace",
        "}{",
        "{}",
        "two words",
        " ",
        "\0nul\0",
        "line\r\nend\n",
        "\t",
        "percent%20",
        "glob*?[a]",
        "quote\"'\\",
        "\u{e9}\u{df}\u{4e2d}\u{1f512}",
        "\u{7f}",
        "redisson_lock__channel:{x}",
    ];
    forms.iter().map(|form| (*form).to_owned()).chain(["long".repeat(1_000)]).collect()
}
