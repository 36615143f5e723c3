//! Partial releases: writes the remaining counts, in the background after a failure.

use std::result::Result as Outcome;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::exactly_once;
use crate::engine::holds::hold::HoldState;
use crate::engine::holds::in_turn::{no_turn, still_kept};
use crate::engine::holds::requests::Turn;
use crate::error::{Loss, Result};
use crate::state::exchange::Bounds;
use crate::state::ledger::Remaining;
use crate::time::Instant;

impl Engine {
    pub(super) fn release_part(
        self: &Arc<Self>,
        hold: &Arc<HoldState>,
        remaining: Remaining,
        bounds: Bounds,
    ) -> Result<()> {
        let turn = hold.requests.turn(bounds.end).ok_or_else(no_turn);
        let outcome = turn.and_then(|turn| self.write_remaining(hold, &turn, remaining, bounds));
        // Until the counts are written, the key has a time to live or a side that no guard was promised.
        outcome.inspect_err(|_| self.repeat_release(hold))?.map_err(|loss| self.lost(hold, loss))
    }

    /// Writes the counts and the lease that remain.
    fn write_remaining(
        &self,
        hold: &HoldState,
        turn: &Turn<'_>,
        remaining: Remaining,
        bounds: Bounds,
    ) -> Result<Outcome<(), Loss>> {
        // A later release may have been written already; then these numbers are outdated.
        let newest = if turn.last_cut() > remaining.cut {
            self.with_ledger(hold, |ledger, now| ledger.repeated_release(now))
        } else {
            Some(remaining)
        };
        let Some(Remaining { counts, lease, cut }) = newest else { return Ok(Ok(())) };
        let call = hold.kind.release(&hold.name, &hold.owner, Some((counts, lease)));
        turn.cuts(cut);
        let send = |in_doubt| {
            exactly_once::send_after(in_doubt, &*self.topology, &call, bounds, None)
                .or_else(exactly_once::taken_if_overwritten)
        };
        self.in_turn(hold, turn, send, |ledger, now, answer| {
            if !answer.unfenceable {
                ledger.cut_is_over(cut, now);
            }
            // A later release may have missed its turn and rely on the background.
            if ledger.is_newest(cut) {
                turn.written();
            }
            still_kept(ledger, now, &answer.value)
        })
    }

    /// Writes the remaining counts in the background, after a partial release failed.
    pub(crate) fn repeat_release(&self, hold: &Arc<HoldState>) {
        if hold.requests.leave_unwritten() {
            self.repeat_release_after(PAUSE, Arc::clone(hold));
        }
    }

    fn repeat_release_after(&self, pause: Duration, hold: Arc<HoldState>) {
        let engine = Weak::clone(&self.myself);
        self.node(&hold.name).cleaner.run_at(Instant::now().after(pause), move || {
            if let Some(engine) = engine.upgrade()
                && !engine.repeat_release_once(&hold)
                && !engine.is_closed()
            {
                engine.repeat_release_after((pause * 2).min(LONGEST_PAUSE), hold);
            }
        });
    }

    /// Tries once. Returns whether no write is left.
    fn repeat_release_once(self: &Arc<Self>, hold: &Arc<HoldState>) -> bool {
        let limit = self.config.command_timeout;
        let bounds = Bounds::within(Instant::now(), limit, limit);
        let Some(turn) = hold.requests.turn(bounds.end) else { return false };
        if !turn.has_unwritten() {
            return true;
        }
        // The turn excludes requests of the hold with other counts.
        let Some(remaining) = self.with_ledger(hold, |ledger, now| ledger.repeated_release(now)) else {
            turn.written();
            let in_doubt = turn.take_in_doubt();
            if self.with_ledger(hold, |ledger, _| ledger.is_empty()) && !in_doubt.is_empty() {
                // The last guard was dropped meanwhile, so these copies are only known here.
                self.clean_up(self.leftover(hold, in_doubt));
            } else {
                turn.keep_in_doubt(in_doubt);
            }
            return true;
        };
        // A loss is reported by `with`; no caller waits here.
        self.write_remaining(hold, &turn, remaining, bounds).is_ok() && !turn.has_unwritten()
    }
}

const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
