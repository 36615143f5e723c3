//! What the types themselves refuse.

use lockson::{Client, Guard, Hold, Lock, OwnedGuard, OwnedLock};

/// Is there once for every type, and once more for those that may move between threads: naming it
/// for one of those is ambiguous and does not compile.
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
