//! Holding more than once, and for longer than the time to live.

use std::time::Duration;

use crate::actor::Actor;
use crate::kind::{Query, Reentry};
use crate::stage::{BRISK, BRISK_TTL};

/// A holder gets in again, or is refused where the kind says so; the other stays out until all is given back.
pub(crate) fn reenters((holder, rival): (Actor<'_>, Actor<'_>)) {
    holder.take();
    match holder.object.kind.reentry {
        Reentry::Refused => _ = holder.ask("lock", "").expect_failure("already_held"),
        Reentry::Counted => {
            assert!(holder.attempt(), "the holder was excluded by its own hold");
            check_count(&holder, 2);
            assert!(!rival.attempt(), "{} got in beside two holds", rival.seat.name());
            holder.give_back().expect_ok();
        }
    }
    assert!(!rival.attempt(), "{} got in beside the first hold", rival.seat.name());
    holder.give_back().expect_ok();
    assert!(rival.attempt(), "{} was refused though all was given back", rival.seat.name());
    rival.give_back().expect_ok();
}

/// The release of one of two holds admits nobody, and the holder still has the lock.
pub(crate) fn keeps_the_rest((holder, rival): (Actor<'_>, Actor<'_>)) {
    holder.take();
    holder.take();
    holder.give_back().expect_ok();
    check_count(&holder, 1);
    assert!(!rival.wait(A_WHILE), "{} got in after half of a release", rival.seat.name());
    holder.give_back().expect_ok();
    assert!(rival.attempt(), "{} was refused though all was given back", rival.seat.name());
    rival.give_back().expect_ok();
}

/// A hold without a lease keeps the other side out for two and a half times the time to live.
pub(crate) fn renews((holder, rival): (Actor<'_>, Actor<'_>)) {
    let holder = holder.by_client(BRISK);
    holder.take();
    assert!(!rival.wait(BRISK_TTL * 5 / 2), "{} got in, the hold was not renewed", rival.seat.name());
    holder.give_back().expect_ok();
    assert!(rival.attempt(), "{} was refused after the release", rival.seat.name());
    rival.give_back().expect_ok();
}

fn check_count(holder: &Actor<'_>, wanted: i64) {
    if holder.object.kind.queries.contains(&Query::HoldCount) {
        let count = holder.ask("hold_count", "").expect_ok().number("count");
        assert!(count == wanted, "the holder counts {count} holds instead of {wanted}");
    }
}

const A_WHILE: Duration = Duration::from_millis(100);
