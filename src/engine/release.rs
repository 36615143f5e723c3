//! Releases: of one guard, of a whole hold, or of a hold of another owner.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::cells::hub::Hub;
use crate::engine::cells::successor::{Chosen, Handed};
use crate::engine::hold::HoldState;
use crate::engine::hold::requests::RequestTurn;
use crate::engine::keeper::Keeper;
use crate::engine::keeper::partial::PartRelease;
use crate::engine::parts::Engine;
use crate::engine::sender::exactly_once::{self, SendResult};
use crate::engine::sender::node::Node;
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::{LockReleased, Observer};
use crate::kinds::Queueing;
use crate::name::LockName;
use crate::script::{Released, Side};
use crate::state::exchange::{Bounds, Failed, InDoubt};
use crate::state::ledger::{GuardNumber, Ledger, Phase, Release};
use crate::state::stand_back::{Chain, Rivals};
use crate::time::Instant;

/// The last release of a hold, from its request to its reply.
pub(crate) struct LastRelease<'a> {
    hold: &'a Arc<HoldState>,
    /// The message, where the lock is not handed on.
    publishing: Option<Publishing<'a>>,
    turn: RequestTurn<'a>,
}

/// A message that a request of this process publishes, from the request to its reply.
pub(crate) struct Publishing<'a> {
    node: &'a Arc<Node>,
    hub: &'a Hub,
    /// The channel, if the message comes back to this process.
    heard_on: Option<String>,
}

impl Publishing<'_> {
    /// Takes the number of clients that received the message. Returns what the number tells of other clients.
    pub(super) fn published(&self, receivers: Option<u64>) -> Rivals {
        if let Some(channel) = &self.heard_on
            && receivers.is_none_or(|receivers| receivers == 0)
        {
            self.hub.unexpect_own(channel);
        }
        let own = u64::from(self.heard_on.is_some());
        let others = receivers.map(|receivers| usize::try_from(receivers.saturating_sub(own)).unwrap_or(usize::MAX));
        others.map_or(Rivals::Unknown, Rivals::Listen)
    }
}

impl<'a> LastRelease<'a> {
    /// The release is about to publish its message.
    pub(crate) fn announce(&mut self, engine: &'a Engine) {
        self.publishing = Some(engine.publishes(&self.hold.name, || self.hold.channel()));
    }
}

/// The release of a guard: over without a request, or a release that leaves a part held, or the last release of the
/// hold.
pub(crate) enum Begun<'a> {
    Over(Result<()>),
    Part(PartRelease<'a>),
    Last(LastRelease<'a>),
}

impl Engine {
    /// Releases one guard within `limit`. A release in doubt after that is cleaned up in the background.
    pub(crate) fn release(&self, hold: &Arc<HoldState>, guard: GuardNumber, limit: Duration) -> Result<()> {
        let bounds = Bounds::within(Instant::now(), limit, self.config.command_timeout);
        match self.begin_release(hold, guard, bounds) {
            Begun::Over(outcome) => outcome,
            Begun::Part(part) => {
                let outcome = self.sender.send_after(hold.take_in_doubt(), &part.call(), bounds, None);
                self.keeper.finish_part(part, outcome)
            }
            Begun::Last(mut last) => {
                if let Some(outcome) = self.hand_on(hold, bounds) {
                    return self.finish_release(last, outcome);
                }
                last.announce(self);
                let call = hold.kind.release(&hold.name, &hold.owner, None);
                let outcome = self.sender.send_after(hold.take_in_doubt(), &call, bounds, None);
                self.finish_release(last, outcome)
            }
        }
    }

    /// Hands the lock to the first thread in line, by one request in place of a release, its message and another
    /// acquire. The new hold has an owner of its own. Returns `None` where the lock is to be released: nobody sleeps in
    /// line, other processes want the lock, too, requests are in doubt, or nothing was handed on.
    fn hand_on(&self, hold: &HoldState, bounds: Bounds) -> Option<SendResult<Released>> {
        if !hold.kind.hands_on() {
            return None;
        }
        // Asked first, because nearly always nobody waits.
        let (successor, waiting) = self.cells.local_queues.first(&hold.name)?;
        // Other processes count the messages of processes that stand back for them.
        let is_alone = self.cells.stand_backs.with(&hold.name, |_, _, _| ()).is_none();
        if !is_alone || hold.needs().is_some() || hold.has_doubt() || self.life.is_closed() {
            return None;
        }
        let chain = Chain::next(hold.chain(), waiting, Instant::now())?;
        let chosen = Chosen::of(successor)?;
        let (next, lease) = (chosen.successor.owner.clone(), chosen.successor.lease);
        let call = hold.kind.hand_on(&hold.name, &hold.owner, &next, lease);
        let (handed, outcome) = match self.sender.send(&call, bounds, None) {
            Ok(answer) if answer.value.is_ok() => {
                let in_doubt = InDoubt { unfenceable: answer.unfenceable, ..InDoubt::default() };
                (Handed { in_doubt, granted: Some((answer.sent, chain)) }, Ok(answer.with(Ok(None))))
            }
            Err(Failed { error, in_doubt: Some(in_doubt) }) => {
                let failed = Failed { error, in_doubt: Some(in_doubt.clone()) };
                (Handed { in_doubt, granted: None }, Err(failed))
            }
            nothing => {
                chosen.give_up();
                return match nothing {
                    // A full memory refuses no release.
                    Err(failed) if failed.error.is_final_refusal() => None,
                    Err(failed) => Some(Err(failed)),
                    Ok(answer) => Some(Ok(answer.with(answer.value.map(|()| None)))),
                };
            }
        };
        let in_doubt = handed.in_doubt.clone();
        if !chosen.hand(handed) {
            let (owner, until) = (Some((Arc::clone(&hold.kind), next)), Instant::now().after(lease.duration()));
            self.sender.clean_up(hold.name.clone(), owner, in_doubt, until);
        }
        Some(outcome)
    }

    /// Releases one guard as far as that goes without a request.
    pub(crate) fn begin_release<'a>(&self, hold: &'a Arc<HoldState>, guard: GuardNumber, bounds: Bounds) -> Begun<'a> {
        let use_ledger = |ledger: &mut Ledger, now| (ledger.release(guard, now), ledger.guards.is_empty());
        let (release, is_empty) = self.keeper.with_ledger(hold, use_ledger);
        if is_empty {
            self.cells.registry.remove(hold);
        }
        let outcome = match release {
            Release::Partial => match self.keeper.begin_part(hold, is_empty, bounds) {
                Ok(Some(part)) => return Begun::Part(part),
                outcome => {
                    if is_empty {
                        self.keeper.tell_end(hold, None, None, true);
                    }
                    outcome.map(|_| ())
                }
            },
            Release::Last => match hold.turn(bounds.end) {
                Ok(turn) => return Begun::Last(LastRelease { hold, publishing: None, turn }),
                Err(error) => {
                    self.keeper.with_ledger(hold, |ledger, _| ledger.step(Phase::Releasing, Phase::Done));
                    self.keeper.clear_away(hold, hold.take_in_doubt());
                    self.keeper.tell_end(hold, None, Some(&error), false);
                    Err(error)
                }
            },
            Release::Lost(loss) => {
                if hold.may_be_left(loss) {
                    self.keeper.clear_away(hold, hold.take_in_doubt());
                }
                Err(self.keeper.lost(hold, loss))
            }
            Release::Unknown => Err(Error::new(ErrorKind::NotHeld, "this hold was given back already")),
        };
        Begun::Over(outcome.map_err(|error| error.about_a(hold.kind.noun(), &hold.name)))
    }

    /// Takes the outcome of the request that frees the lock.
    pub(crate) fn finish_release(&self, last: LastRelease<'_>, outcome: SendResult<Released>) -> Result<()> {
        let hold = last.hold;
        let outcome = self.learn_of_release(last, outcome.or_else(exactly_once::taken_if_overwritten));
        self.keeper.with_ledger(hold, |ledger, _| ledger.step(Phase::Releasing, Phase::Done));
        outcome.map_err(|error| error.about_a(hold.kind.noun(), &hold.name))
    }

    fn learn_of_release(&self, last: LastRelease<'_>, outcome: SendResult<Released>) -> Result<()> {
        let LastRelease { hold, publishing, turn } = last;
        drop(turn);
        let node = publishing.as_ref().map_or_else(|| self.sender.node(&hold.name), |publishing| publishing.node);
        self.sender.after_request(node);
        let receivers = outcome.as_ref().ok().and_then(|answer| answer.value.ok().flatten());
        if let Some(publishing) = publishing {
            let goes_on = self.turn_goes_on(hold, publishing.published(receivers));
            // If no other client listens, or the turn of this process goes on, nobody waits for the message. The first
            // thread in line heeds no message of this process.
            match hold.kind.queueing() {
                Queueing::Counted(_) if goes_on || receivers.is_none_or(|receivers| receivers <= 1) => {
                    self.cells.counted_queues.hint(&hold.name);
                }
                Queueing::Line => self.cells.local_queues.hint(&hold.name),
                _ => {}
            }
        }
        match outcome {
            Ok(answer) => {
                if answer.unfenceable {
                    self.keeper.clear_away(hold, InDoubt { fenceable: vec![], unfenceable: true });
                }
                if let Err(loss) = answer.value {
                    // The repeated release found no hold. Before the deadline the first copy had released the lock,
                    // and only its reply was lost.
                    let opened_by_us =
                        answer.repeated && self.keeper.with_ledger(hold, |ledger, now| now < ledger.good_until);
                    if !opened_by_us {
                        let loss = self.keeper.with_ledger(hold, |ledger, now| {
                            let loss = if now < ledger.good_until { loss } else { Loss::Expired };
                            ledger.step(Phase::Releasing, Phase::Lost(loss));
                            loss
                        });
                        return Err(self.keeper.lost(hold, loss));
                    }
                }
                let event = || LockReleased::of(hold.in_events(), hold.since.until(Instant::now()));
                self.config.observe(Observer::released, event);
                self.keeper.tell_end(hold, None, None, false);
                Ok(())
            }
            Err(failed) => {
                self.keeper.clear_away(hold, failed.in_doubt.unwrap_or_default());
                self.keeper.tell_end(hold, None, Some(&failed.error), false);
                Err(failed.error)
            }
        }
    }

    /// Announces a message of this process, which is no news here.
    pub(super) fn publishes(&self, name: &LockName, channel: impl FnOnce() -> String) -> Publishing<'_> {
        let node = self.sender.node(name);
        let hub = self.cells.hub(&node.server);
        let heard_on = hub.expect_own(channel);
        Publishing { node, hub, heard_on }
    }

    /// Counts a release. Returns whether the next thread of this process may ask at once.
    fn turn_goes_on(&self, hold: &HoldState, rivals: Rivals) -> bool {
        let rivals = match rivals {
            _ if !hold.kind.stands_back() => return false,
            _ if hold.kind.pauses().is_some() => Rivals::MayPoll,
            // One message tells of all released values of a group.
            Rivals::Listen(0) if !hold.name.field().is_empty() => Rivals::Unknown,
            rivals => rivals,
        };
        self.cells.stand_backs.released(&hold.name, rivals)
    }

    /// Runs a request that ends the holds of a name on a side, of whatever owner. The holds of this process are lost
    /// with an answer, and checked without one.
    pub(crate) fn force_release(
        &self,
        name: &LockName,
        side: Side,
        request: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        // Read before the request: a later owner keeps the lock.
        let mut holds = self.cells.registry.under(name);
        let outcome = request();
        match outcome {
            Ok(true) => {
                holds.retain(|hold| self.keeper.with_ledger(hold, |ledger, _| ledger.counts().of(side)) > 0);
                holds.iter().for_each(|hold| self.keeper.lose(hold, Loss::Gone));
            }
            Ok(false) => {}
            Err(_) => self.keeper.verify_holds(name),
        }
        outcome
    }

    /// Drops a guard and leaves its part of the hold to expire.
    pub(crate) fn keep_until_expiry(&self, hold: &Arc<HoldState>, guard: GuardNumber) {
        let (was_live, end, is_empty) = self.keeper.with_ledger(hold, |ledger, now| {
            (ledger.look(now) == Phase::Live, ledger.keep(guard, now), ledger.guards.is_empty())
        });
        if let Some(end) = end {
            // A side that was left to expire has no time to live of its own in Redis.
            self.keeper.see_to(hold, end, Keeper::repeat_release);
        }
        if is_empty {
            self.cells.registry.remove(hold);
            if was_live {
                self.keeper.tell_end(hold, None, None, true);
            }
            let in_doubt = hold.take_in_doubt();
            if !in_doubt.is_empty() {
                self.sender.fence_later(hold.name.clone(), in_doubt);
            }
        }
    }
}
