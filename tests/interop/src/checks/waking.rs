//! Keeping the other language out, and waking it.

use std::time::Duration;

use super::{PATIENCE, WOKEN};
use crate::actor::Actor;
use crate::stage::Stage;

/// The waiter gets in right after the release, by its message: the time to live is 30 s.
pub(crate) fn wakes(stage: &Stage<'_>, (holder, waiter): (Actor<'_>, Actor<'_>)) {
    holder.take();
    release_wakes(stage, &holder, &waiter);
    waiter.give_back().expect_ok();
}

/// The same of somebody who holds already; the waiter then has it.
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

/// While one holds, the other gets it neither at once nor by waiting; then it does, and the other way round.
pub(crate) fn excludes((one, other): (Actor<'_>, Actor<'_>)) {
    one.take();
    assert!(!other.attempt(), "{} got in while {} held it", other.seat.name(), one.seat.name());
    assert!(!other.wait(SHORT), "{} got in by waiting while {} held it", other.seat.name(), one.seat.name());
    one.give_back().expect_ok();
    assert!(other.attempt(), "{} was refused though it was free", other.seat.name());
    other.give_back().expect_ok();
}

const SHORT: Duration = Duration::from_millis(150);
