//! One acquisition: the request of a caller, its progress, and the cleanup after it.

mod confirmed;

use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::waiting::{WaitOn, Waiting};
use crate::engine::caller::{Caller, closed};
use crate::engine::cells::registry::Added;
use crate::engine::cells::successor::Handed;
use crate::engine::hold::{Extras, HoldState, Progress};
use crate::engine::parts::Bundle;
use crate::engine::request::{AcquireRequest, Grant, Wait};
use crate::engine::sender::exactly_once::Answer;
use crate::error::{Error, ErrorKind, Result};
use crate::kinds::{AcquireArgs, Queueing};
use crate::owner::{OwnerId, ThreadId};
use crate::script::{Attempt, Call};
use crate::state::exchange::{Bounds, Failed, InDoubt};
use crate::state::ledger::Ledger;
use crate::state::stand_back::{Chain, Turn};
use crate::state::wait_loop::{LONGEST_SLEEP, TakeOutcome};
use crate::time::Instant;

/// One acquisition by one caller.
pub(crate) struct Acquisition<'a> {
    pub(crate) request: &'a AcquireRequest<'a>,
    pub(crate) waiting: Waiting<'a>,
    /// The unanswered requests of the present owner, and what they took in vain.
    pub(crate) in_doubt: Option<InDoubt>,
    /// Whether a request of the present owner was sent.
    asked: bool,
    granted: bool,
    /// Whether a grant is told to the observer at once; otherwise the caller tells it.
    tells: bool,
}

impl<'a> Acquisition<'a> {
    pub(crate) fn new(
        request: &'a AcquireRequest<'a>,
        thread: Option<ThreadId>,
        caller: &'a Caller<'a>,
        wait: Wait,
    ) -> Self {
        Self {
            request,
            waiting: Waiting::for_lock(request, thread, caller, wait),
            in_doubt: None,
            asked: false,
            granted: false,
            tells: true,
        }
    }

    /// Makes the acquisition a part of a call, whose outages count from its beginning.
    pub(crate) fn part_of(mut self, began: Instant, wait: Wait) -> Self {
        self.waiting.call = (began, wait.deadline());
        self
    }

    /// Makes the acquisition that of a caller who holds other locks meanwhile.
    pub(crate) fn holding(mut self) -> Self {
        self.waiting.holds_others = true;
        self
    }

    /// Takes the lock. Cleans up if the lock could not be taken in time.
    pub(crate) fn run(mut self) -> Result<Option<Grant>> {
        let AcquireRequest { kind, lease, needs, group, .. } = *self.request;
        // One of several locks is in a group.
        let succeeds = self.waits() && kind.hands_on() && needs.is_none() && group.is_none();
        self.waiting.succeeds_with = succeeds.then_some(lease);
        let wait = self.waiting.wait;
        let outcome = wait.take(&mut WaitOn { host: &mut self, waiting: Self::waiting, ask: Self::attempt });
        let outcome = self.conclude(outcome);
        self.waiting.tell_end(&outcome);
        outcome
    }

    /// Takes the outcome of the one request that [`ask`](Self::ask) or a bundle built, of one of several locks. The
    /// caller tells the observer of a grant.
    pub(crate) fn hear(mut self, outcome: std::result::Result<Answer<Attempt>, Failed>) -> Result<TakeOutcome<Grant>> {
        self.tells = false;
        let outcome = self.answered(outcome);
        self.conclude(outcome)
    }

    /// Ends the acquisition, and cleans up what is left of it.
    fn conclude<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let outcome = outcome.map_err(|error| error.about_a(self.request.kind.noun(), self.request.name));
        self.leave_succession();
        self.leave(outcome.as_ref().err().map(Error::kind));
        if !self.granted {
            // An observer may use the lock.
            self.clear_away();
            self.waiting.gave_up(outcome.as_ref().err());
        }
        outcome
    }

    /// Builds the request of the next attempt, with its time limits. [`answered`](Self::answered) takes its outcome.
    pub(crate) fn ask(&mut self) -> (Call<Attempt>, Bounds) {
        let bounds = self.ask_in_bundle();
        (self.request.kind.acquire(&self.args()), bounds)
    }

    /// Begins an attempt whose request is built by the caller, from [`args`](Self::args).
    pub(crate) fn ask_in_bundle(&mut self) -> Bounds {
        self.asked = true;
        self.waiting.asks()
    }

    pub(crate) fn args(&self) -> AcquireArgs<'_> {
        let AcquireRequest { name, lease, .. } = *self.request;
        AcquireArgs { name, owner: self.owner(), lease, waits: self.waits() }
    }

    fn waiting(&mut self) -> &mut Waiting<'a> {
        &mut self.waiting
    }

    fn waits(&self) -> bool {
        self.waiting.wait != Wait::Not
    }

    /// Acquisitions with equal bundles can share a request.
    pub(crate) fn bundle(&self) -> Option<Bundle> {
        self.request.engine.bundle_of(&**self.request.kind, self.request.name)
    }

    fn owner(&self) -> &OwnerId {
        &self.waiting.asker.owner
    }

    /// Takes what a release has handed to this thread, or asks Redis once.
    fn attempt(&mut self) -> Result<TakeOutcome<Grant>> {
        if !self.waiting.may_go_on() {
            match self.waiting.leave_succession() {
                Some(Handed { in_doubt, granted: Some((sent, chain)) }) => {
                    return self.granted(sent, in_doubt.unfenceable, Some(chain), None, None);
                }
                Some(Handed { in_doubt, granted: None }) => self.is_in_doubt(in_doubt),
                // The release has no answer so far, and this thread is to ask. The release clears its owner away.
                None => {
                    let lease = self.waiting.succeeds_with;
                    self.begin_anew();
                    self.waiting.succeeds_with = lease;
                }
            }
        }
        let (call, bounds) = self.ask();
        let call = call.confirmed(self.confirmation(), Attempt::is_granted);
        let outcome = self.request.engine.sender.send(&call, bounds, Some(self.waiting.caller));
        self.answered(outcome)
    }

    /// Takes the outcome of the request that [`ask`](Self::ask) built.
    fn answered(&mut self, outcome: std::result::Result<Answer<Attempt>, Failed>) -> Result<TakeOutcome<Grant>> {
        let AcquireRequest { engine, name, needs, .. } = *self.request;
        let node = &self.waiting.node;
        node.asking_ends_with(outcome.as_ref().err().map(|failed| &failed.error));
        match outcome {
            Ok(answer) => {
                engine.sender.after_request(node);
                if answer.unfenceable && !answer.value.is_granted() {
                    self.is_in_doubt(InDoubt { unfenceable: true, ..InDoubt::default() });
                }
                match answer.value {
                    Attempt::Granted { token } => {
                        match engine.sender.judge(name, needs, answer.copies.as_ref(), "the lock was given back") {
                            Ok(missing) => self.granted(answer.sent, answer.unfenceable, None, token, missing),
                            Err(error) => Err(self.granted_in_one_place(&answer, error)),
                        }
                    }
                    Attempt::OtherKind => Err(engine.sender.other_kind(name)),
                    Attempt::Busy { ttl_ms } => {
                        // Nothing is left for the other threads.
                        self.waiting.position.iter().for_each(|position| position.answered(0));
                        // One millisecond is added, because the key is gone only after its last millisecond.
                        let free_in = u64::try_from(ttl_ms).map(|ms| Duration::from_millis(ms.saturating_add(1)));
                        Ok(TakeOutcome::Busy(free_in.unwrap_or(LONGEST_SLEEP)))
                    }
                }
            }
            Err(failed) => {
                failed.in_doubt.into_iter().for_each(|in_doubt| self.is_in_doubt(in_doubt));
                Err(failed.error)
            }
        }
    }

    /// Records unanswered requests. No release may hand the lock to this thread then: the two would be about one owner.
    fn is_in_doubt(&mut self, in_doubt: InDoubt) {
        self.in_doubt.get_or_insert_default().add(in_doubt);
        self.waiting.succeeds_with = None;
    }

    /// Leaves the line. What was handed to this thread meanwhile is cleared away with the acquisition.
    fn leave_succession(&mut self) {
        self.waiting.leave_queue();
        if let Some(handed) = self.waiting.leave_succession() {
            self.is_in_doubt(handed.in_doubt);
        }
    }

    fn granted(
        &mut self,
        sent: Instant,
        unfenceable: bool,
        chain: Option<Chain>,
        token: Option<u64>,
        missing: Option<Error>,
    ) -> Result<TakeOutcome<Grant>> {
        let AcquireRequest { engine, name, kind, lease, needs, group, .. } = *self.request;
        let now = Instant::now();
        if now >= lease.good_until(sent) {
            return Ok(self.granted_too_late(unfenceable));
        }
        let promise = self.request.promise(sent);
        let (mut ledger, guard) = Ledger::granted(engine.keeper.watchdog_lease, sent, lease, kind.side(), promise);
        if kind.stands_back() {
            engine.cells.stand_backs.with(name, Turn::granted);
        }
        // Taken in any case: what stays here is cleared away with the acquisition, and this owner holds the lock now.
        let earlier = self.in_doubt.take();
        let unfenceable = unfenceable || earlier.is_some_and(|in_doubt| in_doubt.unfenceable);
        let asker = &mut self.waiting.asker;
        let has_extras = group.is_some() || token.is_some();
        // A loss is not told before the grant.
        ledger.told = engine.config.observer.is_some();
        let hold = Arc::new(HoldState {
            name: name.clone(),
            kind: Arc::clone(kind),
            number: asker.number,
            owner: asker.owner.clone(),
            thread: asker.thread.take(),
            since: now,
            extras: has_extras.then(|| Box::new(Extras { group: group.cloned(), token })),
            progress: Progress::new(ledger, needs, chain, InDoubt { fenceable: vec![], unfenceable }),
        });
        let Some(Added { dead, has_others }) = engine.cells.registry.add(Arc::clone(&hold)) else {
            // `close()` has ended the other holds and waits for this call, so the grant is withdrawn.
            self.withdraw(engine.config.drop_timeout);
            return Err(closed());
        };
        self.granted = true;
        self.waiting.granted();
        engine.keeper.added(&hold, &dead);
        if self.tells {
            let Waiting { started, has_slept, .. } = self.waiting;
            if has_others {
                engine.exclude_older_holds(self.request, sent);
            }
            engine.tell_grant(self.request, missing, Some((&hold, started, has_slept)));
        }
        Ok(TakeOutcome::Taken((hold, guard)))
    }

    /// The reply took longer than the lease, so another owner may hold the lock by now. The grant is cleaned up, and
    /// the next request uses a new owner.
    fn granted_too_late(&mut self, unfenceable: bool) -> TakeOutcome<Grant> {
        self.in_doubt.get_or_insert_default().unfenceable |= unfenceable;
        self.clear_away();
        self.begin_anew();
        TakeOutcome::Busy(REST_AFTER_A_LATE_ANSWER)
    }

    /// Goes on with a new owner.
    fn begin_anew(&mut self) {
        let asker = &mut self.waiting.asker;
        (asker.number, asker.owner) = self.request.engine.draw_owner(&**self.request.kind, asker.thread.as_ref());
        self.waiting.begin_anew();
        self.asked = false;
    }

    /// Leaves the queue in Redis, so that no other waiter waits for this one. After a failed wait the caller is
    /// delayed only for a moment; a failed request is repeated in the background.
    fn leave(&mut self, failed: Option<ErrorKind>) {
        let queued = self.waits() && self.asked && self.request.kind.queueing() == Queueing::InRedis;
        if queued && !self.granted && self.in_doubt.is_none() {
            // The last answer may have come as late as it may, so what is left of the caller's bound is the limit.
            let (now, most) = (Instant::now(), self.request.engine.config.command_timeout);
            let end = self.waiting.deadline.sooner(now).after(most);
            let left = if failed.is_none() { now.until(end) } else { Duration::ZERO };
            self.withdraw(left.clamp(LONGEST_FAREWELL.min(most), most));
        }
    }

    /// Removes this owner from Redis; after a failure the background tries again.
    fn withdraw(&mut self, limit: Duration) {
        let call = self.request.kind.withdraw(self.request.name, self.owner());
        if self.request.engine.sender.send(&call, Bounds::within(Instant::now(), limit, limit), None).is_err() {
            self.in_doubt.get_or_insert_default();
        }
    }

    /// Releases in the background what unanswered requests may have taken.
    fn clear_away(&mut self) {
        if let Some(in_doubt) = self.in_doubt.take() {
            let AcquireRequest { engine, name, kind, lease, .. } = *self.request;
            let owner = Some((Arc::clone(kind), self.owner().clone()));
            engine.sender.clean_up(name.clone(), owner, in_doubt, Instant::now().after(lease.duration()));
        }
    }
}

impl Drop for Acquisition<'_> {
    /// Also after a panic in the back-off of the caller.
    fn drop(&mut self) {
        self.leave_succession();
        self.clear_away();
    }
}

/// The rest after a late grant: the cleanup must keep up when every reply is late.
const REST_AFTER_A_LATE_ANSWER: Duration = Duration::from_millis(10);

/// The longest delay of a failed wait by its leaving the queue.
const LONGEST_FAREWELL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
