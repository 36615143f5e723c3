//! `extend`: raises the time to live of a hold on request.

use std::sync::Arc;

use crate::engine::hold::HoldState;
use crate::engine::hold::requests::Prepared;
use crate::engine::keeper::Keeper;
use crate::engine::sender::exactly_once::SendResult;
use crate::error::{Error, ErrorKind, Result};
use crate::script::{Renewal, RenewalAnswer};
use crate::state::exchange::Bounds;
use crate::state::ledger::{GuardNumber, Phase};
use crate::time::Lease;

/// The lease of an extension, and its guard: none where it is by hand, and so for all guards.
pub(crate) type Extension = (Lease, Option<GuardNumber>);

/// What a server says to an extension.
type Extended = Vec<RenewalAnswer>;

impl Keeper {
    /// Builds the request.
    pub(crate) fn begin_extension(
        &self,
        hold: &Arc<HoldState>,
        (lease, of): Extension,
        bounds: Bounds,
    ) -> Result<Prepared<Extended, impl FnOnce(SendResult<Extended>) -> Result<()>>> {
        if !hold.kind.runs_scripts() {
            let text =
                "without scripts its time cannot be raised; take it with a longer lease, or with ReleaseBy::Script";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.must_be_live(hold)?;
        let turn = hold.turn(bounds.end)?;
        let (raise, reads) =
            self.with_ledger(hold, |ledger, now| (ledger.raise(now, lease), ledger.counts_on_wire(now).shared));
        let renewal = Renewal { name: hold.name.clone(), owner: hold.owner.clone(), raise, reads };
        let confirmation = hold.confirmation(None);
        let needs = confirmation.as_ref().map(|confirmation| confirmation.needs);
        let call = hold.kind.renew(&[renewal]).confirmed(confirmation, |answers| RenewalAnswer::is_renewed(answers));
        let (in_doubt, server) = (hold.take_in_doubt(), self.sender.server(&hold.name));
        let finish = move |outcome: SendResult<Extended>| {
            let mut missing = None;
            self.in_turn(hold, &turn, outcome, |ledger, now, answer| match answer.value.first() {
                Some(RenewalAnswer::Renewed) => {
                    if let Some(needs) = needs {
                        missing = needs.judge(answer.copies.as_ref(), &server.label(), NOT_EXTENDED)?;
                    }
                    ledger.extended(answer.sent, lease, of);
                    Ok(())
                }
                Some(RenewalAnswer::Lost(loss)) => {
                    // A hold that was released meanwhile is not lost.
                    ledger.reported_lost(now, *loss);
                    Ok(())
                }
                Some(RenewalAnswer::Refused(refusal)) => {
                    if refusal.is_of_replica() {
                        server.leave_replica();
                    }
                    Err(Error::refused(refusal.clone().at(server.label())))
                }
                None => Err(Error::odd_count().at(&server.label())),
            })??;
            drop(turn); // an observer may use the lock
            self.sender.tell_missing(&hold.name, missing);
            // The hold may have been lost or released during the request.
            self.must_be_live(hold)
        };
        Ok((call, in_doubt, finish))
    }

    pub(crate) fn must_be_live(&self, hold: &HoldState) -> Result<()> {
        match self.with_ledger(hold, |ledger, now| ledger.look(now)) {
            Phase::Live => Ok(()),
            Phase::Lost(loss) => Err(self.lost(hold, loss)),
            Phase::Releasing | Phase::Done => Err(Error::new(ErrorKind::NotHeld, "this hold was given back already")),
        }
    }
}

const NOT_EXTENDED: &str = "the time of the hold was not raised";
