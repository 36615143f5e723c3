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
use crate::engine::cells::waiters::{Listed, Waiter};
use crate::engine::parts::Engine;
use crate::engine::request::AcquireRequest;
use crate::engine::sender::node::Node;
use crate::error::{Error, Result};
use crate::event::{TakeEnded, WaitGivenUp, WaitLasts, WaitStarted};
use crate::kinds::{Kind, Queueing};
use crate::listing::{InEvents, LockKind};
use crate::name::LockName;
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
    /// What the thread waits for, as lists and events show it; `None` for a query, which they do not show.
    kind: Option<LockKind>,
    group: Option<&'a Arc<str>>,
    pub(crate) asker: Asker,
    caller: &'a Caller<'a>,
    pub(crate) started: Instant,
    pub(crate) deadline: Deadline,
    queueing: Queueing,
    /// Held by the thread that asks ahead of the queues, until a wait is certain.
    ahead: Option<Ahead<'a>>,
    /// The beginning and the deadline of the call, of which this wait may be a part.
    pub(crate) call: (Instant, Deadline),
    /// The place among the threads that want the lock, of which the first asks, or among those that want a part of a
    /// count.
    pub(crate) position: Option<Position<'a>>,
    subscription: Option<Subscription>,
    /// Whether the line decides whom a message wakes.
    line_wakes: bool,
    /// The lease of the hold that a release of this process may hand to the thread while it sleeps in line.
    pub(crate) succeeds_with: Option<Lease>,
    /// Made at the first such sleep.
    successor: Option<Arc<Successor>>,
    /// Set from the first sleep to the end of the wait.
    listed: Option<Listed<'a>>,
    pub(crate) has_slept: bool,
    /// Whether the observer knows that the wait lasts.
    lasts: bool,
}

/// The owner for which a thread waits.
pub(crate) struct Asker {
    pub(crate) number: HoldNumber,
    pub(crate) owner: OwnerId,
    /// `None` for an owned hold, which belongs to no thread.
    pub(crate) thread: Option<ThreadId>,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        (name, kind): (&'a LockName, Option<LockKind>),
        asker: Asker,
        caller: &'a Caller<'a>,
        deadline: Deadline,
        queueing: Queueing,
    ) -> Self {
        let started = Instant::now();
        Self {
            engine,
            node: engine.sender.node(name),
            name,
            kind,
            group: None,
            asker,
            caller,
            started,
            deadline,
            queueing,
            ahead: None,
            call: (started, deadline),
            position: None,
            subscription: None,
            line_wakes: false,
            succeeds_with: None,
            successor: None,
            listed: None,
            has_slept: false,
            lasts: false,
        }
    }

    /// The wait of a caller for a lock.
    pub(crate) fn for_lock(
        request: &AcquireRequest<'a>,
        thread: Option<ThreadId>,
        caller: &'a Caller<'a>,
        deadline: Deadline,
    ) -> Self {
        let AcquireRequest { engine, name, kind, group, .. } = *request;
        let (number, owner) = engine.draw_owner(&**kind, thread.as_ref());
        let asker = Asker { number, owner, thread };
        let named = (name, Some(kind.label(kind.side())));
        let mut waiting = Self::new(engine, named, asker, caller, deadline, kind.queueing());
        (waiting.group, waiting.line_wakes) = (group, kind.hands_on());
        waiting
    }

    /// Whether the thread asks ahead of the queues, as nobody waits. The thread joins a queue as soon as a wait is
    /// certain.
    pub(crate) fn is_ahead(&mut self) -> bool {
        self.ahead = self.engine.cells.ahead(&self.node.server);
        self.ahead.is_some()
    }

    /// Joins the queue of the threads of this process, for a kind that has one.
    pub(crate) fn join_queue(&mut self) {
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

    /// Waits while other processes have their turn. A semaphore has no `kind`.
    pub(crate) fn stand_back(&mut self, kind: Option<&dyn Kind>) -> Result<()> {
        let (wanted, deadline) = ((self.engine, self.name, kind), self.deadline);
        stand_back(std::iter::once(wanted), deadline, |until| self.sleep(until))
    }

    /// Waits until this thread may ask, until a release has chosen it, which it may do before another thread comes in
    /// front, or until the time is up. Then the thread asks in any case, so that the answer comes from Redis.
    pub(crate) fn wait_in_line(&mut self) -> Result<()> {
        while self.may_go_on() && !self.position.as_ref().is_none_or(Position::may_ask) {
            let Some(until) = self.turn_comes() else { break };
            // The channel stays subscribed while threads wait, whatever the first of them does.
            if self.wants_count() || self.line_wakes {
                self.arm(true, |_| self.name.channel().text())?;
            }
            self.sleep_in_line(until)?;
        }
        Ok(())
    }

    /// Sleeps in line: a release of this process can hand the lock to this thread.
    pub(crate) fn sleep_in_line(&mut self, until: Instant) -> Result<()> {
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

    /// Whether a release can have chosen this owner.
    pub(crate) fn is_in_succession(&self) -> bool {
        self.successor.is_some()
    }

    /// Ends the part of this owner in the line. Returns what was handed to it.
    pub(crate) fn leave_succession(&mut self) -> Option<Handed> {
        self.successor.take()?.leaves()
    }

    /// The number of threads in the local queue of this thread, with itself.
    pub(crate) fn threads_in_line(&self) -> usize {
        self.position.as_ref().map_or(1, Position::threads)
    }

    /// Begins a question. Returns its time limits.
    pub(crate) fn asks(&mut self) -> Bounds {
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

    /// Takes the answer "busy", which leaves nothing for the other threads.
    pub(crate) fn heard_busy(&self) {
        self.position.iter().for_each(|position| position.answered(0));
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

    /// Whether the thread has joined a channel, or joins that of a count.
    pub(crate) fn has_joined(&self) -> bool {
        self.wants_count() || self.subscription.is_some()
    }

    /// Joins a channel that is subscribed already: joining before the first request saves the second request.
    pub(crate) fn join_live(&mut self, channel: impl FnOnce(&OwnerId) -> String) {
        let (hub, bell) = (self.engine.cells.hub(&self.node.server), || self.caller.bell().clone());
        self.subscription = hub.join_live(|| self.subject(), || channel(&self.asker.owner), bell);
    }

    fn subject(&self) -> Subject {
        let name = self.name.clone();
        // A waiter of a red lock is in no line.
        if self.line_wakes && self.position.is_some() { Subject::Queue(name) } else { Subject::Lock(name) }
    }

    /// Whether the thread is in the queue of those that want a part of a count.
    fn wants_count(&self) -> bool {
        self.position.is_some() && matches!(self.queueing, Queueing::Counted(_))
    }

    /// Subscribes to a channel: to that of the count where the thread wants a part of one. Returns whether a message
    /// could be missed before, so that the thread must ask again. `concerns_holds` tells whether a message says
    /// something about holds of this process.
    pub(crate) fn arm(&mut self, concerns_holds: bool, channel: impl FnOnce(&OwnerId) -> String) -> Result<bool> {
        self.follow();
        let counted = self.wants_count().then_some(self.name);
        let subject = match counted {
            Some(name) => Subject::Count(name.clone()),
            None if concerns_holds => self.subject(),
            None => Subject::Other,
        };
        let owner = &self.asker.owner;
        let channel = || counted.map_or_else(|| channel(owner), |name| name.semaphore_channel().text());
        self.engine.cells.hub(&self.node.server).arm(&mut self.subscription, &subject, channel, self.caller.bell())
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

    /// Lists the thread as waiting, and tells the observer once that it waits, and once that the wait lasts.
    fn tell_wait(&mut self) {
        let Some(kind) = self.kind else { return };
        let Asker { number, owner, thread } = &self.asker;
        let waited = self.started.until(Instant::now());
        let lasts = waited >= self.engine.config.watchdog_timeout;
        if self.listed.is_none() {
            let waiter = Waiter {
                name: self.name.clone(),
                kind,
                owner: owner.clone(),
                number: thread.as_ref().map_or_else(|| ThreadId::current().number(), ThreadId::number),
                thread: thread::current(),
                since: self.started,
            };
            self.listed = Some(self.engine.cells.waiters.list(*number, waiter));
        }
        let config = &self.engine.config;
        if !std::mem::replace(&mut self.has_slept, true) {
            config.observe(|observer| observer.waiting(&WaitStarted::of(self.in_events(kind))));
        }
        if lasts && !std::mem::replace(&mut self.lasts, true) {
            config.observe(|observer| observer.still_waiting(&WaitLasts::of(self.in_events(kind), waited)));
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
        let Some(kind) = self.kind.filter(|_| self.has_slept) else { return };
        self.listed = None;
        self.engine.config.observe(|observer| {
            let waited = self.started.until(Instant::now());
            observer.gave_up(&WaitGivenUp::of(self.in_events(kind), waited, error.cloned()));
        });
    }

    /// Tells the observer of the end of the call, if the call is about this lock alone.
    pub(crate) fn tell_end<Grant>(&self, outcome: &Result<Option<Grant>>) {
        let Some(kind) = self.kind.filter(|_| self.group.is_none()) else { return };
        self.engine.config.observe(|observer| {
            let (name, owner) = (self.name.to_string(), self.asker.owner.to_string());
            observer.take_ended(&TakeEnded::new(name, kind, owner, self.started.until(Instant::now()), outcome));
        });
    }
}

/// A thread that waits on a channel for a wanted reply.
pub(crate) struct WaitOn<'w, 'a, Ask> {
    pub(crate) waiting: &'w mut Waiting<'a>,
    pub(crate) channel: &'a str,
    /// Asks Redis once.
    pub(crate) ask: Ask,
}

impl<'a, Grant, Ask: FnMut(&mut Waiting<'a>) -> Result<TakeOutcome<Grant>>> WaitLoop for WaitOn<'_, 'a, Ask> {
    type Grant = Grant;

    fn now(&self) -> Instant {
        Instant::now()
    }

    /// A query takes nothing from other processes.
    fn stand_back(&mut self) -> Result<()> {
        if !self.waiting.is_ahead() {
            self.waiting.join_queue();
            self.waiting.wait_in_line()?;
        }
        if self.waiting.queueing == Queueing::Together { Ok(()) } else { self.waiting.stand_back(None) }
    }

    fn attempt(&mut self) -> Result<TakeOutcome<Grant>> {
        (self.ask)(self.waiting)
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        Some(busy.min(LONGEST_SLEEP))
    }

    fn arm(&mut self) -> Result<bool> {
        self.waiting.join_queue();
        // The channel of a query says nothing about existing holds.
        self.waiting.arm(false, |_| self.channel.to_owned())
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        self.waiting.sleep(until)
    }
}
