//! `extend`: raises the time to live of a hold on request.

use std::sync::Arc;

use super::hold::HoldState;
use super::in_turn::{no_turn, still_kept};
use crate::engine::Engine;
use crate::engine::exactly_once;
use crate::error::{Error, ErrorKind, Result};
use crate::script::{Renewal, RenewalAnswer};
use crate::state::exchange::Bounds;
use crate::state::ledger::Phase;
use crate::time::{Instant, Lease};

impl Engine {
    /// Raises the time to live of a hold.
    pub(crate) fn extend(&self, hold: &Arc<HoldState>, lease: Lease) -> Result<()> {
        self.must_be_live(hold)?;
        let limit = self.config.command_timeout;
        let bounds = Bounds::within(Instant::now(), limit, limit);
        let turn = hold.requests.turn(bounds.end).ok_or_else(no_turn)?;
        let node = self.node(&hold.name);
        let raise = self.with_ledger(hold, |ledger, now| ledger.raise(now, lease));
        let renewal = Renewal { name: hold.name.clone(), owner: hold.owner.clone(), raise };
        let call = hold.kind.renew(&[renewal]);
        let send = |in_doubt| exactly_once::send_after(in_doubt, &*self.topology, &call, bounds, None);
        self.in_turn(hold, &turn, send, |ledger, now, answer| match answer.value.answers.first() {
            Some(RenewalAnswer::Renewed) => {
                ledger.extended(answer.sent, lease);
                Ok(())
            }
            Some(RenewalAnswer::Lost(loss)) => {
                // A hold that was released meanwhile is not lost.
                let _ = still_kept::<()>(ledger, now, &Err(*loss));
                Ok(())
            }
            Some(RenewalAnswer::Refused(refusal)) => {
                if refusal.is_of_replica() {
                    node.server.leave_replica();
                }
                Err(Error::refused(refusal.clone().at(node.server.label())))
            }
            None => {
                let odd = Error::new(ErrorKind::Unknown, "the answer was for another number of locks");
                Err(odd.at(&node.server.label()))
            }
        })??;
        // The hold may have been lost or released during the request.
        self.must_be_live(hold)
    }

    fn must_be_live(&self, hold: &HoldState) -> Result<()> {
        match self.with_ledger(hold, |ledger, now| ledger.look(now)) {
            Phase::Live => Ok(()),
            Phase::Lost(loss) => Err(self.lost(hold, loss)),
            Phase::Releasing | Phase::Done => Err(Error::new(ErrorKind::NotHeld, "this hold was given back already")),
        }
    }
}
