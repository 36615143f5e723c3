//! Partial releases: writes the remaining counts, in the background after a failure.

use std::result;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::hold::HoldState;
use crate::engine::hold::requests::RequestTurn;
use crate::engine::keeper::Keeper;
use crate::engine::sender::exactly_once::{self, Answer, SendResult};
use crate::error::{Loss, Result};
use crate::script::{Call, Released};
use crate::state::exchange::Bounds;
use crate::state::ledger::{Phase, Remaining};
use crate::time::Instant;

/// A partial release, from its request to its reply.
pub(crate) struct PartRelease<'a> {
    hold: &'a Arc<HoldState>,
    remaining: Remaining,
    /// Whether no guard is left, and the rest expires.
    ends: bool,
    turn: RequestTurn<'a>,
}

impl PartRelease<'_> {
    /// The request, which writes the counts and the lease that remain.
    pub(crate) fn call(&self) -> Call<Released> {
        self.hold.kind.release(&self.hold.name, &self.hold.owner, Some(self.remaining))
    }
}

impl Keeper {
    /// Builds the request that writes what remains; `None` where nothing does by now. `ends` where no guard is left.
    pub(crate) fn begin_part<'a>(
        &self,
        hold: &'a Arc<HoldState>,
        ends: bool,
        bounds: Bounds,
    ) -> Result<Option<PartRelease<'a>>> {
        let turn = hold.turn(bounds.end).inspect_err(|_| self.repeat_release(hold))?;
        match self.part_in(hold, turn, ends) {
            Err(Phase::Lost(loss)) => Err(self.lost(hold, loss)),
            part => Ok(part.ok()),
        }
    }

    /// The write of what remains. The numbers are those of the turn: before it, another request may raise what was
    /// promised. A hold that is over needs none, and is cleared away if no last release follows: its last guard may have
    /// been dropped without a turn.
    fn part_in<'a>(
        &self,
        hold: &'a Arc<HoldState>,
        turn: RequestTurn<'a>,
        ends: bool,
    ) -> result::Result<PartRelease<'a>, Phase> {
        let (remaining, is_empty) =
            self.with_ledger(hold, |ledger, now| (ledger.remaining(now), ledger.guards.is_empty()));
        self.schedule_if_observed(hold);
        turn.written();
        if is_empty && remaining.is_err_and(|phase| phase != Phase::Releasing) {
            self.clear_away(hold, hold.take_in_doubt());
        }
        Ok(PartRelease { hold, remaining: remaining?, ends, turn })
    }

    /// Takes the outcome of the request.
    pub(crate) fn finish_part(&self, part: PartRelease<'_>, outcome: SendResult<Released>) -> Result<()> {
        let (hold, ends) = (part.hold, part.ends);
        let outcome = self.learn_of_part(&part, outcome);
        drop(part);
        if ends {
            // The observer may take the locks that were given back beside this lock.
            self.tell_end(hold, None, None, true);
        }
        // Until the counts are written, the key has a time to live or a side that no guard was promised.
        let kept = outcome.inspect_err(|_| self.repeat_release(hold));
        kept.and_then(|kept| kept.map_err(|loss| self.lost(hold, loss)))
            .map_err(|error| error.about_a(hold.kind.noun(), &hold.name))
    }

    fn learn_of_part(&self, part: &PartRelease<'_>, outcome: SendResult<Released>) -> Result<result::Result<(), Loss>> {
        let PartRelease { hold, turn, .. } = part;
        // A renewal that is sent before the reply may run before the release.
        let over = |answer| Answer { clear_since: Instant::now(), ..answer };
        let outcome = outcome.or_else(exactly_once::taken_if_overwritten).map(over);
        self.in_turn(hold, turn, outcome, |ledger, now, answer| {
            if !answer.repeated {
                // Copies of other requests that may still run lower no time to live.
                ledger.cut_was_answered(answer.clear_since);
            }
            answer.value.map(drop).map_err(|loss| ledger.reported_lost(now, loss))
        })
    }

    /// Writes the remaining counts in the background, after a partial release failed.
    pub(crate) fn repeat_release(&self, hold: &Arc<HoldState>) {
        if hold.leave_unwritten() {
            let (keeper, first, hold) = (Weak::clone(&self.myself), Instant::now().after(PAUSE), Arc::clone(hold));
            self.sender.until_done(hold.name.clone(), first, (PAUSE * 2, LONGEST_PAUSE), move |_| {
                keeper.upgrade().is_none_or(|keeper| keeper.repeat_release_once(&hold))
            });
        }
    }

    /// Tries once. Returns whether no write is left.
    fn repeat_release_once(&self, hold: &Arc<HoldState>) -> bool {
        let limit = self.config.command_timeout;
        let bounds = Bounds::within(Instant::now(), limit, limit);
        let Ok(turn) = hold.turn(bounds.end) else { return false };
        if !turn.has_unwritten() {
            return true;
        }
        let Ok(part) = self.part_in(hold, turn, false) else { return true };
        let outcome = self.sender.send_after(hold.take_in_doubt(), &part.call(), bounds, None);
        // A loss is reported by `with`; no caller waits here.
        if self.learn_of_part(&part, outcome).is_err() {
            hold.leave_unwritten();
        }
        !part.turn.has_unwritten()
    }
}

const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
