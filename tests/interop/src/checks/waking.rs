//! Exclusion of the other language, and the wake-up of the other language.

use std::time::Duration;

use super::{PATIENCE, WOKEN};
use crate::actor::Actor;
use crate::stage::Stage;

/// The waiter is granted right after the release, by the message: the time to live is 30 s.
pub(crate) fn wakes(stage: &Stage<'_>, (holder, waiter): (Actor<'_>, Actor<'_>)) {
    holder.take();
    release_wakes(stage, &holder, &waiter);
    waiter.give_back().expect_ok();
}

/// The same for a lock that is held already; the waiter then holds the lock.
pub(crate) fn release_wakes(stage: &Stage<'_>, holder: &Actor<'_>, waiter: &Actor<'_>) {
    let waiting = waiter.start_waiting(PATIENCE);
    stage.until_waiting(waiter);
    let released = holder.give_back().expect_ok();
    let granted = waiting.finish();
    assert!(granted.acquired(), "the waiter did not get in within {PATIENCE:?}");
    let delay = granted.millis_after(released.started());
    assert!(delay >= 0.0, "the waiter got in {delay:.1} ms before the release");
    assert!(delay <= WOKEN.as_secs_f64() * 1e3, "the waiter got in {delay:.1} ms after the release, not at once");
}

/// While one side holds, the other side is granted the lock neither at once nor by waiting; after the release it is,
/// and the other way round.
pub(crate) fn excludes((one, other): (Actor<'_>, Actor<'_>)) {
    one.take();
    assert!(!other.attempt(), "{} was granted the lock while {} held the lock", other.seat.name(), one.seat.name());
    assert!(
        !other.wait(SHORT),
        "{} was granted the lock after a wait while {} held the lock",
        other.seat.name(),
        one.seat.name()
    );
    one.give_back().expect_ok();
    assert!(other.attempt(), "{} was refused although the object was free", other.seat.name());
    other.give_back().expect_ok();
}

const SHORT: Duration = Duration::from_millis(150);
