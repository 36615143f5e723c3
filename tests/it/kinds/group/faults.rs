//! Group locks over broken connections, and with few rights.

use std::collections::BTreeMap;
use std::fs;
use std::thread;

use lockson::{Client, Guard, Lock};
use lockson_harness::{RedisServer, eventually};

use crate::faults::exactly_once::at_every_byte;
use crate::support::faults::Rig;
use crate::support::{SOON, at_once, fields, joined, ms};

const GROUP: &str = "once";
const ACQUIRE: &str = include_str!("../../../../lua/group/acquire.lua");
const REENTER: &str = include_str!("../../../../lua/group/reenter.lua");
const RELEASE: &str = include_str!("../../../../lua/group/release.lua");

/// The hold counts by owner.
fn counts(server: &RedisServer) -> BTreeMap<String, u64> {
    let fields = fields(server, GROUP).into_iter();
    let counts = fields.filter_map(|(field, count)| {
        let (_, owner) = field.strip_suffix(":lock_count")?.split_once(':')?;
        Some((owner.to_owned(), count.parse().unwrap()))
    });
    counts.collect()
}

#[track_caller]
fn is_held(rig: &Rig, guard: &Guard, count: u64) {
    let owners = guard.hold().members().iter().map(|member| (member.owner().to_owned(), count));
    assert_eq!(counts(&rig.server), owners.collect());
    assert!(guard.is_held());
}

#[test]
fn a_group_taken_over_a_cut_connection_is_taken_once() {
    let rig = Rig::start();
    let lock = rig.client().get_group_lock(GROUP, ["1", "2"]);
    let take = |()| {
        let guard = lock.try_lock().unwrap().expect("no other client wants it");
        is_held(&rig, &guard, 1);
        assert!((29_000..=30_000).contains(&rig.time_to_live(GROUP)));
        guard.unlock().unwrap();
        rig.assert_no_keys();
    };
    at_every_byte(&rig, &rig.script_of(ACQUIRE), || (), take);
    let reenter = |outer: Guard| {
        let inner = lock.try_lock().unwrap().expect("this thread holds it");
        is_held(&rig, &outer, 2);
        drop(inner);
        is_held(&rig, &outer, 1);
        outer.unlock().unwrap();
        rig.assert_no_keys();
    };
    at_every_byte(&rig, &rig.script_of(REENTER), || lock.lock().unwrap(), reenter);
    let before = rig.server.calls_of("publish");
    let release = |guard: Guard| {
        guard.unlock().unwrap();
        assert_eq!(lock.hold_count(), 0);
        rig.assert_no_keys();
    };
    let points = at_every_byte(&rig, &rig.script_of(RELEASE), || lock.lock().unwrap(), release);
    assert_eq!(rig.server.calls_of("publish") - before, points, "each release is announced once");
}

/// The words of `docs/operations.md` for the user of a group lock.
fn documented_rights() -> Vec<String> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    let words = |from: &str, to: &str| -> Vec<String> {
        let line = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1.split_once(to).unwrap().0;
        line.split(' ').map(|word| word.replace("PASSWORD", "secret")).collect()
    };
    let left_out = words("has the line of `plain` without `", "`");
    let more = words(&format!("has the line of `plain` without `{}` and with `", left_out.join(" ")), "`");
    words("ACL SETUSER plain ", "\n").into_iter().filter(|word| !left_out.contains(word)).chain(more).collect()
}

/// Everything that a user of a group lock does; tells whether all of it went well.
fn everything_works(server: &RedisServer, rights: &[String]) -> bool {
    server.run(&["FLUSHALL"]);
    let rights: Vec<&str> = ["ACL", "SETUSER", "group"].into_iter().chain(rights.iter().map(String::as_str)).collect();
    server.run(&rights);
    let url = server.url().replace("redis://", "redis://group:secret@");
    let Ok(client) = Client::builder(&url).watchdog(ms(1_000), ms(100)).connect() else { return false };
    let bystander = Client::connect(&server.url()).unwrap();
    let of = |client: &Client| client.get_group_lock("app:group", ["1", "2"]);
    let work = || -> Option<()> {
        let lock = of(&client);
        let outer = lock.try_lock().ok()??;
        lock.try_lock().ok()??.unlock().ok()?;
        outer.extend(ms(1_200)).ok()?;
        outer.wait_lost(ms(1_500)).is_none().then_some(())?;
        let theirs = of(&bystander);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| theirs.try_lock_for(SOON).ok()?.map(drop));
            eventually(SOON, "it waits", || !bystander.waiting().is_empty());
            thread::sleep(ms(100)); // between two questions, only a message wakes a waiter
            let released = std::time::Instant::now();
            outer.unlock().ok()?;
            joined(waiter)?;
            (released.elapsed() < ms(400)).then_some(())
        })?;
        let held = theirs.owned().lock().unwrap();
        lock.try_lock().ok()?.is_none().then_some(())?;
        let taken = thread::scope(|scope| {
            let waiter = scope.spawn(|| of(&client).try_lock_for(SOON).ok()?.map(drop));
            thread::sleep(ms(150));
            held.unlock().unwrap();
            joined(waiter)
        });
        taken?;
        // A hold that expired inside a group that lives on.
        let kept = bystander.get_group_lock("app:group", ["3"]).lock().unwrap();
        theirs.with_lease(ms(60)).lock().unwrap().keep_until_expiry();
        lock.try_lock_for(SOON).ok()??.unlock().ok()?;
        kept.unlock().unwrap();
        let other: Lock = bystander.get_read_write_lock("app:group").get_read_lock();
        let held = other.lock().unwrap();
        let is_told = lock.try_lock().is_err_and(|error| error.kind() == lockson::ErrorKind::OtherKind);
        held.unlock().unwrap();
        is_told.then_some(())
    };
    work().is_some()
}

#[test]
fn the_rights_of_a_group_are_enough_and_least() {
    let rights = documented_rights();
    let server = RedisServer::start();
    assert!(everything_works(&server, &rights), "{rights:?}");
    let words = rights.iter().filter(|word| word.starts_with(['+', '~', '&']));
    // Scripts are known here, and a channel is left after the deeds of this test.
    let words = words.filter(|word| !["+eval", "+unsubscribe"].contains(&word.as_str()));
    at_once(words, |left_out| {
        let rest: Vec<String> = rights.iter().filter(|word| *word != left_out).cloned().collect();
        let server = RedisServer::start();
        for script in [ACQUIRE, REENTER, RELEASE] {
            server.run(&["SCRIPT", "LOAD", script]);
        }
        assert!(!everything_works(&server, &rest), "nothing fails without {left_out}");
    });
}
