//! Giving back: one guard, a whole hold, or somebody else's.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::hold::HoldState;
use super::ledger::{GuardNumber, Phase, Release};
use super::settle::Settlement;
use super::wire::{self, Answer, Bounds, Loose};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::LockReleased;
use crate::script::{Call, Counts, Kept, Renewal, RenewalAnswer};
use crate::time::{Instant, Lease};

impl Engine {
    /// Gives one guard back, within `limit`; what then is still in doubt is settled in the background.
    pub(crate) fn release(self: &Arc<Self>, hold: &Arc<HoldState>, guard: GuardNumber, limit: Duration) -> Result<()> {
        match self.with(hold, |ledger, now| ledger.release(guard, now)) {
            Release::Partial { counts, lease } => {
                self.mind_if_heard(hold);
                self.release_part(hold, counts, lease, limit)
            }
            Release::Last => {
                self.registry.remove(hold);
                let outcome = self.release_last(hold, limit);
                self.with(hold, |ledger, _| ledger.settled());
                outcome
            }
            Release::Lost(loss) => {
                self.forget_if_empty(hold);
                let loose = hold.take_loose();
                // Nobody here knew it to be gone, or an old request may bring it back: so it may stand in
                // everybody's way.
                if loss == Loss::Expired || loose.haunted || !loose.open.is_empty() {
                    self.settle(self.leftover(hold, loose));
                }
                Err(Error::lost(loss))
            }
            Release::Unknown => Err(Error::new(ErrorKind::NotHeld, "this hold was given back already")),
        }
        .map_err(|error| error.about(&hold.name))
    }

    fn release_part(
        self: &Arc<Self>,
        hold: &Arc<HoldState>,
        counts: Counts,
        lease: Lease,
        limit: Duration,
    ) -> Result<()> {
        self.forget_if_empty(hold);
        let call = hold.kind.release(&hold.name, &hold.owner, Some((counts, lease)));
        let bounds = Bounds::within(limit, self.config.command_timeout.min(limit));
        let outcome = self.ask_about(hold, &call, &bounds).and_then(|answer| self.done_or_lost(hold, answer.value));
        // If it fails, the next release of this hold writes the right count; others may not wait for that.
        if outcome.is_err() && hold.kind.lets_others_in(counts) {
            self.repeat_release(hold);
        }
        outcome
    }

    pub(super) fn done_or_lost<T>(&self, hold: &HoldState, answer: Kept<T>) -> Result<()> {
        match answer {
            Kept::Done(_) => Ok(()),
            Kept::Lost(loss) => {
                self.lose(hold, loss);
                Err(Error::lost(loss))
            }
        }
    }

    fn release_last(self: &Arc<Self>, hold: &Arc<HoldState>, limit: Duration) -> Result<()> {
        let node = self.node(&hold.name);
        let call = hold.kind.release(&hold.name, &hold.owner, None);
        let channel = hold.kind.channel(&hold.name, &hold.owner);
        let listening = node.hub.expect_own(&channel);
        let bounds = Bounds::within(limit, self.config.command_timeout.min(limit));
        let outcome =
            wire::send_after(hold.take_loose(), &node.server, &call, &bounds).or_else(wire::taken_if_overwritten);
        self.after_request(&node);
        let told = match &outcome {
            Ok(answer) => match answer.value {
                Kept::Done(told) => told,
                Kept::Lost(_) => None,
            },
            Err(_) => None,
        };
        if listening && told.is_none_or(|told| told == 0) {
            node.hub.unexpect_own(&channel);
        }
        match outcome {
            Ok(answer) => {
                if answer.haunted {
                    self.settle(self.leftover(hold, Loose { open: vec![], haunted: true }));
                }
                if let Kept::Lost(loss) = answer.value {
                    // A repetition that finds nothing: the first copy opened the lock and its answer
                    // was lost, unless the time to live was over before.
                    let opened_by_us = answer.repeated && self.with(hold, |ledger, now| now < ledger.good_until());
                    if !opened_by_us {
                        self.with(hold, |ledger, _| ledger.release_found_lost(loss));
                        return Err(Error::lost(loss));
                    }
                }
                // Nobody but us listens: the first in our own line need not wait for the message.
                if told.is_none_or(|told| told <= 1) {
                    self.lines.ring_first(&hold.name);
                }
                self.observe(|observer| {
                    observer.released(&LockReleased {
                        name: hold.name.to_string(),
                        owner: hold.owner.to_string(),
                        held: hold.since.until(Instant::now()),
                    });
                });
                Ok(())
            }
            Err(failed) => {
                self.settle(self.leftover(hold, failed.loose.unwrap_or_default()));
                Err(failed.error)
            }
        }
    }

    /// Asks about a hold that goes on: what its earlier requests left loose is fenced before.
    pub(super) fn ask_about<T>(
        &self,
        hold: &HoldState,
        call: &Call<Kept<T>>,
        bounds: &Bounds<'_>,
    ) -> Result<Answer<Kept<T>>> {
        let node = self.node(&hold.name);
        let outcome = wire::send_after(hold.take_loose(), &node.server, call, bounds);
        self.after_request(&node);
        match outcome.or_else(wire::taken_if_overwritten) {
            Ok(answer) => {
                if answer.haunted {
                    hold.keep_loose(Loose { open: vec![], haunted: true });
                } else {
                    self.with(hold, |ledger, now| ledger.cut_is_over(now));
                }
                Ok(answer)
            }
            Err(failed) => {
                hold.keep_loose(failed.loose.unwrap_or_default());
                Err(failed.error)
            }
        }
    }

    /// Leaves a guard's part of the hold to its time to live.
    pub(crate) fn keep_until_expiry(&self, hold: &Arc<HoldState>, guard: GuardNumber) {
        self.with(hold, |ledger, now| ledger.keep(guard, now));
        self.forget_if_empty(hold);
    }

    /// A hold without guards is nobody's any more.
    fn forget_if_empty(&self, hold: &HoldState) {
        if self.with(hold, |ledger, _| ledger.is_empty()) {
            self.registry.remove(hold);
        }
    }

    /// Raises the time to live of a hold.
    pub(crate) fn extend(&self, hold: &Arc<HoldState>, lease: Lease) -> Result<()> {
        self.with(hold, |ledger, now| must_be_live(ledger.look(now)))?;
        let limit = self.config.command_timeout;
        let call = hold.kind.renew(&[Renewal { name: hold.name.clone(), owner: hold.owner.clone(), lease }]);
        let node = self.node(&hold.name);
        let answer = wire::send(&node.server, &call, &Bounds::within(limit, limit)).map_err(|failed| failed.error)?;
        match answer.value.answers.first() {
            // It may have been lost, or given back, while the request was under way.
            Some(RenewalAnswer::Renewed) => self.with(hold, |ledger, now| {
                ledger.extended(answer.sent, lease);
                must_be_live(ledger.look(now))
            }),
            Some(RenewalAnswer::Lost(loss)) => {
                self.lose(hold, *loss);
                self.with(hold, |ledger, now| must_be_live(ledger.look(now)))
            }
            Some(RenewalAnswer::Refused(refusal)) => {
                if refusal.is_of_replica() {
                    node.server.leave_replica();
                }
                Err(Error::refused(refusal.clone()))
            }
            None => Err(Error::new(ErrorKind::Unknown, "redis answered for another number of locks")),
        }
    }

    fn leftover(&self, hold: &HoldState, loose: Loose) -> Settlement {
        let end = self.with(hold, |ledger, now| ledger.end().max(now.after(self.watchdog_lease.duration())));
        Settlement {
            name: hold.name.clone(),
            kind: Arc::clone(&hold.kind),
            owner: hold.owner.clone(),
            loose,
            until: end,
        }
    }
}

fn must_be_live(phase: Phase) -> Result<()> {
    match phase {
        Phase::Live => Ok(()),
        Phase::Lost(loss) => Err(Error::lost(loss)),
        Phase::Releasing | Phase::Done => Err(Error::new(ErrorKind::NotHeld, "this hold was given back already")),
    }
}
