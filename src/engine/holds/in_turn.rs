//! A request about a hold in its turn: one at a time, and what its answer means for the hold.

use std::result::Result as Outcome;

use super::hold::HoldState;
use super::requests::Turn;
use crate::conn::Server;
use crate::engine::Engine;
use crate::engine::caller::Caller;
use crate::engine::wire::{self, Answer};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::script::Call;
use crate::state::exchange::{Bounds, Failed, Loose};
use crate::state::ledger::{Ledger, Phase};
use crate::time::Instant;

impl Engine {
    /// Asks about a hold that goes on, when it is its turn: what its earlier requests left loose is fenced
    /// before. `learn` uses the ledger before another request of this hold can begin.
    pub(crate) fn ask_about<T, R>(
        &self,
        hold: &HoldState,
        call: &Call<Outcome<T, Loss>>,
        bounds: Bounds,
        caller: Option<&Caller<'_>>,
        learn: impl FnOnce(&mut Ledger, Instant, &Answer<Outcome<T, Loss>>) -> R,
    ) -> Result<R> {
        let turn = hold.requests.turn(bounds.end).ok_or_else(no_turn)?;
        let send = |loose, server: &Server| {
            wire::send_after(loose, server, call, bounds, caller).or_else(wire::taken_if_overwritten)
        };
        self.in_turn(hold, &turn, send, learn)
    }

    /// Sends a request of the hold whose turn this is, after what its earlier requests left loose was fenced.
    pub(crate) fn in_turn<A, R>(
        &self,
        hold: &HoldState,
        turn: &Turn<'_>,
        send: impl FnOnce(Loose, &Server) -> Outcome<Answer<A>, Failed>,
        learn: impl FnOnce(&mut Ledger, Instant, &Answer<A>) -> R,
    ) -> Result<R> {
        let node = self.node(&hold.name);
        let outcome = send(turn.take_loose(), &node.server);
        self.after_request(&node);
        match outcome {
            Ok(answer) => {
                if answer.haunted {
                    turn.keep_loose(Loose { open: vec![], haunted: true });
                }
                let last_cut = turn.last_cut();
                Ok(self.with(hold, |ledger, now| {
                    if !answer.haunted {
                        ledger.cut_is_over(last_cut, answer.clear_since);
                    }
                    learn(ledger, now, &answer)
                }))
            }
            Err(failed) => {
                turn.keep_loose(failed.loose.unwrap_or_default());
                Err(failed.error)
            }
        }
    }
}

/// What Redis said of the hold; a loss is one from here on, unless another came to light before.
pub(crate) fn still_kept<T>(ledger: &mut Ledger, now: Instant, answer: &Outcome<T, Loss>) -> Outcome<(), Loss> {
    let Err(loss) = answer else { return Ok(()) };
    ledger.look(now);
    ledger.lose(*loss);
    match ledger.phase() {
        Phase::Lost(loss) => Err(loss),
        _ => Err(*loss),
    }
}

/// Another request of this hold has no answer, and this one was not sent.
pub(crate) fn no_turn() -> Error {
    Error::new(ErrorKind::Unknown, "an earlier request of this hold is still unanswered, so this request was not sent")
}
