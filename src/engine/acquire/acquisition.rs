//! One acquisition: the request of a caller, its progress, and the cleanup after it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::local_queues::QueuePosition;
use super::waiters::{Listed, Waiter};
use crate::engine::Engine;
use crate::engine::caller::{Caller, closed};
use crate::engine::exactly_once;
use crate::engine::holds::hold::{Granted, HoldState};
use crate::engine::hub::Subscription;
use crate::engine::kind::{AcquireArgs, Queueing, Waking};
use crate::engine::node::Node;
use crate::engine::release::cleanup::Cleanup;
use crate::engine::request::{AcquireRequest, Grant, Wait};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::{LockAcquired, WaitGivenUp, WaitStarted};
use crate::listing::LockKind;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::script::{Attempt, Side};
use crate::state::exchange::{Bounds, InDoubt};
use crate::state::ledger::Ledger;
use crate::state::wait_loop::{Contest, LONGEST_SLEEP, Outcome, wait_loop};
use crate::time::{Deadline, Instant, Lease};

/// One acquisition by one caller.
pub(crate) struct Acquisition<'a> {
    engine: &'a Arc<Engine>,
    node: Arc<Node>,
    request: &'a AcquireRequest<'a>,
    thread: Option<ThreadId>,
    lease: Lease,
    started: Instant,
    wait: Wait,
    deadline: Deadline,
    owner: OwnerId,
    number: HoldNumber,
    caller: &'a Caller<'a>,
    position: Option<QueuePosition<'a>>,
    subscription: Option<Subscription>,
    /// The unanswered requests of the present owner.
    in_doubt: Option<InDoubt>,
    /// Whether a request of the present owner was sent.
    asked: bool,
    tries: u32,
    granted: bool,
    /// Set from the first sleep to the grant.
    listed: Option<Listed<'a>>,
    has_slept: bool,
}

impl<'a> Acquisition<'a> {
    pub(crate) fn new(
        engine: &'a Arc<Engine>,
        request: &'a AcquireRequest<'a>,
        thread: Option<ThreadId>,
        caller: &'a Caller<'a>,
        wait: Wait,
    ) -> Self {
        let (number, owner) = engine.draw_owner(&**request.kind, thread.as_ref());
        Self {
            engine,
            node: engine.node(request.name),
            request,
            thread,
            lease: engine.lease_of(request),
            started: Instant::now(),
            wait,
            deadline: wait.deadline(),
            owner,
            number,
            caller,
            position: None,
            subscription: None,
            in_doubt: None,
            asked: false,
            tries: 0,
            granted: false,
            listed: None,
            has_slept: false,
        }
    }

    /// Takes the lock. Cleans up if the lock could not be taken in time.
    pub(crate) fn run(mut self) -> Result<Option<Grant>> {
        let deadline = self.deadline;
        let outcome = if self.wait != Wait::Not {
            self.wait_in_line().and_then(|()| wait_loop(&mut self, deadline))
        } else {
            self.attempt().map(|outcome| match outcome {
                Outcome::Taken(grant) => Some(grant),
                Outcome::Busy(_) => None,
            })
        };
        if self.engine.was_forked_within() {
            // In the child the mutexes of the dropped fields may be locked for ever.
            std::mem::forget(self);
            return Err(closed());
        }
        let outcome = outcome.map_err(|error| error.about(self.request.name));
        self.leave(outcome.as_ref().err().map(Error::kind));
        if self.has_slept && !self.granted {
            self.tell_end_of_wait(outcome.as_ref().err());
        }
        outcome
    }

    /// Lists the thread as waiting, and tells the observer once.
    fn tell_wait(&mut self) {
        let engine = self.engine;
        let waiter = Waiter {
            name: self.request.name.clone(),
            kind: self.label(),
            owner: self.owner.clone(),
            number: self.thread.as_ref().map_or_else(|| ThreadId::current().number(), ThreadId::number),
            thread: thread::current(),
            since: self.started,
        };
        self.listed = Some(engine.waiters.list(self.number, waiter));
        if !std::mem::replace(&mut self.has_slept, true) {
            let (name, kind, owner) = (self.request.name, self.label(), &self.owner);
            engine.observe(|observer| {
                observer.waiting(&WaitStarted { name: name.to_string(), kind, owner: owner.to_string() });
            });
        }
    }

    fn tell_end_of_wait(&mut self, error: Option<&Error>) {
        self.listed = None;
        self.engine.observe(|observer| {
            observer.gave_up(&WaitGivenUp {
                name: self.request.name.to_string(),
                kind: self.label(),
                owner: self.owner.to_string(),
                waited: self.started.until(Instant::now()),
                error: error.cloned(),
            });
        });
    }

    fn label(&self) -> LockKind {
        self.request.kind.label(self.request.kind.side())
    }

    /// Waits until this thread is the first in the local queue, or until the time is up. Then the thread asks in any
    /// case, so that the answer comes from Redis.
    fn wait_in_line(&mut self) -> Result<()> {
        self.position =
            self.engine.local_queues.join(self.request.name, self.request.kind.queueing(), &self.caller.bell);
        while self.position.as_ref().is_some_and(|position| !position.is_first()) {
            let now = Instant::now();
            // During an outage the first thread gets no reply, so the other threads end their waits themselves.
            let limit = self.engine.config.outage_limit;
            let outage = self.node.mute_since().map(|since| since.max(self.started).after(limit));
            if self.deadline.passed(now) || outage.is_some_and(|outage| now >= outage) {
                break;
            }
            let longest = now.after(LONGEST_SLEEP);
            self.sleep(self.deadline.sooner(outage.map_or(longest, |outage| outage.min(longest))))?;
        }
        // If the channel is subscribed already, joining before the first request saves the second request.
        if matches!(self.request.kind.waking(), Waking::Message) {
            let (name, kind, owner) = (self.request.name, self.request.kind, &self.owner);
            self.subscription = self.node.hub.join_live(name, &|| kind.channel(name, owner), &self.caller.bell);
        }
        Ok(())
    }

    fn granted(&mut self, sent: Instant, unfenceable: bool, token: Option<u64>) -> Result<Outcome<Grant>> {
        let now = Instant::now();
        if now >= self.lease.good_until(sent) {
            return Ok(self.granted_too_late(unfenceable));
        }
        let promise = self.request.promise(self.lease, sent);
        let (ledger, guard) =
            Ledger::granted(self.engine.watchdog_lease, sent, self.lease, self.request.kind.side(), promise);
        if self.request.kind.stands_back() {
            self.engine.stand_backs.granted(self.request.name, now);
        }
        let hold = Arc::new(HoldState::new(Granted {
            name: self.request.name.clone(),
            kind: Arc::clone(self.request.kind),
            number: self.number,
            owner: self.owner.clone(),
            thread: self.thread.clone(),
            since: now,
            token,
            in_doubt: InDoubt {
                fenceable: vec![],
                unfenceable: unfenceable || self.in_doubt.take().is_some_and(|in_doubt| in_doubt.unfenceable),
            },
            ledger,
        }));
        self.exclude_older_holds(sent);
        let Some(dead) = self.engine.registry.add(Arc::clone(&hold)) else { return Err(self.granted_while_closing()) };
        self.granted = true;
        self.listed = None;
        for dead in dead {
            // The loss of this hold may not have been reported.
            self.engine.with_ledger(&dead, |ledger, now| ledger.look(now));
        }
        self.engine.schedule_if_observed(&hold);
        self.node.watchdog.granted(self.engine, &self.node.server, &self.node.hub, &hold);
        self.engine.observe(|observer| {
            observer.acquired(&LockAcquired {
                name: hold.name.to_string(),
                kind: hold.label(),
                owner: hold.owner.to_string(),
                waited: self.started.until(now),
            });
        });
        Ok(Outcome::Taken((hold, guard)))
    }

    /// `close()` has ended the other holds and waits for this call, so the grant is withdrawn.
    fn granted_while_closing(&mut self) -> Error {
        self.withdraw(self.engine.config.drop_timeout);
        closed()
    }

    /// A grant proves that older holds of this lock in this process are lost. Only holds registered before the
    /// request was sent are certain to be older.
    fn exclude_older_holds(&self, sent: Instant) {
        for older in self.engine.registry.under(self.request.name) {
            let excluded = self.request.kind.side() == Side::Exclusive
                || self.engine.with_ledger(&older, |ledger, _| ledger.counts().exclusive > 0);
            if excluded && older.since < sent {
                self.engine.lose(&older, Loss::Taken);
            }
        }
    }

    /// The reply took longer than the lease, so another owner may hold the lock by now. The grant is cleaned up, and
    /// the next request uses a new owner.
    fn granted_too_late(&mut self, unfenceable: bool) -> Outcome<Grant> {
        self.in_doubt.get_or_insert_default().unfenceable |= unfenceable;
        self.clear_away();
        (self.number, self.owner) = self.engine.draw_owner(&**self.request.kind, self.thread.as_ref());
        (self.subscription, self.asked, self.listed) = (None, false, None);
        Outcome::Busy(REST_AFTER_A_LATE_ANSWER)
    }

    /// Leaves the queue in Redis, so that no other waiter waits for this one. After a failed wait the caller is
    /// delayed only for a moment; a failed request is repeated in the background.
    fn leave(&mut self, failed: Option<ErrorKind>) {
        let queued = self.wait != Wait::Not && self.asked && self.request.kind.queueing() == Queueing::InRedis;
        if queued && !self.granted && self.in_doubt.is_none() {
            let command_timeout = self.engine.config.command_timeout;
            let limit = if failed.is_none() { command_timeout } else { command_timeout.min(LONGEST_FAREWELL) };
            self.withdraw(limit);
        }
    }

    /// Checks the owner of the lock, to count the threads of other processes that want it.
    fn look(&self, limit: Duration) {
        let now = Instant::now();
        self.node.asking_begins(now);
        let call = self.request.kind.holder(self.request.name);
        let bounds =
            Bounds { retry_until: now, repeat: false, fences: false, ..Bounds::within(Instant::now(), limit, limit) };
        let answer = exactly_once::send(&*self.engine.topology, &call, bounds, None);
        self.node.asking_ends(answer.as_ref().map_or_else(|failed| failed.error.is_final_refusal(), |_| true));
        let (stand_backs, now) = (&self.engine.stand_backs, Instant::now());
        match answer {
            Ok(answer) => {
                let ours = self.engine.owners.client();
                let owner = answer.value.map(|(owner, _)| owner).filter(|owner| !owner.starts_with(ours));
                stand_backs.looked(self.request.name, owner.as_deref(), now);
            }
            Err(_) => stand_backs.cannot_look(self.request.name, now),
        }
    }

    /// Removes this owner from Redis; after a failure the background tries again.
    fn withdraw(&mut self, limit: Duration) {
        let call = self.request.kind.withdraw(self.request.name, &self.owner);
        if exactly_once::send(&*self.engine.topology, &call, Bounds::within(Instant::now(), limit, limit), None)
            .is_err()
        {
            self.in_doubt.get_or_insert_default();
        }
    }

    /// Releases in the background what unanswered requests may have taken.
    fn clear_away(&mut self) {
        if let Some(in_doubt) = self.in_doubt.take() {
            self.engine.clean_up(Cleanup {
                name: self.request.name.clone(),
                kind: Arc::clone(self.request.kind),
                owner: self.owner.clone(),
                until: Instant::now().after(self.lease.duration()),
                in_doubt,
            });
        }
    }
}

impl Drop for Acquisition<'_> {
    /// Also after a panic in the back-off of the caller.
    fn drop(&mut self) {
        if !self.engine.is_forked() {
            self.clear_away();
        }
    }
}

impl Contest for Acquisition<'_> {
    type Grant = Grant;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn stand_back(&mut self, deadline: Deadline) -> Result<()> {
        while self.request.kind.stands_back() {
            let now = Instant::now();
            let Some(pause) = self.engine.stand_backs.pause(self.request.name, now).filter(|_| !deadline.passed(now))
            else {
                break;
            };
            // A connection that fell silent must not use up the wait for a lock that is free by then.
            let time = now.until(deadline.sooner(now.after(self.engine.config.command_timeout / PARTS_OF_A_LOOK)));
            if pause.looks && time >= SHORTEST_LOOK {
                self.look(time);
            } else {
                self.sleep(deadline.sooner(pause.until))?;
            }
        }
        Ok(())
    }

    fn attempt(&mut self) -> Result<Outcome<Grant>> {
        let now = Instant::now();
        let waits = self.wait != Wait::Not;
        self.asked = true;
        self.tries = self.tries.saturating_add(1);
        let args = AcquireArgs { name: self.request.name, owner: &self.owner, lease: self.lease, waits };
        let call = self.request.kind.acquire(&args);
        self.node.asking_begins(now);
        let bounds = self.engine.bounds(&self.node, self.started, self.deadline);
        let outcome = exactly_once::send(&*self.engine.topology, &call, bounds, Some(self.caller));
        self.node.asking_ends(outcome.as_ref().map_or_else(|failed| failed.error.is_final_refusal(), |_| true));
        match outcome {
            Ok(answer) => {
                self.engine.after_request(&self.node);
                match answer.value {
                    Attempt::Granted { token } => self.granted(answer.sent, answer.unfenceable, token),
                    Attempt::OtherKind => Err(Error::new(
                        ErrorKind::OtherKind,
                        format!(
                            "redis at {} has another kind of lock under this name; use one kind for one name",
                            self.node.server.label()
                        ),
                    )),
                    Attempt::Busy { ttl_ms } => {
                        if answer.unfenceable {
                            self.in_doubt.get_or_insert_default().unfenceable = true;
                        }
                        // One millisecond is added, because the key is gone only after its last millisecond.
                        Ok(Outcome::Busy(
                            u64::try_from(ttl_ms)
                                .map_or(LONGEST_SLEEP, |ms| Duration::from_millis(ms.saturating_add(1))),
                        ))
                    }
                }
            }
            Err(failed) => {
                if let Some(in_doubt) = failed.in_doubt {
                    self.in_doubt.get_or_insert_default().add(in_doubt);
                }
                Err(failed.error)
            }
        }
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        let pauses = match self.request.kind.waking() {
            Waking::Message => return Some(busy.min(LONGEST_SLEEP)),
            Waking::OwnMessage => return Some(busy.min(LONGEST_SLEEP_IN_A_QUEUE)),
            Waking::Pauses(pauses) => pauses,
        };
        match (pauses.0)(self.tries) {
            // A wait without limit has no last try.
            None if self.wait == Wait::ForEver => Some(LONGEST_SLEEP),
            // A sleep beyond the time to live of the holder is useless.
            pause => pause.map(|pause| pause.min(busy)),
        }
    }

    fn arm(&mut self) -> Result<bool> {
        if matches!(self.request.kind.waking(), Waking::Pauses(_)) {
            return Ok(false);
        }
        if let Some(subscription) = &self.subscription {
            // Fails where Redis refuses the subscription: such a wait could miss every release.
            subscription.is_live()?;
            return Ok(false);
        }
        let channel = self.request.kind.channel(self.request.name, &self.owner);
        // A message on a waiter's own channel says nothing about existing holds.
        let concerns = matches!(self.request.kind.waking(), Waking::Message).then_some(self.request.name);
        let subscription = self.node.hub.join(concerns, channel, &self.caller.bell)?;
        let live = subscription.is_live()?;
        self.subscription = Some(subscription);
        // The subscription is not confirmed: the bell rings with the confirmation, and the loop asks again.
        Ok(live)
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        if self.listed.is_none() {
            self.tell_wait();
        }
        self.caller.sleep(until)
    }
}

/// The rest after a late grant: the cleanup must keep up when every reply is late.
const REST_AFTER_A_LATE_ANSWER: Duration = Duration::from_millis(10);

/// With less time left, the owner of the lock is not worth a request.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
/// A look gets as much of `command_timeout` as one attempt gets at least.
const PARTS_OF_A_LOOK: u32 = 3;

/// The longest sleep far back in a queue in Redis, which returns the time of the next request.
const LONGEST_SLEEP_IN_A_QUEUE: Duration = Duration::from_secs(2);

/// The longest delay of a failed wait by its leaving the queue.
const LONGEST_FAREWELL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
