//! Semaphores and latches, which count over both languages.

use std::time::Duration;

use crate::actor::{Actor, Object};
use crate::checks::{PATIENCE, WOKEN};
use crate::kind::Kind;
use crate::program::Seat;
use crate::stage::Stage;

/// Three permits between the two sides; a waiter for two permits waits until both are free.
pub(crate) fn semaphore(stage: &Stage<'_>, kind: &'static Kind) {
    for seat in Seat::BOTH {
        let object = Object::new(kind, &stage.fresh(kind.word));
        let [one, other] = [seat, seat.other()].map(|seat| stage.actor(seat, &object));
        one.prepare(3);
        one.ask("acquire", "permits=2").expect_ok();
        assert!(other.attempt(), "the third permit was refused");
        assert!(!one.attempt(), "a fourth permit was given");
        other.ask("release", "").expect_ok();
        assert!(
            !other.ask("try_acquire", "permits=2").expect_ok().acquired(),
            "two permits were granted, one was free"
        );
        one.ask("release", "permits=2").expect_ok();
        assert!(
            other.ask("try_acquire", "permits=2 wait_ms=1000").expect_ok().acquired(),
            "two were free, but refused"
        );
        one.ask("add_permits", "permits=2").expect_ok();
        check_level(&other, "available", 3);
        let drained = other.ask("drain", "").expect_ok().number("permits");
        assert!(drained == 3, "{drained} permits were drained instead of 3");
        check_level(&one, "available", 0);
        assert!(other.ask("release_if_exists", "permits=5").expect_ok().flag("released"), "no permit was released");
        check_level(&one, "available", 5);
    }
}

/// The other side sees, extends and releases a permit; an expired permit comes back.
pub(crate) fn permits(stage: &Stage<'_>, kind: &'static Kind) {
    for seat in Seat::BOTH {
        let object = Object::new(kind, &stage.fresh(kind.word));
        let [one, other] = [seat, seat.other()].map(|seat| stage.actor(seat, &object));
        one.prepare(2);
        let id = one.ask("acquire", "lease_ms=20000").expect_ok().text("ids").to_owned();
        check_level(&other, "available", 1);
        check_level(&other, "acquired", 1);
        check_level(&other, "permits", 2);
        let left = other.ask("lease", &format!("id={id}")).expect_ok().number("lease_ms");
        assert!((18_000..=20_100).contains(&left), "the other side sees a lease of {left} ms");
        assert!(
            other.ask("update_lease", &format!("id={id} lease_ms=40000")).expect_ok().flag("updated"),
            "not updated"
        );
        let left = one.ask("lease", &format!("id={id}")).expect_ok().number("lease_ms");
        assert!((38_000..=40_100).contains(&left), "the holder sees a lease of {left} ms");
        let released = other.ask("try_release", &format!("id={id}")).expect_ok().number("released");
        assert!(released == 1, "the other side could not release the permit");
        one.ask("release", &format!("id={id}")).expect_failure("not_owner");
        check_level(&one, "available", 2);
        let expiring = one.take_for(Duration::from_millis(400));
        one.take_for(Duration::from_secs(20));
        let granted = other.start_waiting(PATIENCE).finish();
        let lived = granted.millis_after(expiring.started());
        assert!(granted.acquired() && lived >= 400.0, "the expired permit came back after {lived:.1} ms");
        other.give_back().expect_ok();
    }
}

/// Both sides count down; the last count, by either side, admits the waiters of both.
pub(crate) fn latch(stage: &Stage<'_>, kind: &'static Kind) {
    for seat in Seat::BOTH {
        let object = Object::new(kind, &stage.fresh(kind.word));
        let [one, other] = [seat, seat.other()].map(|seat| stage.actor(seat, &object));
        assert!(one.ask("try_set_count", "count=3").expect_ok().flag("set"), "the name was in use");
        assert!(!other.ask("try_set_count", "count=9").expect_ok().flag("set"), "the count was set twice");
        let waiters: Vec<Actor<'_>> = Seat::BOTH.iter().map(|seat| stage.actor(*seat, &object).on_thread(3)).collect();
        let waiting: Vec<_> = waiters.iter().map(|waiter| waiter.start_waiting(PATIENCE)).collect();
        stage.until_waiting(&waiters[0]);
        one.ask("count_down", "").expect_ok();
        other.ask("count_down", "").expect_ok();
        check_count(&one, 1);
        let last = one.ask("count_down", "").expect_ok();
        for (waiter, waiting) in waiters.iter().zip(waiting) {
            let open = waiting.finish();
            let delay = open.millis_after(last.started());
            let in_time = (0.0..=WOKEN.as_secs_f64() * 1e3).contains(&delay);
            assert!(open.acquired() && in_time, "{} was let through {delay:.1} ms late", waiter.seat.name());
        }
        check_count(&other, 0);
    }
}

#[track_caller]
fn check_level(asked: &Actor<'_>, verb: &str, wanted: i64) {
    let level = asked.ask(verb, "").expect_ok().number("permits");
    assert!(level == wanted, "{} sees {verb} = {level} instead of {wanted}", asked.seat.name());
}

#[track_caller]
fn check_count(asked: &Actor<'_>, wanted: i64) {
    let count = asked.ask("get_count", "").expect_ok().number("count");
    assert!(count == wanted, "{} counts {count} instead of {wanted}", asked.seat.name());
}
