//! Locks of several names at once.

use crate::actor::Object;
use crate::checks::{PATIENCE, WOKEN, release_wakes};
use crate::kind::Kind;
use crate::program::Seat;
use crate::stage::Stage;

/// A multi-lock excludes, and waits for, a plain lock with one of its names.
pub(crate) fn overlap(stage: &Stage<'_>, kind: &'static Kind) {
    let plain = Kind::named("plain").expect("the plain lock is in the table");
    for seat in Seat::BOTH {
        let set = Object::new(kind, &stage.fresh(kind.word));
        let holder = stage.actor(seat, &set);
        let single = stage.actor(seat.other(), &Object::new(plain, &set.part_names()[1])).on_thread(3);
        holder.take();
        assert!(!single.attempt(), "a plain lock was granted beside a multi-lock of its name");
        release_wakes(stage, &holder, &single);
        assert!(!holder.attempt(), "a multi-lock was granted beside a plain lock of one of its names");
        let waiting = holder.start_waiting(PATIENCE);
        stage.until_waiting(&single);
        let released = single.give_back().expect_ok();
        let granted = waiting.finish();
        let delay = granted.millis_after(released.started());
        assert!(granted.acquired() && delay <= WOKEN.as_secs_f64() * 1e3, "the multi-lock got in {delay:.1} ms late");
        holder.give_back().expect_ok();
    }
}

/// Values of one group do not disturb each other; a set that shares a value with another set is kept out.
pub(crate) fn values(stage: &Stage<'_>, kind: &'static Kind) {
    for seat in Seat::BOTH {
        let group = stage.fresh(kind.word);
        let object = Object::new(kind, &group);
        let [holder, other] = [seat, seat.other()].map(|seat| stage.actor(seat, &object));
        holder.take();
        for (values, free) in [("two,three", false), ("three", true)] {
            let got = other.ask_values("try_lock", values).expect_ok().acquired();
            assert!(got == free, "{values} beside one,two: granted = {got}");
        }
        other.ask_values("unlock", "three").expect_ok();
        holder.give_back().expect_ok();
        assert!(other.ask_values("try_lock", "two,three").expect_ok().acquired(), "values were free, but refused");
        other.ask_values("unlock", "two,three").expect_ok();
    }
}
