//! Giving back: one guard, a whole hold, or somebody else's.

pub(super) mod settle;

use std::result::Result as Outcome;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::exchange::{Bounds, Failed, Loose};
use super::wire::{self, Answer};
use crate::conn::Server;
use crate::engine::holds::hold::HoldState;
use crate::engine::holds::requests::Turn;
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::LockReleased;
use crate::script::{Call, Renewal, RenewalAnswer};
use crate::state::ledger::{GuardNumber, Ledger, Phase, Release, Remaining};
use crate::time::{Instant, Lease};
use settle::Settlement;

impl Engine {
    /// Gives one guard back, within `limit`; what then is still in doubt is settled in the background.
    pub(crate) fn release(self: &Arc<Self>, hold: &Arc<HoldState>, guard: GuardNumber, limit: Duration) -> Result<()> {
        match self.with(hold, |ledger, now| ledger.release(guard, now)) {
            Release::Partial(remaining) => {
                self.mind_if_heard(hold);
                self.release_part(hold, remaining, limit)
            }
            Release::Last => {
                self.registry.remove(hold);
                let outcome = self.release_last(hold, limit);
                self.with(hold, |ledger, _| ledger.settled());
                outcome
            }
            Release::Lost(loss) => {
                self.forget_if_empty(hold);
                let loose = hold.requests.take_loose();
                // Nobody here knew it to be gone, or an old request may bring it back: so it may stand in
                // everybody's way.
                if loss == Loss::Expired || !loose.is_empty() {
                    self.settle(self.leftover(hold, loose));
                }
                Err(self.lost(hold, loss))
            }
            Release::Unknown => Err(Error::new(ErrorKind::NotHeld, "this hold was given back already")),
        }
        .map_err(|error| error.about(&hold.name))
    }

    fn release_part(self: &Arc<Self>, hold: &Arc<HoldState>, remaining: Remaining, limit: Duration) -> Result<()> {
        self.forget_if_empty(hold);
        let bounds = Bounds::within(limit, self.config.command_timeout);
        let turn = hold.requests.turn(bounds.end).ok_or_else(no_turn);
        let outcome = turn.and_then(|turn| self.write_remaining(hold, &turn, remaining, &bounds));
        // Until Redis knows it, it has a time to live or a side of the lock that nobody was promised.
        outcome.inspect_err(|_| self.repeat_release(hold))?.map_err(|loss| self.lost(hold, loss))
    }

    /// Writes what a partial release leaves held.
    pub(crate) fn write_remaining(
        &self,
        hold: &HoldState,
        turn: &Turn<'_>,
        remaining: Remaining,
        bounds: &Bounds<'_>,
    ) -> Result<Outcome<(), Loss>> {
        // Another one that was given back later may have been written already: then this one's numbers are old.
        let newest = if turn.last_cut() > remaining.cut {
            self.with(hold, |ledger, now| ledger.repeated_release(now))
        } else {
            Some(remaining)
        };
        let Some(Remaining { counts, lease, cut }) = newest else { return Ok(Ok(())) };
        let call = hold.kind.release(&hold.name, &hold.owner, Some((counts, lease)));
        turn.cuts(cut);
        let send =
            |loose, server: &Server| wire::send_after(loose, server, &call, bounds).or_else(wire::taken_if_overwritten);
        self.in_turn(hold, turn, send, |ledger, now, answer| {
            if !answer.haunted {
                ledger.cut_is_over(cut, now);
            }
            // Another one may not have got its turn meanwhile, and rely on the background.
            if ledger.is_newest(cut) {
                turn.written();
            }
            still_kept(ledger, now, &answer.value)
        })
    }

    fn release_last(self: &Arc<Self>, hold: &Arc<HoldState>, limit: Duration) -> Result<()> {
        let node = self.node(&hold.name);
        let call = hold.kind.release(&hold.name, &hold.owner, None);
        let channel = hold.kind.channel(&hold.name, &hold.owner);
        let bounds = Bounds::within(limit, self.config.command_timeout);
        let Some(turn) = hold.requests.turn(bounds.end) else {
            self.settle(self.leftover(hold, Loose::default()));
            return Err(no_turn());
        };
        let listening = node.hub.expect_own(&channel);
        let outcome =
            wire::send_after(turn.take_loose(), &node.server, &call, &bounds).or_else(wire::taken_if_overwritten);
        drop(turn);
        self.after_request(&node);
        let receivers = outcome.as_ref().ok().and_then(|answer| answer.value.ok().flatten());
        if listening && receivers.is_none_or(|receivers| receivers == 0) {
            node.hub.unexpect_own(&channel);
        }
        match outcome {
            Ok(answer) => {
                if answer.haunted {
                    self.settle(self.leftover(hold, Loose { open: vec![], haunted: true }));
                }
                if let Err(loss) = answer.value {
                    // A repetition that finds nothing: the first copy opened the lock and its answer
                    // was lost, unless the time to live was over before.
                    let opened_by_us = answer.repeated && self.with(hold, |ledger, now| now < ledger.good_until());
                    if !opened_by_us {
                        self.with(hold, |ledger, _| ledger.release_found_lost(loss));
                        return Err(self.lost(hold, loss));
                    }
                }
                // Nobody but us listens, or it is our turn: the first in our own line need not wait for the message.
                if self.turn_goes_on(hold, receivers, listening) || receivers.is_none_or(|receivers| receivers <= 1) {
                    self.lines.ring_first(&hold.name);
                }
                self.observe(|observer| {
                    observer.released(&LockReleased {
                        name: hold.name.to_string(),
                        kind: hold.label(),
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

    /// Counts a release whose message `receivers` clients got, this one among them if it is `listening`. Returns whether
    /// the next thread of this process may ask at once.
    fn turn_goes_on(&self, hold: &HoldState, receivers: Option<u64>, listening: bool) -> bool {
        if !hold.kind.stands_back() {
            return false;
        }
        let others = |receivers: u64| usize::try_from(receivers).unwrap_or(usize::MAX).saturating_sub(listening.into());
        // The thread that gives the lock back, and those that wait in line behind it.
        let threads = || self.lines.len(&hold.name) + 1;
        self.stand_backs.released(&hold.name, receivers.map(others), threads, Instant::now())
    }

    /// Asks about a hold that goes on, when it is its turn: what its earlier requests left loose is fenced
    /// before. `learn` uses the ledger before another request of this hold can begin.
    pub(crate) fn ask_about<T, R>(
        &self,
        hold: &HoldState,
        call: &Call<Outcome<T, Loss>>,
        bounds: &Bounds<'_>,
        learn: impl FnOnce(&mut Ledger, Instant, &Answer<Outcome<T, Loss>>) -> R,
    ) -> Result<R> {
        let turn = hold.requests.turn(bounds.end).ok_or_else(no_turn)?;
        let send =
            |loose, server: &Server| wire::send_after(loose, server, call, bounds).or_else(wire::taken_if_overwritten);
        self.in_turn(hold, &turn, send, learn)
    }

    fn in_turn<A, R>(
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

    /// Leaves a guard's part of the hold to its time to live.
    pub(crate) fn keep_until_expiry(&self, hold: &Arc<HoldState>, guard: GuardNumber) {
        self.with(hold, |ledger, now| ledger.keep(guard, now));
        if self.forget_if_empty(hold) {
            let loose = hold.requests.take_loose();
            if !loose.is_empty() {
                self.fence_later(hold.name.clone(), loose);
            }
        }
    }

    /// A hold without guards is nobody's any more. Answers whether it is one.
    fn forget_if_empty(&self, hold: &HoldState) -> bool {
        let is_empty = self.with(hold, |ledger, _| ledger.is_empty());
        if is_empty {
            self.registry.remove(hold);
        }
        is_empty
    }

    /// Raises the time to live of a hold.
    pub(crate) fn extend(&self, hold: &Arc<HoldState>, lease: Lease) -> Result<()> {
        self.must_be_live(hold)?;
        let limit = self.config.command_timeout;
        let bounds = Bounds::within(limit, limit);
        let turn = hold.requests.turn(bounds.end).ok_or_else(no_turn)?;
        let node = self.node(&hold.name);
        let raise = self.with(hold, |ledger, now| ledger.raise(now, lease));
        let renewal = Renewal { name: hold.name.clone(), owner: hold.owner.clone(), raise };
        let call = hold.kind.renew(&[renewal]);
        let send = |loose, server: &Server| wire::send_after(loose, server, &call, &bounds);
        self.in_turn(hold, &turn, send, |ledger, now, answer| match answer.value.answers.first() {
            Some(RenewalAnswer::Renewed) => {
                ledger.extended(answer.sent, lease);
                Ok(())
            }
            Some(RenewalAnswer::Lost(loss)) => {
                // What was given back meanwhile is not lost.
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
        // It may have been lost, or given back, while the request was under way.
        self.must_be_live(hold)
    }

    fn must_be_live(&self, hold: &HoldState) -> Result<()> {
        match self.with(hold, |ledger, now| ledger.look(now)) {
            Phase::Live => Ok(()),
            Phase::Lost(loss) => Err(self.lost(hold, loss)),
            Phase::Releasing | Phase::Done => Err(Error::new(ErrorKind::NotHeld, "this hold was given back already")),
        }
    }

    pub(crate) fn leftover(&self, hold: &HoldState, loose: Loose) -> Settlement {
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
fn no_turn() -> Error {
    Error::new(ErrorKind::Unknown, "an earlier request of this hold has no answer yet, so this one was not sent")
}
