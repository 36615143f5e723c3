//! The tokens of the fenced lock.

use crate::actor::Object;
use crate::kind::Kind;
use crate::program::Seat;
use crate::stage::Stage;

/// Every grant has a greater token than the grant before, on either side, and both sides know the last token.
pub(crate) fn rise(stage: &Stage<'_>, kind: &'static Kind) {
    let object = Object::new(kind, &stage.fresh(kind.word));
    let [rust, java] = Seat::BOTH.map(|seat| stage.actor(seat, &object));
    let mut last = 0;
    for turn in 0..6 {
        let actor = if turn % 3 == 0 { &rust } else { &java };
        let token = actor.take().number("token");
        assert!(token > last, "{} got token {token} after {last}", actor.seat.name());
        last = token;
        for asked in [&rust, &java] {
            let answer = asked.ask("token", "");
            if asked.seat == Seat::Rust && !answer.is_ok() {
                answer.expect_failure("unsupported"); // ours is on the guard, and nowhere else
                continue;
            }
            let known = answer.expect_ok().number("token");
            assert!(known == token, "{} knows token {known} instead of {token}", asked.seat.name());
        }
        actor.give_back().expect_ok();
    }
}
