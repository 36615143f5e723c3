//! The requests of one hold: one at a time, with the copies that earlier requests left in doubt.
//!
//! Absolute hold counts need this order: with two requests in flight the older one could run last.

use std::mem;

use crate::engine::hold::{HoldState, Progress};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::script::Call;
use crate::state::exchange::InDoubt;
use crate::time::{Instant, wait_until};

/// A request in its turn: the call, the earlier copies that must be fenced before, and what takes the outcome.
pub(crate) type Prepared<A, Finish> = (Call<A>, InDoubt, Finish);

/// The right to send a request about the hold; dropping it ends the turn.
pub(crate) struct RequestTurn<'a>(&'a HoldState);

impl HoldState {
    /// Takes the turn if no request is under way.
    pub(crate) fn free_turn(&self) -> Option<RequestTurn<'_>> {
        let mut state = self.progress.state.lock();
        (!mem::replace(&mut state.under_way, true)).then(|| RequestTurn(self))
    }

    /// Waits for the turn until `until`. Without the turn nothing is sent.
    pub(crate) fn turn(&self, until: Instant) -> Result<RequestTurn<'_>> {
        let Progress { state, turn_ended, .. } = &self.progress;
        let mut state = wait_until(turn_ended, state.lock(), until, |state| !state.under_way);
        if mem::replace(&mut state.under_way, true) {
            let text = "an earlier request of this hold is still unanswered, so this request was not sent";
            return Err(Error::new(ErrorKind::Unknown, text));
        }
        Ok(RequestTurn(self))
    }

    /// Takes the copies in doubt, in a turn, or from a hold that sends no more requests.
    pub(crate) fn take_in_doubt(&self) -> InDoubt {
        self.progress.state.lock().rare.as_mut().map(|rare| mem::take(&mut rare.in_doubt)).unwrap_or_default()
    }

    /// Whether copies are in doubt.
    pub(crate) fn has_doubt(&self) -> bool {
        self.progress.state.lock().rare.as_ref().is_some_and(|rare| !rare.in_doubt.is_empty())
    }

    /// Whether a hold that was lost in this way may have left something in Redis: an expired hold may still have its
    /// key, and an old request may take the lock again.
    pub(crate) fn may_be_left(&self, loss: Loss) -> bool {
        loss == Loss::Expired || self.has_doubt() || self.kind.may_leave_parts()
    }

    /// Records a failed partial release. Returns whether the background must be started for it.
    pub(crate) fn leave_unwritten(&self) -> bool {
        !mem::replace(&mut self.progress.state.lock().rare().unwritten, true)
    }
}

impl RequestTurn<'_> {
    pub(crate) fn keep_in_doubt(&self, in_doubt: InDoubt) {
        self.0.progress.state.lock().rare().in_doubt.add(in_doubt);
    }

    /// Records that the newest counts are written, so that the background has no work left.
    pub(crate) fn written(&self) {
        if let Some(rare) = &mut self.0.progress.state.lock().rare {
            rare.unwritten = false;
        }
    }

    /// Whether the background must still write the counts.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.0.progress.state.lock().rare.as_ref().is_some_and(|rare| rare.unwritten)
    }
}

impl Drop for RequestTurn<'_> {
    fn drop(&mut self) {
        self.0.progress.state.lock().under_way = false;
        self.0.progress.turn_ended.notify_one();
    }
}
