//! The wait for replicas on the wire: its connection, its lost answer, a silent server.

use super::scene::{Copied, WITHIN, none, one};
use crate::servers::at_each_version;
use crate::support::prelude::*;

fn fences() -> When {
    When::command("CLIENT").containing("KILL")
}

fn wait() -> When {
    When::command("WAIT")
}

#[test]
fn a_wait_follows_its_grant_over_the_same_connection() {
    let copied = Copied::start(1);
    let proxy = Proxy::start(copied.master.address());
    let client = Client::builder(&proxy.url()).durability(one().within(SOON)).connect().unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| drop(client.get_lock(fresh("one")).lock().unwrap())));
        }
    });
    let locks = [(); 3].map(|()| client.get_lock(fresh("several")));
    Lock::multi(locks).lock().unwrap().unlock().unwrap();
    let waits = proxy.fitting(&wait());
    assert_eq!(waits.len(), 8 * 20 + 1, "one for each grant, and for each request about several locks");
    for wait in waits {
        let over = proxy.fitting(&When::any().on_connection(wait.connection));
        let before: Vec<_> = over.iter().filter(|request| request.number < wait.number).rev().take(2).collect();
        assert!(before[0].contains("durability/touch") && before[1].command.starts_with("EVAL"), "{before:?}");
        assert!(!before[1].contains("durability/touch"), "{before:?}");
    }
}

/// The server counts what a connection wrote last, and a renewal may write nothing. Redis 7.0 counts requests that write
/// nothing, too, so it is the other versions of `make servers` that make this test.
#[test]
fn another_connection_does_not_confirm_what_it_did_not_write() {
    at_each_version(|version| {
        let copied = Copied::of(&version.builder(), 1);
        let client = Client::connect(&copied.master.url()).unwrap();
        let patient = one().within(ms(2_000));
        let guard = client.get_lock(fresh("raised")).with_lease(SOON).with_durability(patient).lock().unwrap();
        copied.replicas[0].pause();
        assert_eq!(kind_of(guard.extend(SOON * 20)), ErrorKind::NotDurable, "{}", version.label);
        // The master has the longer time now, so the next request writes nothing, over a connection that wrote nothing.
        copied.master.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert_eq!(kind_of(guard.extend(SOON * 10)), ErrorKind::NotDurable, "{}", version.label);
        assert!(guard.remaining() <= SOON, "{}: {:?}", version.label, guard.remaining());
    });
}

#[test]
fn a_lost_answer_to_the_wait_is_a_doubt_like_any_other() {
    let copied = Copied::start(1);
    for then in [Then::SwallowReply, Then::CutReplyAfter(0), Then::CutRequestAfter(3), Then::CutReplyAfter(2)] {
        let proxy = Proxy::start(copied.master.address());
        let client = Client::builder(&proxy.url()).connect().unwrap();
        let lock = client.get_lock(fresh("doubt")).with_durability(one());
        lock.lock().unwrap().unlock().unwrap(); // the server knows the scripts from here on
        let (rule, mark) = (proxy.rule(wait(), then.clone()), proxy.mark());
        let (took, guard) = timed(|| lock.try_lock().unwrap().expect("it is asked for again"));
        assert_eq!(rule.hits(), 1, "{then:?}");
        assert!(took < ms(3_000) + SCHEDULING, "{then:?}: {took:?}");
        let scripts = When::command("EVALSHA").containing(lock.name());
        let (asked, kills) = (proxy.fitting_since(mark, &scripts), proxy.fitting_since(mark, &fences()));
        assert_eq!((asked.len(), kills.len()), (2, 1), "{then:?}");
        assert!(matches!(proxy.fate(&kills[0]), Fate::Answered(_)) && kills[0].number < asked[1].number, "{then:?}");
        assert_eq!(fields(&copied.master, lock.name()), [(guard.owner().to_owned(), "1".to_owned())], "{then:?}");
        guard.unlock().unwrap();
        assert_eq!(copied.master.keys(), Vec::<String>::new(), "{then:?}");
    }
}

/// The locks are asked for in one write, and one wait follows.
#[test]
fn a_lost_answer_leaves_all_locks_of_the_wait_in_doubt() {
    let copied = Copied::start(1);
    for then in [Then::SwallowReply, Then::CutReplyAfter(0), Then::CutRequestAfter(3)] {
        let proxy = Proxy::start(copied.master.address());
        let client = Client::builder(&proxy.url()).durability(one()).connect().unwrap();
        let several = Lock::multi([client.get_lock(fresh("plain")), client.get_fair_lock(fresh("fair"))]);
        several.lock().unwrap().unlock().unwrap(); // the server knows the scripts from here on
        let (rule, mark) = (proxy.rule(wait(), then.clone()), proxy.mark());
        let guard = several.try_lock().unwrap().expect("they are asked for again");
        assert_eq!((rule.hits(), proxy.fitting_since(mark, &fences()).len()), (1, 1), "{then:?}");
        for member in guard.hold().members() {
            let held = [(member.owner().to_owned(), "1".to_owned())];
            assert_eq!(fields(&copied.replicas[0], member.name()), held, "{then:?}");
        }
        guard.unlock().unwrap();
        assert_eq!(copied.master.keys(), Vec::<String>::new(), "{then:?}");
    }
}

#[test]
fn a_wait_that_is_not_answered_ends_in_time() {
    let copied = Copied::start(1);
    let lost = (wait().always(), Then::SwallowReply, &[ms(0), ms(700)][..]);
    let silent = (wait(), Then::Mute(Direction::Both), &[ms(300)][..]);
    for (when, then, waits) in [lost, silent] {
        let proxy = Proxy::start(copied.master.address());
        let client = Client::builder(&proxy.url()).command_timeout(ms(500)).drop_timeout(ms(200)).connect().unwrap();
        let rule = proxy.rule(when, then.clone());
        let lock = client.get_lock(fresh("mute")).with_durability(none());
        for wait in waits {
            let (took, outcome) = timed(|| lock.try_lock_for(*wait));
            if matches!(then, Then::SwallowReply) {
                assert_eq!(kind_of(outcome), ErrorKind::Unknown);
            }
            // The wait, one command, the time of the replicas, and half a second for the silence.
            assert!(took < *wait + ms(500) + WITHIN + ms(500) + SCHEDULING, "{then:?}: {took:?}");
        }
        assert!(rule.hits() > 0);
        rule.remove();
        proxy.heal();
        eventually(SOON, "nothing is left", || copied.master.keys().is_empty());
    }
}
