//! A thread that ends without a release leaves the lock to its time to live, and the loss is reported once.

use crossbeam_channel::bounded;
use lockson::Hold;

use crate::support::prelude::*;

#[test]
fn a_hold_abandoned_in_an_outage_is_told_of_once() {
    let rig = Rig::start();
    let told = Events::default();
    let settings = rig.builder().watchdog(Duration::from_secs(4), ms(200)).command_timeout(ms(300));
    let client = settings.observer(told.clone()).connect().unwrap();
    let lock = client.get_lock("left");
    let (end, ended) = bounded::<()>(0);
    let thread = thread::spawn(move || {
        lock.lock().unwrap().leave_to_unlock();
        assert!(ended.recv().is_err());
    });
    let renewals = rig.script("renew");
    rig.proxy.wait_for_since(0, &renewals, SOON);
    rig.proxy.mute(Scope::All, Direction::Both);
    thread::sleep(ms(700)); // the hold waits for another renewal
    drop(end);
    thread.join().unwrap();
    let abandoned = || told.count_of("abandoned");
    eventually(SOON, "the loss is reported", || abandoned() > 0);
    eventually(SOON, "the time to live is over", || told.losses_of("left") > 0);
    assert_eq!((abandoned(), told.losses_of("left")), (1, 1));
    rig.proxy.unmute();
}

#[test]
fn a_lease_over_before_the_next_look_is_told_as_abandoned() {
    let rig = Rig::start();
    let (told, client) = Events::of_client(rig.builder().watchdog(Duration::from_secs(6), ms(1_500)));
    let lock = client.get_lock("leased").with_lease(ms(1_000));
    let holder = thread::spawn(move || {
        lock.lock().unwrap().leave_to_unlock();
        thread::sleep(ms(500)); // the watchdog has looked at the young hold
    });
    holder.join().unwrap();
    eventually(SOON, "the loss is told", || told.losses_of("leased") > 0);
    eventually(SOON, "the end of the thread is told", || told.count_of("abandoned") > 0);
    eventually(SOON, "nothing is listed", || client.held().is_empty());
    assert_eq!((told.count_of("abandoned"), told.losses_of("leased")), (1, 1));
}

#[test]
fn a_released_hold_is_never_reported_as_abandoned() {
    let rig = Rig::start();
    let (told, client) = Events::of_client(rig.builder().watchdog(Duration::from_secs(6), ms(200)));
    // The watchdog watches from now on.
    let _watched = client.get_lock("watched").lock().unwrap();
    thread::sleep(ms(500));
    // Another thread looks at each hold for longer than the holder's thread lives.
    let holds: Vec<_> = (0..20)
        .map(|number| {
            let lock = client.get_lock(format!("back:{number}"));
            thread::spawn(move || {
                let guard = lock.lock().unwrap();
                let hold = guard.hold().clone();
                guard.unlock().unwrap();
                hold
            })
        })
        .map(|thread| thread.join().unwrap())
        .collect();
    thread::sleep(ms(500));
    for hold in holds {
        let name = hold.name();
        assert_eq!(told.of(name), ["acquired", "released"]);
    }
}

/// A hold whose thread has ended without a release, after the watchdog saw the end.
fn left(lock: Lock, told: &Events) -> Hold {
    let name = lock.name().to_owned();
    let hold = thread::spawn(move || {
        let guard = lock.lock().unwrap();
        let hold = guard.hold().clone();
        guard.leave_to_unlock();
        hold
    });
    let hold = hold.join().unwrap();
    eventually(SOON, "the watchdog saw it", || told.of(&name).contains(&"abandoned".to_owned()));
    assert!(hold.is_held(), "nobody else may have it yet");
    hold
}

#[test]
fn an_abandoned_hold_is_told_of_its_loss() {
    let rig = Rig::start();
    let told = Events::default();
    let settings = || rig.builder().watchdog(Duration::from_secs(60), ms(200));
    let (client, other) = (settings().observer(told.clone()).connect().unwrap(), settings().connect().unwrap());
    let losses: [(&str, &dyn Fn()); 4] = [
        ("forced", &|| assert!(client.get_lock("forced").force_unlock().unwrap())),
        ("forced by another", &|| assert!(other.get_lock("forced by another").force_unlock().unwrap())),
        ("deleted", &|| assert_eq!(rig.server.query::<u64>(&["DEL", "deleted"]), 1)),
        ("flushed", &|| assert_eq!(rig.server.query::<String>(&["FLUSHALL"]), "OK")),
    ];
    for (name, lose) in losses {
        let hold = left(client.get_lock(name), &told);
        lose();
        assert_eq!(hold.wait_lost(ms(2_000)), Some(Loss::Gone), "{name}");
        let _next = client.get_lock(name).try_lock().unwrap().expect("it is free");
        eventually(SOON, "the observer is told", || told.losses_of(name) > 0);
        assert_eq!(told.losses_of(name), 1, "{name}");
    }
    let renewals = rig.script("renew");
    let hold = left(client.get_lock("kept"), &told);
    let from = rig.proxy.mark();
    thread::sleep(ms(600));
    assert!(hold.is_held() && rig.proxy.fitting_since(from, &renewals).is_empty(), "it is renewed no more");
}

#[test]
fn closing_ends_an_abandoned_hold() {
    let rig = Rig::start();
    let (told, client) = Events::of_client(rig.builder().watchdog(Duration::from_secs(60), ms(200)));
    let hold = left(client.get_lock("left"), &told);
    client.close();
    assert_eq!((hold.lost(), told.losses_of("left")), (Some(Loss::Closed), 1));
    rig.assert_no_keys();
}
