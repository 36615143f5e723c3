//! The one wait loop: ask, arm, ask again, sleep; every kind goes through it.

use std::sync::Arc;
use std::time::Duration;

use super::bell::{Bell, Hung};
use super::hold::{Granted, HoldState};
use super::kind::Kind;
use super::ledger::{GuardNumber, Ledger, Promise};
use super::line::Place;
use super::node::Node;
use super::settle::Settlement;
use super::wake::Subscription;
use super::wire::{self, Bounds, Loose};
use super::{Cancel, Engine};
use crate::error::{Error, ErrorKind, Result};
use crate::event::LockAcquired;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::script::{Attempt, Kept};
use crate::time::{Deadline, Instant, Lease};

/// What a caller wants.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) kind: &'a Arc<dyn Kind>,
    /// `None` leaves the lease to the watchdog.
    pub(crate) lease: Option<Lease>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) cancel: Option<&'a Cancel>,
    /// The hold belongs to its guard, not to the calling thread.
    pub(crate) owned: bool,
}

/// A hold and the guard of it that the caller gets.
pub(crate) type Grant = (Arc<HoldState>, GuardNumber);

impl Engine {
    /// Takes or re-enters the lock; `None` when somebody else kept it until the deadline.
    pub(crate) fn acquire(self: &Arc<Self>, wish: &Wish<'_>, deadline: Deadline, wait: bool) -> Result<Option<Grant>> {
        self.check_caller(wish.cancel)?;
        let thread = (!wish.owned).then(ThreadId::current);
        if let Some(thread) = &thread
            && let Some(hold) = self.registry.find(wish.name, thread.number())
        {
            return self.reenter(wish, hold, deadline).map(Some);
        }
        let bell = Bell::new();
        let mut contender = Contender::new(self, wish, thread, &bell, deadline);
        let outcome = if wait {
            contender.wait_in_line().and_then(|()| contend(&mut contender, deadline))
        } else {
            contender.attempt_once()
        };
        contender.clear_away();
        outcome
    }

    fn reenter(self: &Arc<Self>, wish: &Wish<'_>, hold: Arc<HoldState>, deadline: Deadline) -> Result<Grant> {
        let count = self.with(&hold, |ledger, now| ledger.count_after_reentry(now)).map_err(Error::lost)?;
        let lease = self.lease_of(wish);
        let node = self.node(wish.name);
        let call = hold.kind.reenter(wish.name, &hold.owner, lease, count);
        let interrupted = || self.check_caller(wish.cancel).err();
        let bounds = Bounds { interrupted: &interrupted, ..self.bounds(&node, Instant::now(), deadline) };
        let answer = self.ask_about(&hold, &call, &bounds)?;
        if let Kept::Lost(loss) = answer.value {
            self.lose(&hold, loss);
            return Err(Error::lost(loss));
        }
        let promise = promise(wish, lease, answer.sent);
        let guard = self.with(&hold, |ledger, _| ledger.reentered(answer.sent, lease, promise));
        Ok((hold, guard))
    }

    /// Why this caller must not go on.
    fn check_caller(&self, cancel: Option<&Cancel>) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::new(ErrorKind::Cancelled, "the wait was cancelled; the lock is not held"));
        }
        Ok(())
    }

    fn lease_of(&self, wish: &Wish<'_>) -> Lease {
        wish.lease.unwrap_or(self.watchdog_lease)
    }

    /// How long a request of a call with this deadline may take.
    fn bounds<'a>(&self, node: &Node, started: Instant, deadline: Deadline) -> Bounds<'a> {
        let now = Instant::now();
        let since = node.last_answer().max(started);
        let (retry_until, end) = match deadline {
            Deadline::At(at) => (at, at.max(now).after(self.config.command_timeout)),
            // Not without end: a server that answers nobody for so long is an error, not a busy lock.
            Deadline::Never => (
                since.after(self.config.outage_limit),
                since.after(self.config.outage_limit).max(now.after(self.config.command_timeout)),
            ),
        };
        Bounds { retry_until, end, command_timeout: self.config.command_timeout, bell: None, interrupted: &|| None }
    }
}

/// What the wait loop needs from its surroundings; tests drive it with scripted replies.
trait Contest {
    type Prize;

    fn now(&self) -> Instant;

    /// Asks once.
    fn attempt(&mut self) -> Result<Outcome<Self::Prize>>;

    /// Makes sure that a release rings from now on. Answers whether one may have been missed.
    fn arm(&mut self) -> Result<bool>;

    /// Sleeps until rung or `until`; fails when the caller must not go on.
    fn sleep(&mut self, until: Instant) -> Result<()>;
}

enum Outcome<Prize> {
    Taken(Prize),
    /// Come back after this time at the latest.
    Busy(Duration),
}

/// The loop. The order matters: ask, arm, ask again, sleep. A message is a hint; only Redis's
/// answer counts.
fn contend<C: Contest>(contest: &mut C, deadline: Deadline) -> Result<Option<C::Prize>> {
    loop {
        let busy = match contest.attempt()? {
            Outcome::Taken(prize) => return Ok(Some(prize)),
            Outcome::Busy(busy) => busy,
        };
        // Looked at after asking: the last question comes when the time is up, not before.
        if deadline.passed(contest.now()) {
            return Ok(None);
        }
        if contest.arm()? {
            continue;
        }
        let retry = contest.now().after(busy.min(LONGEST_SLEEP));
        contest.sleep(deadline.sooner(retry))?;
    }
}

/// One caller on its way to one lock.
struct Contender<'a> {
    engine: &'a Arc<Engine>,
    node: Arc<Node>,
    wish: &'a Wish<'a>,
    thread: Option<ThreadId>,
    lease: Lease,
    started: Instant,
    deadline: Deadline,
    owner: OwnerId,
    number: HoldNumber,
    bell: &'a Bell,
    hung: Vec<Hung<'a>>,
    place: Option<Place<'a>>,
    subscription: Option<Subscription>,
    /// Requests of the present owner that were never answered.
    loose: Option<Loose>,
}

impl<'a> Contender<'a> {
    fn new(
        engine: &'a Arc<Engine>,
        wish: &'a Wish<'a>,
        thread: Option<ThreadId>,
        bell: &'a Bell,
        deadline: Deadline,
    ) -> Self {
        let (number, owner) = engine.draw_owner(thread.as_ref());
        Self {
            engine,
            node: engine.node(wish.name),
            wish,
            thread,
            lease: engine.lease_of(wish),
            started: Instant::now(),
            deadline,
            owner,
            number,
            bell,
            hung: vec![],
            place: None,
            subscription: None,
            loose: None,
        }
    }

    fn attempt_once(&mut self) -> Result<Option<Grant>> {
        Ok(match self.attempt()? {
            Outcome::Taken(grant) => Some(grant),
            Outcome::Busy(_) => None,
        })
    }

    /// Waits until this thread is the first of its process that wants the lock, or time is up:
    /// then it asks all the same, so that the answer is Redis's and not a guess.
    fn wait_in_line(&mut self) -> Result<()> {
        self.place = self.engine.lines.join(self.wish.name, self.wish.kind.queueing(), self.bell);
        while self.place.as_ref().is_some_and(|place| !place.is_first()) {
            let now = Instant::now();
            // Where the first one gets no answers, the others find that out for themselves.
            if self.deadline.passed(now)
                || now >= self.node.last_answer().max(self.started).after(self.engine.config.outage_limit)
            {
                break;
            }
            self.sleep(self.deadline.sooner(now.after(LONGEST_SLEEP)))?;
        }
        // Where the channel is listened to already, being there before the first question saves the second.
        let (name, kind) = (self.wish.name, self.wish.kind);
        self.subscription = self.node.hub.join_live(name, &|| kind.channel(name), self.bell);
        Ok(())
    }

    fn granted(&mut self, sent: Instant, haunted: bool) -> Outcome<Grant> {
        let now = Instant::now();
        if now >= self.lease.good_until(sent) {
            return self.granted_too_late();
        }
        let promise = promise(self.wish, self.lease, sent);
        let (ledger, guard) = Ledger::granted(self.engine.watchdog_lease, sent, self.lease, promise);
        let hold = Arc::new(HoldState::new(Granted {
            name: self.wish.name.clone(),
            kind: Arc::clone(self.wish.kind),
            number: self.number,
            owner: self.owner.clone(),
            thread: self.thread.clone(),
            since: now,
            loose: Loose { open: vec![], haunted: haunted || self.loose.take().is_some_and(|loose| loose.haunted) },
            ledger,
        }));
        self.engine.registry.add(Arc::clone(&hold));
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
        Outcome::Taken((hold, guard))
    }

    /// The answer took longer than the lease: somebody else may have it by now. Whatever is left of
    /// the grant is cleared away, and the next question is a new owner's.
    fn granted_too_late(&mut self) -> Outcome<Grant> {
        self.loose.get_or_insert_default();
        self.clear_away();
        (self.number, self.owner) = self.engine.draw_owner(self.thread.as_ref());
        Outcome::Busy(Duration::ZERO)
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
        let call = self.wish.kind.acquire(self.wish.name, &self.owner, self.lease);
        let interrupted = || self.engine.check_caller(self.wish.cancel).err();
        let bounds = Bounds {
            bell: Some(self.bell),
            interrupted: &interrupted,
            ..self.engine.bounds(&self.node, self.started, self.deadline)
        };
        match wire::send(&self.node.server, &call, &bounds) {
            Ok(answer) => {
                self.node.has_answered();
                self.engine.after_request(&self.node);
                match answer.value {
                    Attempt::Granted => Ok(self.granted(answer.sent, answer.haunted)),
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

    fn arm(&mut self) -> Result<bool> {
        if let Some(subscription) = &self.subscription {
            // Fails where Redis does not let us listen: waiting would be blind for ever.
            subscription.is_live()?;
            return Ok(false);
        }
        let channel = self.wish.kind.channel(self.wish.name);
        let subscription = self.node.hub.join(self.wish.name, channel, self.bell)?;
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

fn promise(wish: &Wish<'_>, lease: Lease, sent: Instant) -> Promise {
    match wish.lease {
        Some(_) => Promise::Leased { until: sent.after(lease.duration()) },
        None => Promise::Renewed { until: wish.max_hold.map(|most| sent.after(most)) },
    }
}

/// Whatever was lost, a waiter asks again after this time.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    enum Did {
        Ask,
        Arm,
        Sleep(u64),
    }

    /// Answers each question by the script; sleeping moves the clock.
    struct Scripted {
        now: Instant,
        answers: std::vec::IntoIter<Option<u64>>,
        armed_live: bool,
        armed: bool,
        did: Vec<Did>,
    }

    impl Contest for Scripted {
        type Prize = ();

        fn now(&self) -> Instant {
            self.now
        }

        fn attempt(&mut self) -> Result<Outcome<()>> {
            self.did.push(Did::Ask);
            Ok(match self.answers.next().expect("the script has an answer") {
                None => Outcome::Taken(()),
                Some(ms) => Outcome::Busy(Duration::from_millis(ms)),
            })
        }

        fn arm(&mut self) -> Result<bool> {
            if std::mem::replace(&mut self.armed, true) {
                return Ok(false);
            }
            self.did.push(Did::Arm);
            Ok(self.armed_live)
        }

        fn sleep(&mut self, until: Instant) -> Result<()> {
            let slept = self.now.until(until);
            self.now = until;
            self.did.push(Did::Sleep(u64::try_from(slept.as_millis()).unwrap()));
            Ok(())
        }
    }

    fn run(answers: &[Option<u64>], armed_live: bool, wait: Option<u64>) -> (Option<()>, Vec<Did>) {
        let now = Instant::from_millis(1_000_000);
        let answers = answers.to_vec().into_iter();
        let mut scripted = Scripted { now, answers, armed_live, armed: false, did: vec![] };
        let deadline = wait.map_or(Deadline::Never, |ms| Deadline::At(now.after(Duration::from_millis(ms))));
        let got = contend(&mut scripted, deadline).unwrap();
        (got, scripted.did)
    }

    use Did::{Arm, Ask, Sleep};

    #[test]
    fn a_free_lock_costs_one_question() {
        assert_eq!(run(&[None], false, None), (Some(()), vec![Ask]));
    }

    #[test]
    fn a_waiter_asks_again_after_arming() {
        let (got, did) = run(&[Some(900), None], true, None);
        assert_eq!((got, did), (Some(()), vec![Ask, Arm, Ask]));
        let (_, did) = run(&[Some(900), None], false, None);
        assert_eq!(did, [Ask, Arm, Sleep(900), Ask], "not live yet: the bell or the time wakes it");
    }

    #[test]
    fn no_sleep_is_longer_than_a_second_or_the_time_to_live_or_the_deadline() {
        let (got, did) = run(&[Some(30_000), Some(300), Some(30_000), Some(30_000)], false, Some(1_800));
        assert_eq!(got, None);
        assert_eq!(did, [Ask, Arm, Sleep(1_000), Ask, Sleep(300), Ask, Sleep(500), Ask]);
    }

    #[test]
    fn the_last_question_comes_when_the_time_is_up() {
        let (got, did) = run(&[Some(30_000), None], false, Some(50));
        assert_eq!((got, did), (Some(()), vec![Ask, Arm, Sleep(50), Ask]));
    }

    #[test]
    fn no_wait_means_one_question() {
        assert_eq!(run(&[Some(30_000)], false, Some(0)), (None, vec![Ask]));
    }
}
