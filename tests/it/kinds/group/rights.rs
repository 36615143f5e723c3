//! The rights of a user of group locks.

use crate::support::prelude::*;

const ACQUIRE: &str = include_str!("../../../../lua/group/acquire.lua");
const REENTER: &str = include_str!("../../../../lua/group/reenter.lua");
const RELEASE: &str = include_str!("../../../../lua/group/release.lua");

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
        let other: Lock = bystander.get_read_write_lock("app:group").read();
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
