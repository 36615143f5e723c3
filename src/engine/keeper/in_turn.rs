//! The effect of a reply on a hold, whose requests go out one at a time.

use std::result;

use crate::engine::hold::HoldState;
use crate::engine::hold::requests::RequestTurn;
use crate::engine::keeper::Keeper;
use crate::engine::sender::exactly_once::Answer;
use crate::error::Result;
use crate::state::exchange::{Failed, InDoubt};
use crate::state::ledger::Ledger;
use crate::time::Instant;

impl Keeper {
    /// Takes the outcome of a request in its turn, and keeps what the request left in doubt.
    pub(crate) fn in_turn<A, R>(
        &self,
        hold: &HoldState,
        turn: &RequestTurn<'_>,
        outcome: result::Result<Answer<A>, Failed>,
        learn: impl FnOnce(&mut Ledger, Instant, &Answer<A>) -> R,
    ) -> Result<R> {
        self.sender.after_request(&self.sender.node(&hold.name));
        match outcome {
            Ok(answer) => {
                if answer.unfenceable {
                    turn.keep_in_doubt(InDoubt { fenceable: vec![], unfenceable: true });
                }
                let last_cut = turn.last_cut();
                Ok(self.with_ledger(hold, |ledger, now| {
                    if !answer.unfenceable {
                        ledger.cut_is_over(last_cut, answer.clear_since);
                    }
                    learn(ledger, now, &answer)
                }))
            }
            Err(failed) => {
                turn.keep_in_doubt(failed.in_doubt.unwrap_or_default());
                Err(failed.error)
            }
        }
    }
}
