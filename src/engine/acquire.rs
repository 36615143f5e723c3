//! Acquires: re-entry by the registry of this process, all else by a request to Redis.

pub(crate) mod acquisition;
pub(crate) mod counted;
pub(crate) mod stand_back;
pub(crate) mod waiting;

use std::result;
use std::sync::Arc;

use crate::durability::Durability;
use crate::engine::caller::Caller;
use crate::engine::hold::HoldState;
use crate::engine::hold::requests::{Prepared, RequestTurn};
use crate::engine::parts::Engine;
use crate::engine::request::{AcquireRequest, Grant, Wait};
use crate::engine::sender::exactly_once::{self, SendResult};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::{LockAcquired, Observer};
use crate::kinds::{Kind, Queueing};
use crate::owner::ThreadId;
use crate::script::Side;
use crate::state::exchange::Bounds;
use crate::time::Instant;
use acquisition::Acquisition;

/// What a server says to a re-entry.
type Reentered = result::Result<(), Loss>;

impl Engine {
    /// Takes or re-enters the lock; `None` when another owner kept the lock until the deadline.
    pub(crate) fn acquire(&self, request: &AcquireRequest<'_>, wait: Wait) -> Result<Option<Grant>> {
        let thread = (!request.modifiers.owned).then(ThreadId::current);
        let held = request.held_by(thread.as_ref());
        let waits = held.is_none() && wait != Wait::Not;
        let caller = Caller::new(&self.life, request.modifiers.cancel.as_ref(), waits);
        caller.check()?;
        if let Some(hold) = held {
            let bounds = self.sender.bounds_of_call(request.name, wait.deadline());
            return self.reenter(request, &hold, &caller, bounds).map(Some);
        }
        Acquisition::new(request, thread, &caller, wait).run()
    }

    pub(super) fn reenter(
        &self,
        request: &AcquireRequest<'_>,
        hold: &Arc<HoldState>,
        caller: &Caller<'_>,
        bounds: Bounds,
    ) -> Result<Grant> {
        let (call, in_doubt, finish) = self.begin_reentry(request, hold, bounds)?;
        finish(self.sender.send_after(in_doubt, &call, bounds, Some(caller)))
    }

    /// Builds the request.
    pub(super) fn begin_reentry(
        &self,
        request: &AcquireRequest<'_>,
        hold: &Arc<HoldState>,
        bounds: Bounds,
    ) -> Result<Prepared<Reentered, impl FnOnce(SendResult<Reentered>) -> Result<Grant>>> {
        // The numbers are those of the turn: before it, a side that was left to expire may be counted that is over.
        let turn = match hold.free_turn() {
            Some(turn) => turn,
            None => {
                // The turn may be that of this thread, in a callback that is told of the loss of this hold.
                self.keeper.must_be_live(hold)?;
                hold.turn(bounds.end).inspect_err(|_| self.keeper.repeat_release(hold))?
            }
        };
        let side = request.kind.side();
        let (held, counts, raise) = self.keeper.with_ledger(hold, |ledger, now| {
            (ledger.counts(), ledger.counts_after_reentry(now, side), ledger.raise(now, request.lease))
        });
        let barred = |loss| self.keeper.lost(hold, loss).advising("the earlier guard bars this thread until dropped");
        let counts = counts.map_err(barred)?;
        if hold.kind.family() != request.kind.family() {
            let (held, wanted) = (hold.label(), request.kind.label(side));
            let text = if held == wanted {
                format!("this thread holds it as {held} with another ReleaseBy; use one form for one name")
            } else {
                format!("this thread holds it as {held} and wants it as {wanted}; use one kind for one name")
            };
            return Err(Error::new(ErrorKind::OtherKind, text));
        }
        request.kind.check_reentry(held).map_err(|why| Error::new(ErrorKind::AlreadyHeld, why))?;
        // The inner section raises the deadline of the outer one, which must have reached as much.
        let confirmation = hold.confirmation(request.needs);
        let call = hold.kind.reenter(request.name, &hold.owner, raise, counts);
        let needs = confirmation.as_ref().map(|confirmation| confirmation.needs);
        let call = call.confirmed(confirmation, result::Result::is_ok);
        Ok((call, hold.take_in_doubt(), move |outcome| self.learn_of_reentry(request, hold, needs, turn, outcome)))
    }

    /// Takes the outcome of the request.
    fn learn_of_reentry(
        &self,
        request: &AcquireRequest<'_>,
        hold: &Arc<HoldState>,
        needs: Option<Durability>,
        turn: RequestTurn<'_>,
        outcome: SendResult<Reentered>,
    ) -> Result<Grant> {
        let server = needs.map(|_| self.sender.node(request.name).server.label()).unwrap_or_default();
        let mut missing = None;
        let outcome = outcome.or_else(exactly_once::taken_if_overwritten);
        let reentered = self.keeper.in_turn(hold, &turn, outcome, |ledger, now, answer| {
            if let Err(loss) = answer.value {
                return Ok(Err(ledger.reported_lost(now, loss)));
            }
            if let Some(needs) = needs {
                missing = needs.judge(answer.copies.as_ref(), &server, "it was not taken again")?;
            }
            Ok(ledger.reentered(now, answer.sent, request.lease, request.kind.side(), request.promise(answer.sent)))
        });
        drop(turn);
        let reentered = reentered.and_then(|outcome| outcome);
        self.sender.tell_missing(request.name, missing);
        // After a failure the counts in Redis may be too high for this hold.
        let guard = reentered.inspect_err(|_| self.keeper.repeat_release(hold))?;
        let guard = guard.map_err(|loss| self.keeper.lost(hold, loss))?;
        if let Some(needs) = needs {
            hold.raise_needs(needs);
        }
        Ok((Arc::clone(hold), guard))
    }

    /// Tells what a grant misses, and the grant itself with the beginning of its call, and whether that slept. The
    /// client must know the grant, because the observer may close the client or take locks.
    pub(crate) fn tell_grant(
        &self,
        request: &AcquireRequest<'_>,
        missing: Option<Error>,
        grant: Option<(&HoldState, Instant, bool)>,
    ) {
        self.sender.tell_missing(request.name, missing);
        let Some((hold, started, has_waited)) = grant else { return };
        let event = || LockAcquired::of(hold.in_events(), started.until(hold.since), has_waited);
        self.config.observe(Observer::acquired, event);
        if self.config.observer.is_some() {
            // The observer knows the grant, so it may hear of a loss.
            self.keeper.with_ledger(hold, |ledger, _| ledger.told = false);
        }
    }

    /// A grant proves that older holds of this lock in this process are lost. Only holds registered before the
    /// request was sent are certain to be older.
    pub(crate) fn exclude_older_holds(&self, request: &AcquireRequest<'_>, sent: Instant) {
        // A permit excludes nobody, and ten thousand others would be looked at.
        let is_permit = |kind: &Arc<dyn Kind>| matches!(kind.queueing(), Queueing::Counted(_));
        if is_permit(request.kind) {
            return;
        }
        for older in self.cells.registry.older(request.name, sent) {
            // Taken permits stand beside the key of their name, which may have become a lock.
            if is_permit(&older.kind) {
                continue;
            }
            let excluded = request.kind.side() == Side::Exclusive
                || self.keeper.with_ledger(&older, |ledger, _| ledger.counts().exclusive > 0);
            if excluded {
                self.keeper.lose(&older, Loss::Taken);
            }
        }
    }
}
