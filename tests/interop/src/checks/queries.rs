//! Questions with the same answer in both languages.

use crate::actor::Actor;
use crate::kind::{Family, Query, Reentry};

/// Both sides report the same about a hold, about a second hold, and about no hold.
pub(crate) fn agree((holder, other): (Actor<'_>, Actor<'_>)) {
    let kind = holder.object.kind;
    if kind.queries.contains(&Query::Level) {
        return levels_agree(&holder, &other);
    }
    // Both sides ask about the held object, whatever the rival would ask for.
    let other = other.about(&holder.object);
    check(&holder, &other, 0);
    holder.take();
    check(&holder, &other, 1);
    if kind.reentry == Reentry::Counted {
        holder.take();
        check(&holder, &other, 2);
        holder.give_back().expect_ok();
        check(&holder, &other, 1);
    }
    holder.give_back().expect_ok();
    check(&holder, &other, 0);
}

fn check(holder: &Actor<'_>, other: &Actor<'_>, holds: i64) {
    for query in holder.object.kind.queries {
        match query {
            Query::Locked => {
                check_both(holder, other, |asked| asked.ask("is_locked", "").expect_ok().flag("locked") == (holds > 0));
            }
            Query::Held => {
                assert!(holder.ask("is_held", "").expect_ok().flag("held") == (holds > 0), "is_held of the holder");
                assert!(!other.ask("is_held", "").expect_ok().flag("held"), "is_held of the other side");
            }
            Query::HoldCount => {
                let (own, foreign) = (count(holder), count(other));
                assert!(own == holds, "the holder counts {own} holds instead of {holds}");
                assert!(foreign == 0, "the other side counts {foreign} own holds");
            }
            Query::Ttl => check_both(holder, other, |asked| {
                let left = asked.ask("ttl", "").expect_ok().number("ttl_ms");
                if holds == 0 {
                    left == -2
                } else {
                    (25_000..=31_000).contains(&left) || left > 31_000 && adds_up(asked)
                }
            }),
            Query::Level => {}
        }
    }
}

/// A write lock of Redisson adds the leases of a re-entry.
fn adds_up(asked: &Actor<'_>) -> bool {
    asked.object.kind.word == "write"
}

#[track_caller]
fn check_both(holder: &Actor<'_>, other: &Actor<'_>, is_right: impl Fn(&Actor<'_>) -> bool) {
    for asked in [holder, other] {
        assert!(is_right(asked), "{} gives another answer", asked.seat.name());
    }
}

fn count(actor: &Actor<'_>) -> i64 {
    actor.ask("hold_count", "").expect_ok().number("count")
}

/// Both sides report the same number of a semaphore's free permits, or of a latch's remaining counts.
fn levels_agree(holder: &Actor<'_>, other: &Actor<'_>) {
    let (free, taken) = if holder.object.kind.family == Family::Latch { (0, 1) } else { (1, 0) };
    check_level(holder, other, free);
    holder.take();
    check_level(holder, other, taken);
    holder.give_back().expect_ok();
    check_level(holder, other, free);
}

#[track_caller]
fn check_level(holder: &Actor<'_>, other: &Actor<'_>, wanted: i64) {
    let (verb, key) =
        if holder.object.kind.family == Family::Latch { ("get_count", "count") } else { ("available", "permits") };
    for asked in [holder, other] {
        let level = asked.ask(verb, "").expect_ok().number(key);
        assert!(level == wanted, "{} sees {level} instead of {wanted}", asked.seat.name());
    }
}
