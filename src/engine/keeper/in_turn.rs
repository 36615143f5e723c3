//! Requests about a hold, one at a time, and the effect of each reply on the hold.

use std::result;

use crate::engine::hold::HoldState;
use crate::engine::hold::requests::RequestTurn;
use crate::engine::keeper::Keeper;
use crate::engine::sender::exactly_once::Answer;
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::state::exchange::{Failed, InDoubt};
use crate::state::ledger::{Ledger, Phase};
use crate::time::Instant;

impl Keeper {
    /// Sends a request in its turn, after fencing the copies that earlier requests left in doubt.
    pub(crate) fn in_turn<A, R>(
        &self,
        hold: &HoldState,
        turn: &RequestTurn<'_>,
        send: impl FnOnce(InDoubt) -> result::Result<Answer<A>, Failed>,
        learn: impl FnOnce(&mut Ledger, Instant, &Answer<A>) -> R,
    ) -> Result<R> {
        let node = self.sender.node(&hold.name);
        let outcome = send(turn.take_in_doubt());
        self.sender.after_request(&node);
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

/// Records the reply about a hold: a loss counts from here on, unless another loss was found before.
pub(crate) fn still_kept<T>(
    ledger: &mut Ledger,
    now: Instant,
    answer: &result::Result<T, Loss>,
) -> result::Result<(), Loss> {
    let Err(loss) = answer else { return Ok(()) };
    ledger.look(now);
    ledger.lose(*loss);
    match ledger.phase() {
        Phase::Lost(loss) => Err(loss),
        _ => Err(*loss),
    }
}

/// The error of a request that was not sent, because an earlier request of this hold is unanswered.
pub(crate) fn no_turn() -> Error {
    Error::new(ErrorKind::Unknown, "an earlier request of this hold is still unanswered, so this request was not sent")
}
