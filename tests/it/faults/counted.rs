//! Exactly once for what is counted: at every byte of request and answer, with fences and without.

use lockson::{Permits, Semaphore};

use super::exactly_once::{faults, lengths, silences};
use crate::support::faults::{fences, meek, rig_without_fences, without_fences};
use crate::support::prelude::*;

const NAME: &str = "counted";

/// A rig with a client that may kill connections, and one with a client that may not.
fn both() -> [(Rig, Client); 2] {
    let (with, without) = (Rig::start(), rig_without_fences());
    let clients = [with.client(), without_fences(&without)];
    let [first, second] = clients;
    [(with, first), (without, second)]
}

/// Calls of the script at this path below `lua/`.
fn script(rig: &Rig, path: &'static str, text: &str) -> When {
    let hash: String = rig.server.query(&["SCRIPT", "LOAD", text]);
    let head = format!("-- {path}\n");
    When::script().that(move |request| request.text(0) == hash || request.text(0).starts_with(&head))
}

macro_rules! script {
    ($rig:expr, $path:literal) => {
        script($rig, $path, include_str!(concat!("../../../lua/", $path)))
    };
}

/// Breaks the connection at every place of the request and of the reply. `act` checks the sum each time.
fn at_every_byte(rig: &Rig, when: &When, mut act: impl FnMut()) {
    act();
    let (request, reply) = lengths(rig, when);
    for then in faults(request, reply) {
        let rule = rig.proxy.rule(when.clone(), then.clone());
        act();
        assert_eq!(rule.hits(), 1, "{then:?}");
    }
}

fn free(rig: &Rig) -> i64 {
    rig.server.query::<Option<i64>>(&["GET", NAME]).unwrap_or(0)
}

fn semaphore(rig: &Rig, client: &Client, permits: u32) -> Semaphore {
    let semaphore = client.get_semaphore(NAME);
    assert!(rig.direct().get_semaphore(NAME).set_permits_once(permits).unwrap());
    semaphore
}

#[test]
fn an_acquire_cut_at_any_byte_takes_its_permits_once() {
    for (rig, client) in both() {
        let semaphore = semaphore(&rig, &client, 10);
        at_every_byte(&rig, &script!(&rig, "semaphore/acquire.lua"), || {
            let permits = semaphore.try_acquire(3).unwrap().expect("ten are free");
            assert_eq!(free(&rig), 7);
            permits.release().unwrap();
            assert_eq!(free(&rig), 10);
        });
    }
}

#[test]
fn permits_granted_during_a_close_are_given_back() {
    let (rig, client) = Rig::start().and(|rig| rig.builder().drop_timeout(SOON).connect().unwrap());
    let semaphore = semaphore(&rig, &client, 3);
    let kept = semaphore.acquire(1).unwrap();
    let reply = rig.proxy.rule(script!(&rig, "semaphore/acquire.lua"), Then::HoldReply);
    thread::scope(|scope| {
        let taker = scope.spawn(|| kind_of(semaphore.try_acquire(1)));
        reply.wait_hit(SOON);
        scope.spawn(|| client.close());
        rig.proxy.wait_for(&script!(&rig, "semaphore/release.lua"), SOON);
        reply.release();
        assert_eq!(joined(taker), ErrorKind::Closed);
    });
    assert_eq!(free(&rig), 3);
    drop(kept);
}

#[test]
fn a_request_in_doubt_shares_its_memory_with_no_other() {
    let (rig, client) = Rig::start().and(|rig| rig.impatient().connect().unwrap());
    let semaphore = semaphore(&rig, &client, 10);
    let replies = rig.proxy.rule(script!(&rig, "semaphore/acquire.lua").times(100), Then::SwallowReply);
    let withdrawal = rig.proxy.rule(script!(&rig, "semaphore/withdraw.lua"), Then::HoldRequest);
    assert_eq!(kind_of(semaphore.try_acquire(3)), ErrorKind::Unknown);
    replies.remove();
    withdrawal.wait_hit(SOON);
    let permits = semaphore.try_acquire(1).unwrap().expect("seven are free");
    withdrawal.release();
    eventually(SOON, "the permits in doubt are back", || free(&rig) == 9);
    permits.release().unwrap();
    assert_eq!(free(&rig), 10);
}

#[test]
fn a_release_cut_at_any_byte_gives_back_once() {
    for (rig, client) in both() {
        let semaphore = semaphore(&rig, &client, 10);
        let release = script!(&rig, "semaphore/release.lua");
        at_every_byte(&rig, &release, || {
            let permits = semaphore.try_acquire(3).unwrap().expect("ten are free");
            permits.release().unwrap();
            assert_eq!(free(&rig), 10);
        });
        let mut sum = 10;
        at_every_byte(&rig, &release, || {
            semaphore.release(2).unwrap();
            sum += 2;
            assert_eq!(free(&rig), sum);
        });
    }
}

#[test]
fn a_first_setting_cut_at_any_byte_is_the_first() {
    for (rig, client) in both() {
        let semaphore = client.get_semaphore(NAME);
        at_every_byte(&rig, &script!(&rig, "once/set_once.lua"), || {
            rig.server.run(&["DEL", NAME]);
            assert!(semaphore.set_permits_once(4).unwrap(), "the repetition finds its own semaphore");
            assert_eq!(free(&rig), 4);
        });
        let latch = client.get_count_down_latch(NAME);
        at_every_byte(&rig, &script!(&rig, "once/set_once.lua"), || {
            rig.server.run(&["DEL", NAME]);
            assert!(latch.set_count_once(4).unwrap());
            assert_eq!(free(&rig), 4);
        });
    }
}

#[test]
fn a_count_down_cut_at_any_byte_counts_once() {
    for (rig, client) in both() {
        let latch = client.get_count_down_latch(NAME);
        at_every_byte(&rig, &script!(&rig, "latch/count_down.lua"), || {
            rig.server.run(&["SET", NAME, "9"]);
            latch.count_down().unwrap();
            assert_eq!(free(&rig), 8);
        });
    }
}

/// Takes permits while the answer is lost; the call is given up.
fn given_up(rig: &Rig, semaphore: &Semaphore, then: &Then) {
    let when = script!(rig, "semaphore/acquire.lua");
    let deaf = rig.proxy.rule(fences().times(99), Then::SwallowRequest);
    let rule = rig.proxy.rule(when, then.clone());
    let error = semaphore.try_acquire(3).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{then:?}: {error}");
    rule.wait_hit(SOON);
    deaf.remove();
}

#[test]
fn a_grant_that_nobody_heard_of_is_given_back() {
    at_once([true, false], |fenced| {
        let rig = if fenced { Rig::start() } else { rig_without_fences() };
        let builder = if fenced { rig.impatient() } else { Client::builder(&meek(&rig)).command_timeout(PATIENCE) };
        let client = builder.connect().unwrap();
        let semaphore = semaphore(&rig, &client, 10);
        let withdraw = script!(&rig, "semaphore/withdraw.lua");
        for then in silences() {
            let mark = rig.proxy.mark();
            let held = rig.proxy.rule(fences().times(99), Then::SwallowRequest);
            let mutes = matches!(then, Then::Mute(_));
            let again = rig.proxy.rule(script!(&rig, "semaphore/acquire.lua").nth(2).times(99), Then::SwallowRequest);
            given_up(&rig, &semaphore, &then);
            held.remove();
            again.remove();
            if mutes {
                rig.proxy.heal();
            }
            let sent = rig.proxy.wait_for_since(mark, &withdraw, SOON);
            eventually(SOON, "the request is closed", || {
                rig.proxy
                    .fitting_since(mark, &withdraw)
                    .iter()
                    .any(|sent| matches!(rig.proxy.fate(sent), Fate::Answered(_)))
            });
            drop(sent);
            rig.proxy.heal(); // the held request goes on, and finds its number closed
            eventually(SOON, "all arrived", || {
                rig.proxy.fitting_since(mark, &When::script()).iter().all(|sent| rig.proxy.fate(sent).is_final())
            });
            assert_eq!(free(&rig), 10, "{then:?}");
        }
    });
}

#[test]
fn a_release_that_was_given_up_comes_once_later() {
    at_once([true, false], |fenced| {
        let rig = if fenced { Rig::start() } else { rig_without_fences() };
        let builder = if fenced { rig.impatient() } else { Client::builder(&meek(&rig)).command_timeout(PATIENCE) };
        let client = builder.drop_timeout(PATIENCE / 2).connect().unwrap();
        let semaphore = semaphore(&rig, &client, 10);
        let release = script!(&rig, "semaphore/release.lua");
        let leave: [fn(Permits); 2] = [|permits| drop(permits.release()), drop];
        for (then, leave) in silences().into_iter().zip(leave.into_iter().cycle()) {
            let permits = semaphore.try_acquire(3).unwrap().expect("ten are free");
            let rules = [
                rig.proxy.rule(fences().times(99), Then::SwallowRequest),
                rig.proxy.rule(release.clone(), then.clone()),
            ];
            leave(permits);
            rules.into_iter().for_each(|rule| rule.remove());
            rig.proxy.heal();
            eventually(SOON, "the permits are back", || free(&rig) == 10);
            eventually(SOON, "all arrived", || {
                rig.proxy.fitting(&When::script()).iter().all(|sent| rig.proxy.fate(sent).is_final())
            });
            assert_eq!(free(&rig), 10, "{then:?}");
        }
    });
}

#[test]
fn a_late_copy_of_a_request_does_nothing() {
    let (rig, client) = Rig::start().and(Rig::client);
    let (semaphore, latch) = (semaphore(&rig, &client, 10), client.get_count_down_latch("latch"));
    let once = || {
        semaphore.try_acquire(3).unwrap().expect("ten are free").release().unwrap();
        let drained = semaphore.drain().unwrap();
        semaphore.add_permits(i64::try_from(drained).unwrap()).unwrap();
        latch.set_count_once(5).unwrap();
        latch.count_down().unwrap();
        latch.delete().unwrap();
    };
    let mark = rig.proxy.mark();
    once();
    let originals = rig.proxy.fitting_since(mark, &When::script());
    assert!(originals.len() >= 7, "{originals:?}");
    once();
    let state = || {
        let numbers = rig.server.keys().into_iter().filter(|key| key.starts_with("lockson_once"));
        let numbers = numbers.map(|key| (rig.server.query::<String>(&["GET", &key]), key));
        (free(&rig), rig.server.keys(), numbers.collect::<Vec<_>>())
    };
    let before = state();
    assert!(before.0 == 10 && !before.2.is_empty());
    for original in &originals {
        let copy = rig.proxy.send_copy_anew(original);
        let Fate::Answered(reply) = rig.proxy.wait_fate(&copy, SOON) else { panic!("{copy:?}") };
        // The first copy of a script is refused for its hash, and then sent with its source.
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.starts_with("-LATE") || reply.starts_with("-NOSCRIPT"), "{reply}");
        assert_eq!(state(), before);
    }
}

#[test]
fn a_repeated_take_is_granted_where_writes_are_refused_by_then() {
    for (setting, refuses, admits) in [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")] {
        let (rig, client) = Rig::start().and(Rig::client);
        let semaphore = semaphore(&rig, &client, 5);
        let lost = rig.proxy.rule(script!(&rig, "semaphore/acquire.lua"), Then::SwallowReply);
        let permits = thread::scope(|scope| {
            let taker = scope.spawn(|| semaphore.acquire(2));
            lost.wait_hit(SOON);
            rig.server.run(&["CONFIG", "SET", setting, refuses]);
            joined(taker).unwrap()
        });
        assert_eq!(free(&rig), 3);
        rig.server.run(&["CONFIG", "SET", setting, admits]);
        permits.release().unwrap();
        assert_eq!(free(&rig), 5);
    }
}

#[test]
fn a_withdrawal_makes_no_deleted_semaphore_anew() {
    let (rig, client) = Rig::start().and(|rig| rig.impatient().connect().unwrap());
    let semaphore = semaphore(&rig, &client, 5);
    let withdraw = script!(&rig, "semaphore/withdraw.lua");
    let silent = rig.proxy.rule(script!(&rig, "semaphore/acquire.lua").always(), Then::SwallowReply);
    let held = rig.proxy.rule(withdraw.clone().always(), Then::HoldRequest);
    assert!(semaphore.try_acquire(2).is_err());
    held.wait_hit(SOON);
    assert_eq!(free(&rig), 3);
    assert!(rig.direct().get_semaphore(NAME).delete().unwrap());
    silent.remove();
    held.remove();
    let is_answered = |sent: &Request| matches!(rig.proxy.fate(sent), Fate::Answered(_));
    eventually(SOON, "the take is withdrawn", || rig.proxy.fitting(&withdraw).iter().any(is_answered));
    assert_eq!(rig.server.query::<u8>(&["EXISTS", NAME]), 0);
}

#[test]
fn a_drop_of_permits_is_bounded() {
    let (rig, client) = Rig::start().and(|rig| rig.builder().drop_timeout(ms(300)).connect().unwrap());
    let semaphore = semaphore(&rig, &client, 2);
    let permits = semaphore.acquire(1).unwrap();
    let rule = rig.proxy.rule(When::script().times(99), Then::SwallowRequest);
    let (took, ()) = crate::support::timed(|| drop(permits));
    assert!(took < ms(300) + Duration::from_secs(1), "{took:?}");
    rule.remove();
    eventually(SOON, "the permit is back", || free(&rig) == 2);
}

#[test]
fn a_copy_that_takes_after_the_answer_busy_gives_back() {
    let rig = rig_without_fences();
    let client = Client::builder(&meek(&rig)).command_timeout(PATIENCE).connect().unwrap();
    let semaphore = semaphore(&rig, &client, 2);
    semaphore.add_permits(-2).unwrap();
    for drains in [false, true] {
        let take = if drains { script!(&rig, "semaphore/drain.lua") } else { script!(&rig, "semaphore/acquire.lua") };
        let mark = rig.proxy.mark();
        let lost = rig.proxy.rule(take.clone(), Then::CutReplyAfter(0));
        let delayed = [script!(&rig, "semaphore/withdraw.lua"), script!(&rig, "once/close.lua")]
            .map(|ending| rig.proxy.rule(ending.times(99), Then::AnswerInstead(b"-BUSY not now\r\n".to_vec())));
        if drains {
            assert_eq!(semaphore.drain().unwrap(), 0);
        } else {
            assert!(semaphore.try_acquire(3).unwrap().is_none());
        }
        let first = rig.proxy.fitting_since(mark, &take).remove(0);
        lost.remove();
        rig.server.run(&["SET", NAME, "3"]);
        let late = rig.proxy.send_copy_anew(&first);
        rig.proxy.wait_fate(&late, SOON);
        assert_eq!(free(&rig), 0, "the late copy takes");
        delayed.into_iter().for_each(|rule| rule.remove());
        eventually(SOON, "the permits are back", || free(&rig) == 3);
        rig.server.run(&["SET", NAME, "0"]);
    }
}
