//! One thread that waits: its place in the local queue, its subscription, its entry in the list of waiters.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::engine::acquire::stand_back::stand_back;
use crate::engine::caller::Caller;
use crate::engine::cells::Ahead;
use crate::engine::cells::hub::Subscription;
use crate::engine::cells::queues::Position;
use crate::engine::cells::successor::{Handed, Successor};
use crate::engine::cells::waiters::Listed;
use crate::engine::parts::Engine;
use crate::engine::request::{AcquireRequest, Wait};
use crate::engine::sender::node::Node;
use crate::error::{Error, Result};
use crate::event::{Observer, TakeEnded, WaitGivenUp, WaitLasts, WaitStarted};
use crate::kinds::{Backoff, Kind, Queueing};
use crate::listing::{InEvents, LockKind, LockWaiter};
use crate::name::{Joined, LockName};
use crate::owner::{HoldNumber, OwnerId, ThreadId};
use crate::state::channels::Subject;
use crate::state::exchange::Bounds;
use crate::state::stand_back::Turn;
use crate::state::wait_loop::{LONGEST_SLEEP, TakeOutcome, WaitLoop};
use crate::time::{Deadline, Instant, Lease};

/// A thread that waits for a name. What the thread asks for is a matter of its owner.
pub(crate) struct Waiting<'a> {
    engine: &'a Engine,
    pub(crate) node: &'a Arc<Node>,
    name: &'a LockName,
    /// The kind of the lock; `None` for permits of a semaphore, and for a query.
    lock: Option<&'a dyn Kind>,
    /// What the thread waits for, as lists and events show it; `None` for a query, which they do not show.
    pub(crate) label: Option<LockKind>,
    pub(crate) queueing: Queueing,
    /// Where no lock has a channel of its own.
    channel: fn(&LockName) -> Joined<'_>,
    group: Option<&'a Arc<str>>,
    pub(crate) asker: Asker,
    pub(crate) caller: &'a Caller<'a>,
    pub(crate) started: Instant,
    pub(crate) wait: Wait,
    pub(crate) deadline: Deadline,
    /// The number of requests so far.
    tries: u32,
    /// The tries for one of the threads that it asks for, in parts of a try.
    parts: u64,
    /// Whether the caller holds other locks meanwhile, so that it must not stand back.
    pub(crate) holds_others: bool,
    /// Held by the thread that asks ahead of the queues, until a wait is certain.
    ahead: Option<Ahead<'a>>,
    /// The beginning and the deadline of the call, of which this wait may be a part.
    pub(crate) call: (Instant, Deadline),
    /// The place among the threads that want the lock, of which the first asks, or among those that want a part of a
    /// count.
    pub(crate) position: Option<Position<'a>>,
    subscription: Option<Subscription>,
    /// The lease of the hold that a release of this process may hand to the thread while it sleeps in line.
    pub(crate) succeeds_with: Option<Lease>,
    /// Made at the first such sleep.
    successor: Option<Arc<Successor>>,
    /// Set from the first sleep to the end of the wait.
    listed: Option<Arc<Listed>>,
    pub(crate) has_slept: bool,
    /// Whether the observer knows that the wait lasts.
    lasts: bool,
    /// The next time to check that the server is no replica by now.
    role_due: Instant,
}

/// The owner for which a thread waits.
pub(crate) struct Asker {
    pub(crate) number: HoldNumber,
    pub(crate) owner: OwnerId,
    /// `None` for an owned hold, which belongs to no thread.
    pub(crate) thread: Option<ThreadId>,
}

impl<'a> Waiting<'a> {
    /// The wait of a caller for a reply.
    pub(crate) fn new(
        engine: &'a Engine,
        name: &'a LockName,
        asker: Asker,
        channel: fn(&LockName) -> Joined<'_>,
        caller: &'a Caller<'a>,
        wait: Wait,
    ) -> Self {
        let (started, deadline) = (Instant::now(), wait.deadline());
        Self {
            engine,
            node: engine.sender.node(name),
            name,
            lock: None,
            label: None,
            queueing: Queueing::Together,
            channel,
            group: None,
            asker,
            caller,
            started,
            wait,
            deadline,
            tries: 0,
            parts: 0,
            holds_others: false,
            ahead: None,
            call: (started, deadline),
            position: None,
            subscription: None,
            succeeds_with: None,
            successor: None,
            listed: None,
            has_slept: false,
            lasts: false,
            role_due: started.after(engine.config.watchdog_timeout),
        }
    }

    /// The wait of a caller for a lock.
    pub(crate) fn for_lock(
        request: &AcquireRequest<'a>,
        thread: Option<ThreadId>,
        caller: &'a Caller<'a>,
        wait: Wait,
    ) -> Self {
        let AcquireRequest { engine, name, kind, group, .. } = *request;
        let (number, owner) = engine.draw_owner(&**kind, thread.as_ref());
        let asker = Asker { number, owner, thread };
        let (label, queueing) = (Some(kind.label(kind.side())), kind.queueing());
        Self {
            lock: Some(&**kind),
            label,
            queueing,
            group,
            ..Self::new(engine, name, asker, LockName::channel, caller, wait)
        }
    }

    /// Whether the thread asks ahead of the queues, as nobody waits. The thread joins a queue as soon as a wait is
    /// certain.
    fn is_ahead(&mut self) -> bool {
        self.ahead = self.engine.cells.ahead(&self.node.server);
        self.ahead.is_some()
    }

    /// Joins the queue of the threads of this process, for a kind that has one.
    fn join_queue(&mut self) {
        let queue = match self.queueing {
            Queueing::Line => Some((&self.engine.cells.local_queues, 1)),
            Queueing::Counted(wish) => Some((&self.engine.cells.counted_queues, wish)),
            Queueing::Together | Queueing::InRedis => None,
        };
        if let (Some((queue, wish)), None) = (queue, &self.position) {
            self.position = Some(queue.join(self.name.clone(), wish, self.caller.bell(), self.ahead.is_some()));
        }
        // Until here nobody else could ask ahead, and nobody was in a queue when this thread began to.
        self.ahead = None;
    }

    /// Leaves the queue, so that the next thread need not wait for an observer.
    pub(crate) fn leave_queue(&mut self) {
        (self.ahead, self.position) = (None, None);
    }

    /// Waits while other threads of this process, and other processes, have their turn.
    fn stand_back(&mut self) -> Result<()> {
        // One thread asks for all that poll, each of which has a number of tries.
        if self.pauses().is_some() || !self.is_ahead() {
            self.join_queue();
            self.wait_in_line()?;
            if !self.may_go_on() {
                return Ok(());
            }
            if self.tries == 0 {
                self.join_live();
            }
        }
        // A query takes nothing from other processes.
        if self.holds_others || self.label.is_none() {
            return Ok(());
        }
        let (wanted, deadline) = ((self.engine, self.name, self.lock), self.deadline);
        stand_back(std::iter::once(wanted), deadline, |until| self.sleep(until))
    }

    /// Waits until this thread may ask, until a release has chosen it, which it may do before another thread comes in
    /// front, or until the time is up. Then the thread asks in any case, so that the answer comes from Redis.
    fn wait_in_line(&mut self) -> Result<()> {
        while self.may_go_on() && !self.position.as_ref().is_none_or(Position::may_ask) {
            let Some(until) = self.turn_comes() else { break };
            // The channel stays subscribed while threads wait, whatever the first of them does.
            if self.wants_count() || self.lock.is_some_and(Kind::hands_on) {
                self.arm()?;
            }
            self.sleep_in_line(until)?;
        }
        Ok(())
    }

    /// Sleeps in line: a release of this process can hand the lock to this thread.
    fn sleep_in_line(&mut self, until: Instant) -> Result<()> {
        // An observer is told before the thread counts as asleep.
        if !self.may_go_on() {
            return Ok(());
        }
        self.tell_wait();
        if let (Some(line), Some(lease)) = (&self.position, self.succeeds_with) {
            let successor = self.successor.get_or_insert_with(|| {
                let (owner, bell) = (self.asker.owner.clone(), self.caller.bell().clone());
                let successor = Arc::new(Successor::new(owner, lease, bell));
                line.succeeds_as(&successor);
                successor
            });
            successor.falls_asleep();
        }
        self.caller.sleep(until)
    }

    /// Whether the thread may ask or stand back; otherwise a release of this process has chosen it.
    pub(crate) fn may_go_on(&self) -> bool {
        self.successor.as_ref().is_none_or(|successor| successor.wakes())
    }

    /// Ends the part of this owner in the line. Returns what was handed to it.
    pub(crate) fn leave_succession(&mut self) -> Option<Handed> {
        self.successor.take()?.leaves()
    }

    /// Begins a question. Returns its time limits.
    pub(crate) fn asks(&mut self) -> Bounds {
        self.tries = self.tries.saturating_add(1);
        if let Some(position) = &mut self.position {
            position.asks();
        }
        let now = Instant::now();
        let mute_since = self.node.asking_begins(now);
        let (began, deadline) = self.call;
        let bounds = |deadline| self.engine.sender.bounds(mute_since, began, now, deadline);
        let (own, all) = (bounds(self.deadline), bounds(deadline));
        Bounds { retry_until: own.retry_until.min(all.retry_until), end: own.end.min(all.end), ..own }
    }

    /// The longest sleep of a thread that another thread asks for; `None` when this thread must ask itself.
    fn turn_comes(&mut self) -> Option<Instant> {
        self.follow();
        self.engine.cells.stand_backs.with(self.name, Turn::wanted);
        let now = Instant::now();
        // During an outage the first thread gets no reply, so the other threads end their waits themselves.
        let outage = self.engine.sender.outage_ends(self.node, self.call.0);
        if self.deadline.passed(now) || outage.is_some_and(|outage| now >= outage) {
            return None;
        }
        let longest = now.after(LONGEST_SLEEP);
        Some(self.deadline.sooner(outage.map_or(longest, |outage| outage.min(longest))))
    }

    /// Whether messages are heard, so that no later message can be missed.
    pub(crate) fn is_heard(&self) -> bool {
        self.subscription.as_ref().is_some_and(|subscription| subscription.is_live().unwrap_or(false))
    }

    /// Joins a channel that is subscribed already: joining before the first request saves the second request. A channel
    /// that is a waiter's own is not.
    fn join_live(&mut self) {
        let is_shared = self.pauses().is_none() && self.queueing != Queueing::InRedis;
        let hub = self.engine.cells.hub(&self.node.server);
        if is_shared && !self.wants_count() && self.subscription.is_none() && !hub.is_quiet() {
            self.subscription = hub.join_live(&self.subject(), self.channel(), self.caller.bell());
        }
    }

    fn channel(&self) -> String {
        let of_lock = |kind: &dyn Kind| kind.channel(self.name, &self.asker.owner);
        self.lock.map_or_else(|| (self.channel)(self.name), of_lock).text()
    }

    fn pauses(&self) -> Option<Backoff> {
        self.lock?.pauses()
    }

    fn subject(&self) -> Subject {
        let name = self.name.clone();
        match self.queueing {
            Queueing::Counted(_) => Subject::Count(name),
            // A message on a waiter's own channel, or on that of a query, says nothing about existing holds.
            Queueing::InRedis => Subject::Other,
            Queueing::Together if self.lock.is_none() => Subject::Other,
            // A waiter of a red lock is in no line.
            Queueing::Line if self.lock.is_some_and(Kind::hands_on) && self.position.is_some() => Subject::Queue(name),
            Queueing::Line | Queueing::Together => Subject::Lock(name),
        }
    }

    /// Whether the thread is in the queue of those that want a part of a count.
    fn wants_count(&self) -> bool {
        self.position.is_some() && matches!(self.queueing, Queueing::Counted(_))
    }

    /// Subscribes to the channel, if there is one. Returns whether a message could be missed before, so that the thread
    /// must ask again.
    pub(crate) fn arm(&mut self) -> Result<bool> {
        if self.pauses().is_some() {
            return Ok(false);
        }
        self.follow();
        let (hub, mut subscription) = (self.engine.cells.hub(&self.node.server), self.subscription.take());
        let outcome = hub.arm(&mut subscription, &self.subject(), || self.channel(), self.caller.bell());
        self.subscription = subscription;
        outcome
    }

    /// Turns to the server that has the lock now.
    fn follow(&mut self) {
        self.node = self.engine.sender.node(self.name);
    }

    /// Leaves channel and list, because the next request has another owner.
    pub(crate) fn begin_anew(&mut self) {
        (self.subscription, self.listed, self.succeeds_with) = (None, None, None);
    }

    /// Sleeps until the bell rings or `until`.
    pub(crate) fn sleep(&mut self, until: Instant) -> Result<()> {
        self.tell_wait();
        self.caller.sleep(until)
    }

    /// Lists the thread as waiting, and tells the observer once that it waits, and once that the wait lasts. Checks
    /// during a wait that lasts that the server is no replica by now.
    fn tell_wait(&mut self) {
        let now = Instant::now();
        // Others ask by requests that write, or wait no longer than a lease.
        if self.role_due <= now && self.position.as_ref().map_or(self.label.is_none(), Position::may_ask) {
            self.role_due = now.after(self.engine.config.watchdog_timeout);
            let limit = now.after(self.engine.config.command_timeout / PARTS_OF_A_CHECK);
            if self.deadline.sooner(limit) == limit && self.caller.check().is_ok() {
                self.node.server.check_role(limit);
            }
        }
        let Some(kind) = self.label else { return };
        let Asker { owner, thread, .. } = &self.asker;
        let waited = self.started.until(now);
        let lasts = waited >= self.engine.config.watchdog_timeout;
        if self.listed.is_none() {
            let waiter = LockWaiter {
                name: self.name.to_string(),
                owner: owner.to_string(),
                kind,
                thread: thread.as_ref().map_or_else(|| ThreadId::current().number(), ThreadId::number).0,
                thread_name: thread::current().name().map(str::to_owned),
                waited,
            };
            self.listed = Some(self.engine.cells.waiters.list(self.started, waiter));
        }
        let config = &self.engine.config;
        if !std::mem::replace(&mut self.has_slept, true) {
            config.observe(Observer::waiting, || WaitStarted::of(self.in_events(kind)));
        }
        if lasts && !std::mem::replace(&mut self.lasts, true) {
            config.observe(Observer::still_waiting, || WaitLasts::of(self.in_events(kind), waited));
        }
    }

    pub(crate) fn in_events(&self, kind: LockKind) -> InEvents {
        (self.name.to_string(), kind, self.group.map(ToString::to_string), self.asker.owner.to_string())
    }

    /// Ends the wait with a grant.
    pub(crate) fn granted(&mut self) {
        self.listed = None;
        // The release of this hold wakes the next in line, or hands the lock on. The next in line asks by itself if the
        // hold may end sooner.
        let lasts = self.succeeds_with.is_some_and(|lease| lease.duration() >= LONGEST_SLEEP);
        if lasts
            && self.is_heard()
            && let Some(line) = self.position.as_mut().filter(|line| line.next_is_successor())
        {
            line.granted(0, true);
        }
        self.leave_queue();
    }

    /// Ends the wait without a grant, and tells the observer of a thread that has slept.
    pub(crate) fn gave_up(&mut self, error: Option<&Error>) {
        self.leave_queue();
        if self.group.is_none() {
            self.engine.cells.stand_backs.with(self.name, Turn::gave_up);
        }
        let Some(kind) = self.label.filter(|_| self.has_slept) else { return };
        self.listed = None;
        let event = || WaitGivenUp::of(self.in_events(kind), self.started.until(Instant::now()), error.cloned());
        self.engine.config.observe(Observer::gave_up, event);
    }

    /// Tells the observer of the end of the call, if the call is about this lock alone.
    pub(crate) fn tell_end<Grant>(&self, outcome: &Result<Option<Grant>>) {
        let Some(kind) = self.label.filter(|_| self.group.is_none()) else { return };
        let event = || TakeEnded::of(self.in_events(kind), self.started.until(Instant::now()), outcome);
        self.engine.config.observe(Observer::take_ended, event);
    }
}

/// A caller that waits.
pub(crate) struct WaitOn<'h, 'a, Host, Ask> {
    pub(crate) host: &'h mut Host,
    pub(crate) waiting: fn(&mut Host) -> &mut Waiting<'a>,
    /// Asks Redis once.
    pub(crate) ask: Ask,
}

impl<'a, Host, Grant, Ask> WaitLoop for WaitOn<'_, 'a, Host, Ask>
where
    Ask: FnMut(&mut Host) -> Result<TakeOutcome<Grant>>,
{
    type Grant = Grant;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn stand_back(&mut self) -> Result<()> {
        (self.waiting)(self.host).stand_back()
    }

    fn attempt(&mut self) -> Result<TakeOutcome<Grant>> {
        (self.ask)(self.host)
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        let waiting = (self.waiting)(self.host);
        let Some(Backoff(pauses)) = waiting.pauses() else {
            let in_redis = waiting.queueing == Queueing::InRedis;
            return Some(busy.min(if in_redis { LONGEST_SLEEP_IN_A_QUEUE } else { LONGEST_SLEEP }));
        };
        // This thread asks for all threads in its line, as often as they would.
        let threads = waiting.position.as_ref().map_or(1, Position::threads);
        let threads = u32::try_from(threads).unwrap_or(u32::MAX).clamp(1, MOST_ASKED_FOR);
        // Threads come and go, so each try counts for as many threads as there were then.
        waiting.parts = waiting.parts.saturating_add(PARTS_OF_A_TRY / u64::from(threads));
        match pauses(u32::try_from(waiting.parts.div_ceil(PARTS_OF_A_TRY)).unwrap_or(u32::MAX)) {
            // A wait without limit has no last try.
            None if waiting.wait == Wait::FOR_EVER => Some(LONGEST_SLEEP),
            // A sleep beyond the time to live of the holder is useless.
            pause => pause.map(|pause| (pause / threads).min(busy)),
        }
    }

    fn arm(&mut self) -> Result<bool> {
        let waiting = (self.waiting)(self.host);
        waiting.join_queue();
        waiting.arm()
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        (self.waiting)(self.host).sleep_in_line(until)
    }
}

/// The caller may cancel the wait meanwhile.
const PARTS_OF_A_CHECK: u32 = 3;

/// A line of ten thousand threads must not ask as fast as Redis answers.
const MOST_ASKED_FOR: u32 = 16;

/// A try is made for 1 to 16 threads: the least number that each of these divides.
const PARTS_OF_A_TRY: u64 = 720_720;

/// The longest sleep far back in a queue in Redis, which returns the time of the next request.
const LONGEST_SLEEP_IN_A_QUEUE: Duration = Duration::from_secs(2);
