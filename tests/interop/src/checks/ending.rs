//! The ends of a hold that the holder does not choose.

use std::time::Duration;

use super::{PATIENCE, WOKEN};
use crate::actor::{Actor, Object};
use crate::kind::{Family, Flaw, Kind};
use crate::program::Seat;
use crate::stage::{BRISK, BRISK_TTL, Stage};
use lockson_harness::clock;

/// A lease ends by itself, not before its time; the late owner cannot take anything from the next owner.
pub(crate) fn expires(stage: &Stage<'_>, (holder, rival): (Actor<'_>, Actor<'_>)) {
    let taken = holder.take_for(LEASE);
    let granted = rival.start_waiting(PATIENCE).finish();
    assert!(granted.acquired(), "the waiter did not get in within {PATIENCE:?}");
    let lived = granted.millis_after(taken.started());
    assert!(lived >= LEASE.as_secs_f64() * 1e3, "a lease of {LEASE:?} ended after {lived:.1} ms");
    let late = granted.millis_after(taken.returned()) - LEASE.as_secs_f64() * 1e3;
    assert!(late <= LATE.as_secs_f64() * 1e3, "the waiter got in {late:.1} ms after the end of the lease");
    let taken_by_redisson = rival.seat == Seat::Java || stage.is_rehearsal();
    if taken_by_redisson && holder.object.kind.flaws.contains(&Flaw::TakesADyingKey) {
        return;
    }
    loses(&holder, &rival);
}

/// The other side may force the lock open: a waiter of this side is woken, and the old holder has nothing left.
pub(crate) fn is_forced_open(stage: &Stage<'_>, kind: &'static Kind, seat: Seat) {
    let name = stage.fresh(kind.word);
    let holder = stage.actor(seat, &Object::new(kind, &name));
    let rival = stage.actor(seat, &Object::rival_of(kind, &name)).on_thread(3);
    // Forced through the held object: a reader's side does not open a writer's lock.
    let forcer = stage.actor(seat.other(), &holder.object).on_thread(2);
    holder.take();
    let waiting = rival.start_waiting(PATIENCE);
    stage.until_waiting(&rival);
    let forced = forcer.ask("force_unlock", "").expect_ok();
    let tells = !kind.flaws.contains(&Flaw::ForcesInSilence);
    assert!(!tells || forced.flag("unlocked"), "the forced release reported an unlocked object");
    let granted = waiting.finish();
    assert!(granted.acquired(), "the waiter did not get in within {PATIENCE:?}");
    let delay = granted.millis_after(forced.started());
    assert!(delay <= WOKEN.as_secs_f64() * 1e3, "the waiter got in {delay:.1} ms after the forcing, not at once");
    loses(&holder, &rival);
    if tells {
        assert!(!forcer.ask("force_unlock", "").expect_ok().flag("unlocked"), "a free lock was forced open");
    }
}

/// A killed holder keeps the other side out for the rest of the time to live, and no longer.
pub(crate) fn outlives(stage: &Stage<'_>, kind: &'static Kind, seat: Seat) {
    let name = stage.fresh(kind.word);
    let object = Object::new(kind, &name);
    let victim = stage.victim(seat, &object);
    let holder = Actor::new(&victim, seat, object).by_client(BRISK);
    holder.prepare(1);
    let rival = stage.actor(seat.other(), &Object::rival_of(kind, &name));
    if kind.family == Family::Permits {
        holder.take_for(BRISK_TTL)
    } else {
        holder.take()
    };
    let waiting = rival.start_waiting(PATIENCE);
    stage.until_waiting(&rival);
    let killed = clock::nanos();
    victim.borrow_mut().kill();
    let granted = waiting.finish();
    assert!(granted.acquired(), "the waiter did not get in within {PATIENCE:?}");
    let delay = granted.millis_after(killed);
    assert!(delay >= 0.0, "the waiter got in {:.1} ms before the holder was killed", -delay);
    let most = (BRISK_TTL + LATE).as_secs_f64() * 1e3;
    assert!(delay <= most, "the waiter got in {delay:.1} ms after the holder was killed, more than {most:.0} ms");
    rival.give_back().expect_ok();
}

/// The holder cannot release the rival's hold.
fn loses(holder: &Actor<'_>, rival: &Actor<'_>) {
    let late = holder.give_back();
    if !holder.object.kind.flaws.contains(&Flaw::HidesLoss) {
        late.expect_failure("not_owner");
    }
    let third = holder.on_thread(1);
    assert!(!third.attempt(), "the late release admitted a second holder");
    rival.give_back().expect_ok();
}

const LEASE: Duration = Duration::from_millis(600);
/// The permitted delay of a waiter after an end without a message.
const LATE: Duration = Duration::from_millis(700);
