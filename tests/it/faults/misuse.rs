//! Mistakes of users' code.

use crate::support::prelude::*;

#[test]
fn a_panicking_observer_disturbs_no_call() {
    let rig = Rig::start();
    let told = Events::acting(|_, _| panic!("this panic is part of the test"));
    let lease = Duration::from_secs(3);
    let client = rig.impatient().watchdog(lease, ms(100)).observer(told.clone()).connect().unwrap();
    let kept = client.get_lock("kept").lock().unwrap();
    let deleted = client.get_lock("deleted").lock().unwrap();
    rig.server.run(&["DEL", "deleted"]);
    assert_eq!(deleted.wait_lost(SOON), Some(Loss::Gone));
    // Listening and renewing break, and go on.
    let held = rig.direct().get_lock("wanted").lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get_lock("wanted").lock().unwrap().unlock().unwrap());
        eventually(SOON, "it listens", || rig.server.subscribers("redisson_lock__channel:{wanted}") == 1);
        let failing = rig.proxy.rule(rig.script("renew").times(2), Then::ReplaceReply(b"-ERR odd\r\n".to_vec()));
        failing.wait_hits(2, SOON);
        let mark = rig.proxy.mark();
        rig.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        rig.proxy.wait_for_since(mark, &When::command("SUBSCRIBE"), SOON);
        held.unlock().unwrap();
        joined(waiter);
    });
    assert_eq!(kept.wait_lost(lease + ms(500)), None, "the hold is renewed");
    kept.unlock().unwrap();
    // Two acquired and lost or failing, one that waits and is acquired, two released.
    assert!(told.count_of("") - told.count_of("renewed") > 8, "{told:?}");
    assert!(deleted.unlock().is_err());
}
