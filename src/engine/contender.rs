//! One caller on its way to one lock: what it asked, where it stands, what it must not leave behind.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::acquire::{Grant, Wait, Wish, promise};
use super::bell::{Bell, Hung};
use super::contend::{Contest, LONGEST_SLEEP, Outcome, contend};
use super::hold::{Granted, HoldState};
use super::hub::Subscription;
use super::kind::{Ask, Queueing, Waking};
use super::ledger::{Ledger, Promise};
use super::line::Place;
use super::node::Node;
use super::settle::Settlement;
use super::wire::{self, Bounds, Loose};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::LockAcquired;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::script::{Attempt, Side};
use crate::time::{Deadline, Instant, Lease};

/// One caller on its way to one lock.
pub(super) struct Contender<'a> {
    engine: &'a Arc<Engine>,
    node: Arc<Node>,
    wish: &'a Wish<'a>,
    thread: Option<ThreadId>,
    lease: Lease,
    started: Instant,
    wait: Wait,
    deadline: Deadline,
    owner: OwnerId,
    number: HoldNumber,
    bell: &'a Bell,
    hung: Vec<Hung<'a>>,
    place: Option<Place<'a>>,
    subscription: Option<Subscription>,
    /// Requests of the present owner that were never answered.
    loose: Option<Loose>,
    /// When it asked before.
    asked: Option<Instant>,
    tries: u32,
    granted: bool,
}

impl<'a> Contender<'a> {
    pub(super) fn new(
        engine: &'a Arc<Engine>,
        wish: &'a Wish<'a>,
        thread: Option<ThreadId>,
        bell: &'a Bell,
        wait: Wait,
    ) -> Self {
        let (number, owner) = engine.draw_owner(&**wish.kind, thread.as_ref());
        Self {
            engine,
            node: engine.node(wish.name),
            wish,
            thread,
            lease: engine.lease_of(wish),
            started: Instant::now(),
            wait,
            deadline: wait.deadline(),
            owner,
            number,
            bell,
            hung: vec![],
            place: None,
            subscription: None,
            loose: None,
            asked: None,
            tries: 0,
            granted: false,
        }
    }

    /// Takes the lock, or finds out that it cannot be had in time, and leaves nothing behind then.
    pub(super) fn run(mut self) -> Result<Option<Grant>> {
        let deadline = self.deadline;
        let outcome = if self.wait != Wait::Not {
            self.wait_in_line().and_then(|()| contend(&mut self, deadline))
        } else {
            self.attempt().map(|outcome| match outcome {
                Outcome::Taken(grant) => Some(grant),
                Outcome::Busy(_) => None,
            })
        };
        self.leave(outcome.as_ref().err().map(Error::kind));
        outcome
    }

    /// Waits until this thread is the first of its process that wants the lock, or time is up:
    /// then it asks all the same, so that the answer is Redis's and not a guess.
    fn wait_in_line(&mut self) -> Result<()> {
        self.place = self.engine.lines.join(self.wish.name, self.wish.kind.queueing(), self.bell);
        while self.place.as_ref().is_some_and(|place| !place.is_first()) {
            let now = Instant::now();
            // Where the first one gets no answers, the others find that out for themselves.
            let limit = self.engine.config.outage_limit;
            let outage = self.node.mute_since().map(|since| since.max(self.started).after(limit));
            if self.deadline.passed(now) || outage.is_some_and(|outage| now >= outage) {
                break;
            }
            let longest = now.after(LONGEST_SLEEP);
            self.sleep(self.deadline.sooner(outage.map_or(longest, |outage| outage.min(longest))))?;
        }
        // Where the channel is listened to already, being there before the first question saves the second.
        if matches!(self.wish.kind.waking(), Waking::Message) {
            let (name, kind, owner) = (self.wish.name, self.wish.kind, &self.owner);
            self.subscription = self.node.hub.join_live(name, &|| kind.channel(name, owner), self.bell);
        }
        Ok(())
    }

    fn granted(&mut self, sent: Instant, haunted: bool, token: Option<u64>) -> Outcome<Grant> {
        let now = Instant::now();
        if now >= self.lease.good_until(sent) {
            return self.granted_too_late(haunted);
        }
        let promise = promise(self.wish, self.lease, sent);
        let (ledger, guard) =
            Ledger::granted(self.engine.watchdog_lease, sent, self.lease, self.wish.kind.side(), promise);
        self.granted = true;
        let hold = Arc::new(HoldState::new(Granted {
            name: self.wish.name.clone(),
            kind: Arc::clone(self.wish.kind),
            number: self.number,
            owner: self.owner.clone(),
            thread: self.thread.clone(),
            since: now,
            token,
            loose: Loose { open: vec![], haunted: haunted || self.loose.take().is_some_and(|loose| loose.haunted) },
            ledger,
        }));
        self.exclude_older_holds(sent);
        for dead in self.engine.registry.add(Arc::clone(&hold)) {
            // Perhaps nobody was told of its loss yet.
            self.engine.with(&dead, |ledger, now| ledger.look(now));
        }
        self.engine.mind_if_heard(&hold);
        if matches!(promise, Promise::Renewed { .. }) {
            self.node.lane.start(self.engine, &self.node);
        }
        self.engine.observe(|observer| {
            observer.acquired(&LockAcquired {
                name: hold.name.to_string(),
                owner: hold.owner.to_string(),
                waited: self.started.until(now),
            });
        });
        if self.engine.is_closed() {
            // Closing may have gone over the registry before this hold was in it.
            self.engine.end_hold(&hold, Instant::now().after(self.engine.config.drop_timeout));
        }
        Outcome::Taken((hold, guard))
    }

    /// Redis gave it to us, so who of this process had it before has it no more. Only a hold that was
    /// known before we asked is surely older than ours.
    fn exclude_older_holds(&self, sent: Instant) {
        for older in self.engine.registry.under(self.wish.name) {
            let excluded = self.wish.kind.side() == Side::Exclusive
                || self.engine.with(&older, |ledger, _| ledger.counts().exclusive > 0);
            if excluded && older.since < sent {
                self.engine.lose(&older, Loss::Taken);
            }
        }
    }

    /// The answer took longer than the lease: somebody else may have it by now. Whatever is left of
    /// the grant is cleared away, and the next question is a new owner's.
    fn granted_too_late(&mut self, haunted: bool) -> Outcome<Grant> {
        self.loose.get_or_insert_default().haunted |= haunted;
        self.clear_away();
        (self.number, self.owner) = self.engine.draw_owner(&**self.wish.kind, self.thread.as_ref());
        (self.subscription, self.asked) = (None, None);
        Outcome::Busy(REST_AFTER_A_LATE_ANSWER)
    }

    /// Gives up a place in Redis's queue, so that nobody waits behind a waiter who went away. A caller
    /// whose wait failed is kept for a moment only; what that did not do goes on in the background.
    fn leave(&mut self, failed: Option<ErrorKind>) {
        let queued = self.wait != Wait::Not && self.asked.is_some() && self.wish.kind.queueing() == Queueing::InRedis;
        if queued && !self.granted && self.loose.is_none() {
            let command_timeout = self.engine.config.command_timeout;
            let limit = if failed.is_none() { command_timeout } else { command_timeout.min(LONGEST_FAREWELL) };
            let call = self.wish.kind.withdraw(self.wish.name, &self.owner);
            if wire::send(&self.node.server, &call, &Bounds::within(limit, limit)).is_err() {
                self.loose = Some(Loose::default());
            }
        }
        self.clear_away();
    }

    /// Has what unanswered requests may have left behind released in the background.
    fn clear_away(&mut self) {
        if let Some(loose) = self.loose.take() {
            self.engine.settle(Settlement {
                name: self.wish.name.clone(),
                kind: Arc::clone(self.wish.kind),
                owner: self.owner.clone(),
                until: Instant::now().after(self.lease.duration()),
                loose,
            });
        }
    }
}

impl Contest for Contender<'_> {
    type Prize = Grant;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn attempt(&mut self) -> Result<Outcome<Grant>> {
        let now = Instant::now();
        let waits = (self.wait != Wait::Not).then(|| self.asked.map_or(Duration::ZERO, |asked| asked.until(now)));
        self.asked = Some(now);
        self.tries = self.tries.saturating_add(1);
        let ask = Ask { name: self.wish.name, owner: &self.owner, lease: self.lease, waits };
        let call = self.wish.kind.acquire(&ask);
        let interrupted = || self.engine.check_caller(self.wish.cancel).err();
        self.node.asking_begins(now);
        let bounds = Bounds {
            bell: Some(self.bell),
            interrupted: &interrupted,
            ..self.engine.bounds(&self.node, self.started, self.deadline)
        };
        let outcome = wire::send(&self.node.server, &call, &bounds);
        self.node.asking_ends(outcome.as_ref().map_or_else(|failed| failed.error.is_final_refusal(), |_| true));
        match outcome {
            Ok(answer) => {
                self.engine.after_request(&self.node);
                match answer.value {
                    Attempt::Granted { token } => Ok(self.granted(answer.sent, answer.haunted, token)),
                    Attempt::OtherKind => Err(Error::new(
                        ErrorKind::OtherKind,
                        "another kind of lock has this name; use one kind for one name",
                    )),
                    Attempt::Busy { ttl_ms } => {
                        if answer.haunted {
                            self.loose.get_or_insert_default().haunted = true;
                        }
                        // One millisecond more: the key is gone after its time to live, not at its end.
                        Ok(Outcome::Busy(
                            u64::try_from(ttl_ms)
                                .map_or(LONGEST_SLEEP, |ms| Duration::from_millis(ms.saturating_add(1))),
                        ))
                    }
                }
            }
            Err(failed) => {
                if let Some(loose) = failed.loose {
                    let kept = self.loose.get_or_insert_default();
                    kept.haunted |= loose.haunted;
                    kept.open.extend(loose.open);
                }
                Err(failed.error)
            }
        }
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        let Waking::Pauses(pauses) = self.wish.kind.waking() else { return Some(busy.min(LONGEST_SLEEP)) };
        match (pauses.0)(self.tries) {
            // A wait without limit has no last try.
            None if self.wait == Wait::ForEver => Some(LONGEST_SLEEP),
            // There is no point in sleeping on when the holder's time is over.
            pause => pause.map(|pause| pause.min(busy)),
        }
    }

    fn arm(&mut self) -> Result<bool> {
        if matches!(self.wish.kind.waking(), Waking::Pauses(_)) {
            return Ok(false);
        }
        if let Some(subscription) = &self.subscription {
            // Fails where Redis does not let us listen: waiting would be blind for ever.
            subscription.is_live()?;
            return Ok(false);
        }
        let channel = self.wish.kind.channel(self.wish.name, &self.owner);
        // What is said to one waiter is no news to those who hold.
        let concerns = matches!(self.wish.kind.waking(), Waking::Message).then_some(self.wish.name);
        let subscription = self.node.hub.join(concerns, channel, self.bell)?;
        let live = subscription.is_live()?;
        self.subscription = Some(subscription);
        // Not live yet: the bell rings as soon as it is, and the loop asks then.
        Ok(live)
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        if self.hung.is_empty() {
            self.hung.push(self.engine.closing.hang(self.bell));
            if let Some(cancel) = self.wish.cancel {
                self.hung.push(cancel.hang(self.bell));
            }
        }
        // After hanging the bell, so that nothing falls between the look and the sleep.
        self.engine.check_caller(self.wish.cancel)?;
        self.bell.wait(until);
        self.engine.check_caller(self.wish.cancel)
    }
}

/// Where every answer comes too late, clearing away must be able to keep up.
const REST_AFTER_A_LATE_ANSWER: Duration = Duration::from_millis(10);

/// How long a wait that failed is kept to take itself out of Redis's queue.
const LONGEST_FAREWELL: Duration = Duration::from_millis(50);
