//! What the threads of a story share, and the promises that are checked there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockson::{Cancel, ErrorKind, Hold, Loss};
use lockson_world::World;
use lockson_world::system::thread;
use parking_lot::Mutex;

use crate::callbacks::{Eyes, called_back, called_back_since};
use crate::kinds::Kind;
use crate::process::Process;
use crate::server::{Free, Server};
use crate::trouble::{Faults, Habits};

/// What the threads of a story share.
pub struct Scene {
    pub me: Weak<Scene>,
    pub world: Arc<World>,
    pub server: Arc<Server>,
    /// The servers of red locks, if the story has some.
    pub reds: Vec<Arc<Server>>,
    /// Whether each request is answered at once, and each message arrives.
    pub is_quiet: bool,
    /// The number of count-downs that were begun, and of those that surely had an effect.
    pub count_downs: [AtomicU64; 2],
    /// Who says that it is inside, by the name of the lock.
    pub inside: Mutex<BTreeMap<String, Vec<Inside>>>,
    pub permits: AtomicU32,
    /// The greatest fencing token of each lock so far.
    pub tokens: Mutex<BTreeMap<String, u64>>,
    /// How often the loss of each hold was told.
    pub told: Mutex<Vec<(Hold, Arc<AtomicU32>)>>,
    pub eyes: Option<Arc<Eyes>>,
    /// The waits that may be cancelled.
    pub cancels: Mutex<Vec<Cancel>>,
    pub habits: Habits,
    pub taken: Arc<AtomicU64>,
    /// When something was taken last.
    pub last: AtomicU64,
    pub wanted: u64,
    pub faults: Faults,
    /// Callbacks use them, too.
    pub processes: Mutex<Vec<Process>>,
    pub is_over: AtomicBool,
    /// Whether a Java client takes locks, too.
    pub has_java: bool,
    /// Whether it takes a lock again that it has.
    pub java_reenters: bool,
    /// Whether threads take locks again inside, and extend them.
    pub has_sections: bool,
    /// The kinds that are taken, one phase after the other.
    pub phases: Vec<Vec<Kind>>,
}

/// A thread that believes to hold a lock.
#[derive(Clone)]
pub struct Inside {
    pub number: u64,
    pub is_alone: bool,
    /// Whether the watchdog keeps the hold.
    pub is_kept: bool,
    pub holder: Holder,
}

/// What a thread has in its hands.
#[derive(Clone)]
pub enum Holder {
    Ours(Hold),
    /// An owner, and until when Redis keeps its lock.
    Java(String, Arc<AtomicU64>),
}

impl Holder {
    fn owner(&self) -> &str {
        match self {
            Self::Ours(hold) => hold.owner(),
            Self::Java(owner, _) => owner,
        }
    }

    fn believes(&self, now: u64) -> bool {
        match self {
            Self::Ours(hold) => hold.is_held(),
            Self::Java(_, until) => now < until.load(Ordering::Relaxed),
        }
    }

    fn lost(&self) -> Option<Loss> {
        match self {
            Self::Ours(hold) => hold.lost(),
            Self::Java(..) => None,
        }
    }
}

impl Scene {
    /// Takes within a time by chance. Returns the grant, if there is one.
    pub fn granted<T>(&self, what: &str, take: impl FnOnce(Duration) -> lockson::Result<Option<T>>) -> Option<T> {
        let most = if self.world.below(3) == 0 { 500 } else { 15_000 };
        let (wait, began) = (Duration::from_millis(self.world.below(most)), self.world.now());
        let outcome = take(wait);
        self.ended_in_time(what, began, wait);
        self.was_awake(what, began, outcome.as_ref().is_ok_and(Option::is_some));
        outcome.unwrap_or_else(|error| {
            self.expected(&error);
            None
        })
    }

    /// Nobody sleeps beside a free lock for long.
    pub fn was_awake(&self, name: &str, began: u64, is_granted: bool) {
        let Some(free) = self.free(name) else { return };
        let (from, to) = match free.since {
            Some(since) => (since.max(began), self.world.now()),
            None if is_granted && free.last.0 >= began => free.last,
            None => return,
        };
        let slept = Duration::from_nanos(to.saturating_sub(from));
        // Nobody tells of a deleted lock.
        let is_deleted = self.server.deleted().is_some_and(|at| at + REMEMBERED >= from);
        // A red lock rests between rounds in which callers shared the votes.
        // A Java waiter that gives up passes no message on.
        // A reader that leaves others inside, or an inner section, shortens the time to live, and tells nobody.
        let is_shortened = free.is_by_time && (name == "shared" || self.has_sections);
        let is_slow = name == "red" || name == "fair" && self.has_java || is_shortened;
        let longest = if is_deleted || is_slow { ASKS_AGAIN } else { LONGEST_SLEEP };
        if slept > longest && self.is_quiet {
            self.world.fail(format_args!("a waiter slept for {slept:?} beside {name}, which was free"));
        }
    }

    /// When a lock was free; a red lock is surely free while all of its servers have none.
    fn free(&self, name: &str) -> Option<Free> {
        if name != "red" {
            return self.server.free(name);
        }
        let since = self.reds.iter().map(|server| server.free(name)?.since).collect::<Option<Vec<_>>>()?;
        Some(Free { since: since.into_iter().max(), ..Free::default() })
    }

    pub fn given_back(&self, release: impl FnOnce() -> lockson::Result<()>) {
        let began = self.world.now();
        if let Err(error) = release() {
            if error.kind() == ErrorKind::Refused && !self.faults.moves_slots() {
                self.world.fail(format_args!("a release was refused: {error}"));
            }
            self.expected(&error);
        }
        self.ended_in_time("a release", began, Duration::ZERO);
    }

    /// Stays inside for a while, seldom for longer than a time to live.
    pub fn stay(&self, name: &str) {
        let most = if self.world.below(self.habits.linger) == 0 { 70_000 } else { 1 + self.world.below(300) };
        for _ in 0..1 + self.world.below(3) {
            thread::sleep(Duration::from_millis(self.world.below(most)));
            self.check(name);
        }
    }

    /// Counts one more acquisition.
    pub fn takes(&self) -> u64 {
        self.last.store(self.world.now(), Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a process of ours still takes locks.
    pub fn is_going_on(&self) -> bool {
        self.processes.lock().iter().any(|process| !process.is_closed())
    }

    /// Sooner or later something is taken.
    pub fn goes_on(&self) {
        let still = Duration::from_nanos(self.world.now() - self.last.load(Ordering::Relaxed));
        if still > LONGEST_STANDSTILL {
            self.world.fail(format_args!("nothing was taken for {still:?}"));
        }
    }

    pub fn enter(&self, name: &str, is_alone: bool, hold: Hold) -> u64 {
        let told = Arc::new(AtomicU32::new(0));
        self.told.lock().push((hold.clone(), Arc::clone(&told)));
        let scene = self.me.clone();
        hold.on_lost(move |_| {
            told.fetch_add(1, Ordering::Relaxed);
            called_back(&scene);
        });
        self.enter_as(name, is_alone, Holder::Ours(hold))
    }

    pub fn enter_as(&self, name: &str, is_alone: bool, holder: Holder) -> u64 {
        let number = self.takes();
        self.world.tell(format_args!("is inside {name} as {}", holder.owner()));
        // Asked before: while a thread of the world waits, no other one may have this mutex.
        let is_kept = matches!(&holder, Holder::Ours(hold) if hold.remaining() > LONGEST_LEASE);
        let inside = Inside { number, is_alone, is_kept, holder };
        self.inside.lock().entry(name.to_owned()).or_default().push(inside);
        self.check(name);
        number
    }

    pub fn leave(&self, name: &str, number: u64) {
        self.check(name);
        self.world.tell(format_args!("leaves {name}"));
        self.inside.lock().entry(name.to_owned()).or_default().retain(|inside| inside.number != number);
    }

    /// Whoever is inside alone is so: all others know that they are not inside any more.
    pub fn check(&self, name: &str) {
        let inside: Vec<Inside> = self.inside.lock().get(name).cloned().unwrap_or_default();
        // Where nothing delays renewals, no hold without a lease ends by time.
        let expires = |inside: &&Inside| inside.is_kept && inside.holder.lost() == Some(Loss::Expired);
        if let Some(expired) = inside.iter().find(expires)
            && self.is_quiet
            && (self.faults.full, self.habits.within) == (0, 0)
        {
            self.world.fail(format_args!("{} was not renewed in time", expired.holder.owner()));
        }
        // Nothing but users, operators and faults takes holds away.
        let is_robbed = |inside: &&Inside| {
            matches!(inside.holder.lost(), Some(Loss::Gone | Loss::Taken))
                && self.server.taken_away(inside.holder.owner()).is_none()
        };
        if let Some(robbed) = inside.iter().find(is_robbed)
            && self.is_quiet
            && !self.faults.lose_everything()
            // The rest of an inner section's lease may be too short to be told as what has expired.
            && (!self.has_sections || robbed.is_kept)
            && !["expiring", "red"].contains(&name)
        {
            self.world.fail(format_args!("{} was lost without a reason", robbed.holder.owner()));
        }
        let believers = inside.iter().filter(|inside| inside.holder.believes(self.world.now()));
        // Who was robbed is told at once.
        let is_robbed = |inside: &&Inside| match self.server.taken_away(inside.holder.owner()) {
            // Redisson is not told.
            Some(_) if matches!(inside.holder, Holder::Java(..)) => true,
            Some(at) => {
                let late = Duration::from_nanos(self.world.now() - at);
                let within = if self.faults.no_tracking { TOLD_BY_RENEWAL } else { TOLD_WITHIN };
                // Nobody asks about a hold that is neither watched nor renewed.
                let is_asked_about = inside.is_kept || !self.faults.no_tracking;
                if self.is_quiet && is_asked_about && late > within {
                    self.world.fail(format_args!("{} was not told of a loss for {late:?}", inside.holder.owner()));
                }
                true
            }
            None => false,
        };
        let believers: Vec<&Inside> = believers.filter(|inside| !is_robbed(inside)).collect();
        // A red lock has no owner of its own, and is never re-entered here.
        let is_one = |two: &[&Inside]| name != "red" && two[0].holder.owner() == two[1].holder.owner();
        let are_one = believers.windows(2).all(is_one);
        if !are_one && believers.iter().any(|believer| believer.is_alone) {
            let owners: Vec<_> = believers.iter().map(|believer| believer.holder.owner().to_owned()).collect();
            self.world.fail(format_args!("two inside {name}: {owners:?}"));
        }
        if name == "expiring" && believers.len() > PERMITS as usize {
            self.world.fail(format_args!("{} permits of {PERMITS} are taken", believers.len()));
        }
    }

    pub fn ended_in_time(&self, what: &str, began: u64, wait: Duration) {
        let took = Duration::from_nanos(self.world.now() - began);
        let replicas = if self.faults.lags > 0 { FOR_REPLICAS } else { Duration::ZERO };
        let most = wait + COMMAND_TIMEOUT + replicas + SLACK + called_back_since(began);
        if took > most && !self.world.was_stopped_since(began) {
            self.world.fail(format_args!("{what} of {wait:?} took {took:?}"));
        }
    }

    /// Errors are for worlds in which something goes wrong; no error is a surprise of another sort.
    pub fn expected(&self, error: &lockson::Error) {
        self.world.tell(format_args!("{error}"));
        let has_reason = match error.kind() {
            ErrorKind::Connection | ErrorKind::Unknown => !self.is_quiet,
            // Some messages take longer than a server of a red lock is given.
            ErrorKind::Quorum => !self.reds.is_empty(),
            ErrorKind::NotDurable => self.faults.lags > 0,
            ErrorKind::Closed => self.habits.close > 0,
            ErrorKind::Refused => match error.redis_word() {
                Some("OOM") => self.faults.full > 0,
                Some("MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "READONLY") => self.faults.moves_slots(),
                _ => false,
            },
            ErrorKind::Cancelled => self.habits.cancel > 0,
            _ => error.is_lost(),
        };
        if !has_reason {
            self.world.fail(format_args!("an error without a reason: {error:?}"));
        }
    }
}

pub const PERMITS: u32 = 2;
/// Longer than the leases of stories, and shorter than the time to live that the watchdog renews.
const LONGEST_LEASE: Duration = Duration::from_secs(25);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);
/// The limit of a wait for replicas, and more where the server falls silent.
const FOR_REPLICAS: Duration = Duration::from_millis(1_500);
/// A message arrives within some milliseconds, and a name that was asked about rests for a moment.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// Without the right to watch keys the next renewal tells.
const TOLD_BY_RENEWAL: Duration = Duration::from_secs(12);
const ASKS_AGAIN: Duration = Duration::from_millis(1_200);
const LONGEST_SLEEP: Duration = Duration::from_millis(300);
/// Nanoseconds for which waiters may not yet know that their entries in a queue were deleted.
const REMEMBERED: u64 = 3_000_000_000;
const LONGEST_STANDSTILL: Duration = Duration::from_secs(1_800);
const SLACK: Duration = Duration::from_millis(100);
/// A dropped guard may take so long.
pub const DROP: Duration = Duration::from_secs(1);
