//! The observers for the crates `metrics` and `tracing`, each with a recorder or subscriber of the test.

mod alarms;
mod metrics;
mod recorder;
mod tracing;

use lockson::Observer;

use crate::support::prelude::*;

/// A busy try, a wait beside a broken listening connection, failed renewals, an abandoned hold and a loss, all of one
/// lock. Returns its name.
fn scene(observer: impl Observer + 'static) -> String {
    let (rig, events, name) = (Rig::start(), Events::default(), fresh("told"));
    let client = rig.builder().watchdog(SOON * 2, ms(100)).observer((observer, events.clone())).connect().unwrap();
    let ours = client.get_lock(&name);
    let theirs = rig.direct().get_lock(&name).owned().lock().unwrap();
    assert!(ours.try_lock().unwrap().is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(ours.lock().unwrap()));
        eventually(SOON, "it listens", || rig.server.subscribers(&channel(&name)) == 1);
        rig.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        eventually(SOON, "it listens again", || events.count_of("heard again") > 0);
        theirs.unlock().unwrap();
        joined(waiter);
    });
    let lost = ours.lock().unwrap();
    let cut = rig.proxy.rule(rig.script("renew"), Then::CutBeforeRequest);
    eventually(SOON, "a renewal fails", || events.count_of("not renewed") > 0);
    cut.remove();
    eventually(SOON, "renewals work again", || !events.outages().is_empty());
    rig.server.run(&["DEL", &name]);
    eventually(SOON, "the loss is told", || events.losses_of(&name) == 1);
    drop(lost);
    thread::scope(|scope| scope.spawn(|| ours.lock().unwrap().leave_to_unlock()).join().unwrap());
    eventually(SOON, "the thread's end is told", || events.of(&name).contains(&"abandoned".to_owned()));
    name
}
