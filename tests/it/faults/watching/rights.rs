//! Where the server does not tell: today's bound, said once.

use super::watched;
use crate::support::prelude::*;

/// The event of late told losses, at any port.
const LATE: &str = "told late of 127.0.0.1";

#[test]
fn without_rights_renewals_tell_losses_after_one_notice() {
    at_once([&["-client|tracking"][..], &["resetchannels", "&redisson*"]], |lacks| {
        let server = RedisServer::start();
        let mut user = vec!["ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all"];
        user.extend(lacks);
        server.run(&user);
        let late = Events::default();
        let settings = Client::builder(&server.url()).watchdog(ms(6_000), ms(600)).observer(late.clone());
        let client = settings.connect().unwrap();
        let guard = client.get_lock("seen").owned().lock().unwrap();
        eventually(SOON, "the missing right is reported", || late.count_of(LATE) > 0);
        // Over several ticks, and over holds that would be watched.
        let others: Vec<_> = (0..5)
            .map(|number| {
                thread::sleep(ms(250));
                client.get_lock(format!("other {number}")).owned().lock().unwrap()
            })
            .collect();
        let errors = late.errors_of(LATE);
        assert!(errors.len() == 1 && errors[0].to_string().contains("NOPERM"), "{lacks:?}: {errors:?}");
        assert_eq!(server.tracked_keys(), 0);
        server.run(&["DEL", "seen"]);
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone), "{lacks:?}: the next renewal tells");
        assert!(others.iter().all(|guard| guard.is_held()));
        drop(others);
    });
}

#[test]
fn a_right_given_later_is_used_from_the_next_connection_on() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "default", "-client|tracking"]);
    let (late, client) = Events::of_client(super::patient(&server.url()));
    let guard = client.get_lock("seen").owned().lock().unwrap();
    eventually(SOON, "the missing right is reported", || late.count_of(LATE) > 0);
    server.run(&["ACL", "SETUSER", "default", "+client|tracking"]);
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually(SOON, "the hold is watched", || server.tracked_keys() > 0);
    server.run(&["DEL", "seen"]);
    assert_eq!(guard.wait_lost(super::AT_ONCE), Some(Loss::Gone));
    assert_eq!(late.count_of(LATE), 1);
}

#[test]
fn an_observer_that_panics_stops_no_watching() {
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "default", "-client|tracking"]);
    let told = Events::acting(|event, _| assert!(!event.starts_with(LATE), "this panic is part of the test"));
    let client = super::patient(&server.url()).observer(told.clone()).connect().unwrap();
    let first = client.get_lock("first").owned().lock().unwrap();
    eventually(SOON, "the missing right is reported", || told.count_of(LATE) == 1);
    server.run(&["ACL", "SETUSER", "default", "+client|tracking"]);
    server.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let guards = watched(&server, &client);
    server.run(&["FLUSHALL"]);
    super::all_are_told(&guards, std::time::Instant::now(), Loss::Gone, "flush");
    drop(first);
}

#[test]
fn a_release_that_finds_nothing_swallows_no_announcement() {
    // On this server only the message reveals a loss.
    let server = RedisServer::start();
    server.run(&["ACL", "SETUSER", "default", "-client|tracking"]);
    let client = super::patient(&server.url()).connect().unwrap();
    let others = Client::connect(&server.url()).unwrap();
    for attempt in 0..20 {
        let (name, channel) = (format!("l{attempt}"), crate::support::channel(&format!("l{attempt}")));
        let lock = client.get_lock(&name);
        let guard = lock.lock().unwrap();
        crate::support::elsewhere(|| assert!(lock.try_lock_for(ms(50)).unwrap().is_none()));
        // From here on the channel is listened to for a second more.
        let subscribed = server.calls_of("subscribe");
        server.run(&["DEL", &name]);
        assert!(guard.unlock().is_err());
        let guard = lock.lock().unwrap();
        let listens = server.subscribers(&channel) == 1;
        assert!(others.get_lock(&name).force_unlock().unwrap());
        if listens && server.subscribers(&channel) == 1 && server.calls_of("subscribe") == subscribed {
            assert_eq!(guard.wait_lost(super::AT_ONCE), Some(Loss::Gone));
            return;
        }
    }
    panic!("this machine is too slow for a verdict");
}
