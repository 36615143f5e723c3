//! A world in which a seed decides what happens: one thread runs at a time, and time passes only when all sleep.
//!
//! Threads are threads of the system, and a baton goes from one to the next. Sockets are pairs of the system, whose
//! other ends belong to a [`Network`]; it takes what is sent, and does what comes later by [`World::at`]. [`system`]
//! has what the library uses in place of the system.

mod mutex;
pub mod system;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;
use std::{io, process, thread};

pub use mutex::{Condvar, Mutex, MutexGuard};

/// Nanoseconds since the world began.
pub type Nanos = u64;

/// The other end of all sockets.
pub trait Network: Send + Sync {
    /// Opens a connection. Returns the client's end and a number for it.
    fn connect(&self, world: &Arc<World>, port: u16) -> io::Result<(UnixStream, u64)>;

    /// The client sends over this connection. Returns whether it is open.
    fn send(&self, world: &Arc<World>, connection: u64, bytes: &[u8]) -> bool;
}

/// One world, from its seed to its end.
pub struct World {
    state: parking_lot::Mutex<State>,
    network: Arc<dyn Network>,
}

struct State {
    now: Nanos,
    random: u64,
    tasks: Vec<Task>,
    /// The threads that have not ended, in order.
    live: Vec<usize>,
    running: usize,
    /// What happens later without a thread, by its time and in order.
    events: BTreeMap<(Nanos, u64), Event>,
    numbered: u64,
    /// Threads that have ended, and may still run their destructors.
    ended: Vec<thread::JoinHandle<()>>,
    handles: BTreeMap<usize, thread::JoinHandle<()>>,
    /// Groups of threads that were stopped, and the end of their last stop.
    stopped: BTreeMap<usize, Nanos>,
    /// The threads that were found last, kept for its memory.
    scratch: Vec<usize>,
    steps: u64,
    fingerprint: u64,
    /// `None` where nobody reads it.
    story: Option<VecDeque<String>>,
}

type Event = Box<dyn FnOnce(&Arc<World>) + Send>;

struct Task {
    name: String,
    /// The process of a thread: that of the thread that started it.
    group: usize,
    doing: Doing,
    /// The connections on which it waits for bytes, beside its wakers.
    hears: Vec<u64>,
    bell: Arc<parking_lot::Condvar>,
    /// Its steps since it waited last.
    busy: u64,
}

enum Doing {
    Ready,
    Waiting { what: What, until: Option<Nanos> },
    Ended,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Time,
    Mutex(usize),
    Condvar(usize),
    /// Anything on its sockets.
    Sockets,
    Thread(usize),
}

/// How a world ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of times at which another thread might have run.
    pub steps: u64,
    /// Equal for worlds in which the same threads ran at the same times.
    pub fingerprint: u64,
    /// The time that has passed.
    pub time: Duration,
}

thread_local! {
    static ME: RefCell<Option<(Arc<World>, usize)>> = const { RefCell::new(None) };
}

impl World {
    /// Runs `work` as the first thread of a world; returns when all its threads have ended. What happens is noted for
    /// a failure, or is not, which is faster.
    pub fn run(seed: u64, is_noted: bool, network: Arc<dyn Network>, work: impl FnOnce(&Arc<World>)) -> Report {
        let state = State {
            now: 0,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            tasks: vec![Task::named("main", 0)],
            live: vec![0],
            running: 0,
            events: BTreeMap::new(),
            numbered: 0,
            ended: vec![],
            handles: BTreeMap::new(),
            stopped: BTreeMap::new(),
            scratch: vec![],
            steps: 0,
            fingerprint: 0,
            story: is_noted.then(VecDeque::new),
        };
        let world = Arc::new(Self { state: parking_lot::Mutex::new(state), network });
        ME.set(Some((Arc::clone(&world), 0)));
        work(&world);
        let others = world.state.lock().tasks.len();
        for number in 1..others {
            world.wait(0, What::Thread(number), Some(LONGEST_END));
            let state = world.state.lock();
            if !matches!(state.tasks[number].doing, Doing::Ended) {
                let name = state.tasks[number].name.clone();
                drop(state);
                world.fail(format!("thread {name} has not ended {LONGEST_END:?} after all work"));
            }
        }
        ME.set(None);
        let mut state = world.state.lock();
        for handle in state.ended.drain(..) {
            let _ = handle.join();
        }
        Report { steps: state.steps, fingerprint: state.fingerprint, time: Duration::from_nanos(state.now) }
    }

    /// The world of the calling thread, and its number there.
    pub(crate) fn of_thread() -> Option<(Arc<Self>, usize)> {
        ME.with_borrow(Clone::clone)
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.state.lock().now
    }

    /// The time, which has passed a little for whoever looks at it.
    pub(crate) fn look_at_clock(&self) -> Nanos {
        let mut state = self.state.lock();
        state.now += 1_000;
        state.now
    }

    /// A random number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.state.lock().below(bound)
    }

    /// Runs `event` in `delay`, on whatever thread is up.
    pub fn at(&self, delay: Duration, event: impl FnOnce(&Arc<World>) + Send + 'static) {
        let mut state = self.state.lock();
        let time = state.now + nanos(delay);
        state.numbered += 1;
        let key = (time, state.numbered);
        state.events.insert(key, Box::new(event));
    }

    /// Makes this thread, and all that it starts from now on, a process of its own.
    pub fn join_process(&self, group: usize) {
        if let Some((_, me)) = Self::of_thread() {
            self.state.lock().tasks[me].group = group;
        }
    }

    /// Stops all threads of a process.
    pub fn stop(&self, group: usize, duration: Duration) {
        let mut state = self.state.lock();
        let until = state.now + nanos(duration);
        state.stopped.insert(group, until);
    }

    /// Whether the process of this thread has been stopped since then.
    pub fn was_stopped_since(&self, time: Nanos) -> bool {
        let Some((_, me)) = Self::of_thread() else { return false };
        let state = self.state.lock();
        state.stopped.get(&state.tasks[me].group).is_some_and(|until| *until >= time)
    }

    /// Notes what happens for the story of a failure.
    pub fn tell(&self, what: impl Display) {
        let mut state = self.state.lock();
        let State { story: Some(story), tasks, running, now, .. } = &mut *state else { return };
        let (who, now) = (&tasks[*running].name, Duration::from_nanos(*now).as_secs_f64());
        if story.len() == LONGEST_STORY {
            story.pop_front();
        }
        story.push_back(format!("{now:>12.6} s  {who:<18} {what}"));
    }

    /// Ends the process with the story: a broken promise.
    pub fn fail(&self, why: impl Display) -> ! {
        let state = self.state.lock();
        for line in state.story.iter().flatten() {
            eprintln!("{line}");
        }
        eprintln!("{:>12.6} s  BROKEN: {why}", Duration::from_nanos(state.now).as_secs_f64());
        process::exit(1)
    }

    /// Lets another thread run, if the seed says so.
    pub(crate) fn step(self: &Arc<Self>, me: usize) {
        let mut state = self.state.lock();
        state.steps += 1;
        state.tasks[me].busy += 1;
        if state.tasks[me].busy > MOST_AT_A_STRETCH {
            let name = state.tasks[me].name.clone();
            drop(state);
            self.fail(format!("thread {name} never sleeps"));
        }
        if state.below(CHANCE_OF_A_CHANGE) == 0 {
            state.tasks[me].doing = Doing::Ready;
            self.pass_on(state, me);
        }
    }

    /// Waits for `what`, for at most `longest`.
    pub(crate) fn wait(self: &Arc<Self>, me: usize, what: What, longest: Option<Duration>) {
        let mut state = self.state.lock();
        state.steps += 1;
        let until = longest.map(|longest| state.now.saturating_add(nanos(longest)));
        state.tasks[me].doing = Doing::Waiting { what, until };
        if !matches!(what, What::Mutex(_)) {
            state.tasks[me].busy = 0;
        }
        self.pass_on(state, me);
    }

    /// Makes those ready who wait for `what`: all, or one by chance.
    pub(crate) fn wake(&self, what: What, all: bool) {
        let mut state = self.state.lock();
        let State { live, tasks, scratch, .. } = &mut *state;
        let waits = |task: &Task| matches!(task.doing, Doing::Waiting { what: other, .. } if other == what);
        scratch.clear();
        scratch.extend(live.iter().filter(|number| waits(&tasks[**number])));
        if !all && !scratch.is_empty() {
            let chosen = state.one_of_scratch();
            state.tasks[chosen].doing = Doing::Ready;
            return;
        }
        scratch.iter().for_each(|number| tasks[*number].doing = Doing::Ready);
    }

    /// The client's end of a connection may have become readable.
    pub fn moved(&self, connection: u64) {
        self.state.lock().wake_listeners(|task| task.hears.contains(&connection));
    }

    /// A waker was used: nobody knows whose.
    pub(crate) fn waker_used(&self) {
        self.state.lock().wake_listeners(|_| true);
    }

    /// Waits for bytes on these connections, or for a waker.
    pub(crate) fn wait_for_bytes(self: &Arc<Self>, me: usize, connections: Vec<u64>, longest: Option<Duration>) {
        self.state.lock().tasks[me].hears = connections;
        self.wait(me, What::Sockets, longest);
    }

    pub(crate) fn network(&self) -> &Arc<dyn Network> {
        &self.network
    }

    /// Gives the baton to a thread that is ready, which may be this one; returns when it is back.
    fn pass_on(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>, me: usize) {
        loop {
            while let Some(event) = state.due_event() {
                parking_lot::MutexGuard::unlocked(&mut state, || event(self));
            }
            state.find_ready();
            if !state.scratch.is_empty() {
                let next = state.one_of_scratch();
                state.tasks[next].doing = Doing::Ready;
                state.running = next;
                state.fingerprint = (state.fingerprint ^ next as u64 ^ (state.now << 8)).wrapping_mul(0x0100_0000_01B3);
                break;
            }
            let next = state.next_time();
            match next {
                Some(next) => state.now = state.now.max(next),
                None => {
                    drop(state);
                    self.fail("all threads sleep for ever");
                }
            }
        }
        if state.running != me {
            let running = state.running;
            state.tasks[running].bell.notify_one();
            if !matches!(state.tasks[me].doing, Doing::Ended) {
                self.wait_for_turn(state, me);
            }
        }
    }

    fn wait_for_turn(&self, mut state: parking_lot::MutexGuard<'_, State>, me: usize) {
        let bell = Arc::clone(&state.tasks[me].bell);
        while state.running != me {
            bell.wait(&mut state);
        }
        // Destructors of thread-local data run before anything else does.
        let ended = std::mem::take(&mut state.ended);
        drop(state);
        for handle in ended {
            let _ = handle.join();
        }
    }

    /// Adds a thread, which runs when the baton comes to it.
    pub(crate) fn add(&self, name: &str) -> usize {
        let mut state = self.state.lock();
        let group = ME.with_borrow(|me| me.as_ref().map_or(0, |(_, me)| state.tasks[*me].group));
        let number = state.tasks.len();
        state.tasks.push(Task::named(name, group));
        state.live.push(number);
        number
    }

    pub(crate) fn keep(&self, number: usize, handle: thread::JoinHandle<()>) {
        self.state.lock().handles.insert(number, handle);
    }

    /// Does the work of an added thread, in that thread.
    pub(crate) fn live<T>(self: &Arc<Self>, number: usize, work: impl FnOnce() -> T) -> T {
        ME.set(Some((Arc::clone(self), number)));
        self.wait_for_turn(self.state.lock(), number);
        let outcome = catch_unwind(AssertUnwindSafe(work));
        if outcome.is_err() {
            self.fail("a thread panicked");
        }
        let mut state = self.state.lock();
        state.tasks[number].doing = Doing::Ended;
        state.live.retain(|other| *other != number);
        if let Some(handle) = state.handles.remove(&number) {
            state.ended.push(handle);
        }
        ME.set(None);
        self.pass_on(state, number);
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl State {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64* (Marsaglia 2003, Vigna 2016).
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    fn wake_listeners(&mut self, hears: impl Fn(&Task) -> bool) {
        let Self { live, tasks, .. } = self;
        for number in live {
            let task = &mut tasks[*number];
            if matches!(task.doing, Doing::Waiting { what: What::Sockets, .. }) && hears(task) {
                task.doing = Doing::Ready;
            }
        }
    }

    fn due_event(&mut self) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= self.now).then(|| first.remove())
    }

    /// A thread of those just found, by chance.
    fn one_of_scratch(&mut self) -> usize {
        let chosen = self.below(self.scratch.len() as u64) as usize;
        self.scratch[chosen]
    }

    /// Finds the threads that may run.
    fn find_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.scratch);
        ready.clear();
        let is_ready = |task: &Task| match task.doing {
            Doing::Ready => true,
            Doing::Ended => false,
            Doing::Waiting { what, until } => {
                until.is_some_and(|until| until <= self.now)
                    || match what {
                        What::Thread(number) => matches!(self.tasks[number].doing, Doing::Ended),
                        What::Time | What::Mutex(_) | What::Condvar(_) | What::Sockets => false,
                    }
            }
        };
        let is_stopped = |task: &Task| self.stopped.get(&task.group).is_some_and(|until| *until > self.now);
        let runs = |number: &usize| is_ready(&self.tasks[*number]) && !is_stopped(&self.tasks[*number]);
        ready.extend(self.live.iter().copied().filter(runs));
        self.scratch = ready;
    }

    fn next_time(&self) -> Option<Nanos> {
        let waits = self.live.iter().filter_map(|number| match self.tasks[*number].doing {
            Doing::Waiting { until, .. } => until,
            _ => None,
        });
        // The end of a wait during a stop is no time at which anything happens.
        let stops = self.stopped.values().copied();
        let first_event = self.events.keys().next().map(|(time, _)| *time);
        waits.chain(first_event).chain(stops).filter(|time| *time > self.now).min()
    }
}

impl Task {
    fn named(name: &str, group: usize) -> Self {
        Self { name: name.to_owned(), group, doing: Doing::Ready, hears: vec![], bell: Arc::default(), busy: 0 }
    }
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// One step of so many lets another thread run.
const CHANCE_OF_A_CHANGE: u64 = 3;
const LONGEST_END: Duration = Duration::from_secs(600);
const LONGEST_STORY: usize = 400;
/// No thread of the library runs on for longer without a wait.
const MOST_AT_A_STRETCH: u64 = 5_000;
