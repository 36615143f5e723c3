//! The client's belief about a hold when answers come late, never, or from a demoted master.

use crate::support::faults::fences;
use crate::support::prelude::*;

const NAME: &str = "keeping";

#[test]
fn the_late_answer_of_a_renewal_is_not_that_of_the_next_one() {
    let rig = Rig::start();
    let lease = Duration::from_secs(3);
    let client = rig.builder().watchdog(lease, ms(500)).command_timeout(PATIENCE).connect().unwrap();
    let guard = client.get_lock(NAME).lock().unwrap();
    let answer = rig.proxy.rule(rig.script("renew"), Then::HoldReply);
    let first = answer.wait_hit(SOON);
    rig.proxy.wait_fate(&first, SOON);
    let requests = rig.proxy.rule(rig.script("renew").always(), Then::HoldRequest);
    requests.wait_hit(SOON); // nothing raises the time to live from here on
    answer.release();
    while guard.is_held() {
        // In this order: both values only fall.
        let left = u128::try_from(rig.time_to_live(NAME)).unwrap_or(0);
        let believed = guard.remaining().as_millis();
        assert!(believed <= left, "believed for {believed} ms, in Redis for {left}");
    }
    assert_eq!(guard.lost(), Some(Loss::Expired));
}

#[test]
fn a_release_found_nothing_after_its_deadline_and_says_so() {
    let (rig, lock) = Rig::start().and(|rig| rig.builder().command_timeout(SOON).connect().unwrap().get_lock(NAME));
    let lease = ms(1_000);
    let taken = Instant::now();
    let guard = lock.with_lease(lease).owned().lock().unwrap();
    let cut = rig.proxy.rule(rig.release(false), Then::CutReplyAfter(0));
    let fence = rig.proxy.rule(fences().always(), Then::HoldRequest);
    thread::scope(|scope| {
        let released = scope.spawn(move || guard.unlock());
        cut.wait_hit(SOON);
        fence.wait_hit(SOON);
        // Since then another client may have had the lock, as far as the holder knows.
        thread::sleep(lease.saturating_sub(taken.elapsed()));
        rig.proxy.heal();
        assert!(matches!(kind_of(joined(released)), ErrorKind::Lost(_)));
    });
}

#[test]
fn the_watchdog_leaves_a_mute_demoted_server() {
    let rig = Rig::around(RedisServer::builder().config("replica-serve-stale-data no").start());
    let successor = RedisServer::start();
    let client = rig.builder().watchdog(Duration::from_secs(4), ms(100)).connect().unwrap();
    let kept = client.get_lock("kept").lock().unwrap();
    rig.proxy.wait_for(&rig.script("renew"), SOON); // over its own connection
    successor.run(&["REPLICAOF", "127.0.0.1", &rig.server.address().port().to_string()]);
    eventually(SOON, "the server has the lock", || successor.query::<i64>(&["EXISTS", "kept"]) == 1);
    successor.run(&["REPLICAOF", "NO", "ONE"]);
    // The demoted server never reaches this master, so every request is refused with `MASTERDOWN`.
    rig.proxy.retarget(successor.address());
    rig.server.run(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(kept.wait_lost(Duration::from_secs(6)), None, "the hold is renewed at the successor");
    kept.unlock().unwrap();
    assert!(successor.keys().is_empty());
}
