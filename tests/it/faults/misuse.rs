//! Misuse that the types refuse, and mistakes of users' code.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockson::{
    Client, Guard, Hold, ListeningFailed, Lock, LockAcquired, LockLost, LockReleased, Loss, Observer, OwnedGuard,
    OwnedLock, RenewalFailed,
};
use lockson_harness::eventually;
use lockson_harness::proxy::{Then, When};

use crate::support::faults::{Rig, SOON, ms};
use crate::support::joined;

/// Every type has one implementation, and types that may move between threads have a second one: naming the trait for
/// such a type is ambiguous and does not compile.
trait StaysOnItsThread<Which> {
    fn is_seen() {}
}

struct BecauseItMayMove;

impl<T: ?Sized> StaysOnItsThread<()> for T {}
impl<T: ?Sized + Send> StaysOnItsThread<BecauseItMayMove> for T {}

#[test]
fn the_guard_of_a_thread_cannot_leave_it() {
    <Guard as StaysOnItsThread<_>>::is_seen();
}

#[test]
fn everything_else_may_move_and_be_shared() {
    fn check<T: Send + Sync>() {}
    check::<Client>();
    check::<Lock>();
    check::<OwnedLock>();
    check::<OwnedGuard>();
    check::<Hold>();
}

/// An observer that panics at every event.
#[derive(Debug, Default)]
struct Panics(Arc<AtomicUsize>);

impl Panics {
    fn panic(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("this panic is part of the test");
    }
}

impl Observer for Panics {
    fn acquired(&self, _: &LockAcquired) {
        self.panic();
    }

    fn released(&self, _: &LockReleased) {
        self.panic();
    }

    fn lost(&self, _: &LockLost) {
        self.panic();
    }

    fn renewal_failed(&self, _: &RenewalFailed) {
        self.panic();
    }

    fn listening_failed(&self, _: &ListeningFailed) {
        self.panic();
    }
}

#[test]
fn a_panicking_observer_disturbs_no_call() {
    let rig = Rig::start();
    let told = Arc::<AtomicUsize>::default();
    let lease = Duration::from_secs(3);
    let observer = Panics(Arc::clone(&told));
    let client = rig.impatient().watchdog(lease, ms(100)).observer(observer).connect().unwrap();
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
    // Two acquired and lost or failing, one more acquired, two released.
    assert!(told.load(Ordering::Relaxed) >= 8, "{told:?}");
    assert!(deleted.unlock().is_err());
}
