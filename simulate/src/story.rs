//! One story: clients with threads take locks of several kinds while things go wrong; promises are checked throughout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lockson::{
    Cancel, Client, Election, ErrorKind, FencingToken, Hold, Lock, LockLost, Observer, PermitExpirableSemaphore,
    Semaphore,
};
use lockson_world::system::thread;
use lockson_world::{Report, World};
use parking_lot::Mutex;

use crate::kinds::{self, Kind};
use crate::mistakes::MISTAKES;
use crate::reply::Reply;
use crate::server::{OneServer, Server};
use crate::trouble::{Faults, Habits};

/// Plays the story of a seed until `wanted` locks were taken. A broken promise ends the process with the story.
///
/// `without` names what the seed may not draw, of [`TROUBLES`](crate::trouble::TROUBLES).
pub fn play(seed: u64, wanted: u64, without: &[String], mistake: Option<usize>) -> (Report, u64) {
    let server = Server::new();
    if let Some((right, wrong)) = mistake.and_then(|mistake| MISTAKES.get(mistake)) {
        server.plant(right, wrong);
    }
    let taken = Arc::new(AtomicU64::new(0));
    let report = World::run(seed, Arc::new(OneServer(Arc::clone(&server))), |world| {
        let faults = Faults::draw(world).without(without);
        let scene = Arc::new(Scene {
            world: Arc::clone(world),
            server: Arc::clone(&server),
            inside: Mutex::default(),
            permits: AtomicU32::new(0),
            tokens: Mutex::default(),
            told: Mutex::default(),
            eyes: (world.below(2) == 0).then(Arc::default),
            cancels: Mutex::default(),
            habits: Habits::draw(world).without(without),
            taken: Arc::clone(&taken),
            wanted,
            faults,
            phases: kinds::draw(world, faults, without),
        });
        // Everything was left out.
        if scene.phases.iter().all(Vec::is_empty) {
            return;
        }
        let clients: Vec<Client> = (0..1 + world.below(3)).map(|_| connect(scene.eyes.as_ref())).collect();
        clients[0].get_semaphore("permits").set_permits_once(PERMITS).unwrap_or_else(|error| world.fail(error));
        let expiring = |client: &Client| client.get_permit_expirable_semaphore("expiring");
        expiring(&clients[0]).set_permits_once(PERMITS).unwrap_or_else(|error| world.fail(error));
        server.set_faults(scene.faults);
        world.tell(format_args!("{} clients, {:?}, {:?}, {:?}", clients.len(), scene.phases, faults, scene.habits));
        let mut threads = vec![];
        for (number, client) in clients.iter().enumerate() {
            let is_closed = Arc::new(AtomicBool::new(false));
            // The client's background threads belong to it, as they are started by its own.
            for thread in 0..1 + world.below(3) {
                let (scene, client, is_closed) = (Arc::clone(&scene), client.clone(), Arc::clone(&is_closed));
                let name = format!("client {number} thread {thread}");
                threads.push(
                    thread::Builder::new()
                        .name(name)
                        .spawn(move || {
                            scene.world.join_process(number + 1);
                            scene.act(&client, &is_closed);
                        })
                        .expect("a thread"),
                );
            }
        }
        threads.into_iter().for_each(thread::JoinHandle::join);
        // Clocks are no fault that ends.
        server.set_faults(Faults { drift: scene.faults.drift, ..Faults::default() });
        clients.into_iter().for_each(|client| client.close());
        // Longer than any lease, and than the memory of requests of semaphores.
        thread::sleep(Duration::from_secs(800));
        let free = server.with_data(world, |data| data.run(&[b"GET".to_vec(), b"permits".to_vec()]));
        // What a close cannot give back in time stays taken.
        let fewer = scene.habits.close > 0 && !scene.faults.leave_the_network_alone();
        if scene.faults.flushes == 0
            && !(if fewer { 0 } else { PERMITS }..=PERMITS).any(|number| free == Reply::text(number.to_string()))
        {
            world.fail(format_args!("of {PERMITS} permits there are {free:?}"));
        }
        let last = connect(None);
        match expiring(&last).try_acquire(PERMITS) {
            Ok(None) if scene.faults.flushes > 0 => {}
            Ok(Some(permits)) => permits.release().unwrap_or_else(|error| world.fail(error)),
            other => world.fail(format_args!("not all of {PERMITS} expiring permits are free: {other:?}")),
        }
        // What a close could not take out of a queue in time delays nobody, and goes with the next release.
        match last.get_fair_lock("fair").try_lock_for(Duration::from_secs(10)) {
            Ok(Some(guard)) => guard.unlock().unwrap_or_else(|error| world.fail(error)),
            other => world.fail(format_args!("the fair lock is not free: {other:?}")),
        }
        last.close();
        for (hold, told) in scene.told.lock().iter() {
            let (told, lost) = (told.load(Ordering::Relaxed), hold.lost());
            if told != u32::from(lost.is_some()) {
                world.fail(format_args!("the loss {lost:?} of {} was told {told} times", hold.owner()));
            }
            let seen = scene.eyes.as_ref().map(|eyes| eyes.0.lock().get(hold.owner()).copied().unwrap_or(0));
            if seen.is_some_and(|seen| seen != told) && !hold.owner().is_empty() {
                world.fail(format_args!("{seen:?} events tell the loss of {}, and {told} callbacks", hold.owner()));
            }
        }
        let left: Vec<String> = server
            .names(world)
            .into_iter()
            .filter(|name| name != "permits" && name != "expiring" && !name.contains("token"))
            .collect();
        if !left.is_empty() {
            world.fail(format_args!("left in Redis: {left:?}"));
        }
    });
    (report, taken.load(Ordering::Relaxed))
}

fn connect(eyes: Option<&Arc<Eyes>>) -> Client {
    let builder = Client::builder("redis://127.0.0.1:6379");
    let builder = eyes.map_or(builder.clone(), |eyes| builder.observer(Arc::clone(eyes)));
    builder.connect().expect("no faults so far")
}

/// How often the loss of each owner was told by an event.
#[derive(Debug, Default)]
struct Eyes(Mutex<BTreeMap<String, u32>>);

impl Observer for Eyes {
    fn lost(&self, event: &LockLost) {
        *self.0.lock().entry(event.owner().to_owned()).or_default() += 1;
    }
}

struct Scene {
    world: Arc<World>,
    server: Arc<Server>,
    /// Who says that it is inside, by the name of the lock.
    inside: Mutex<BTreeMap<String, Vec<Inside>>>,
    permits: AtomicU32,
    /// The greatest fencing token of each lock so far.
    tokens: Mutex<BTreeMap<String, u64>>,
    /// How often the loss of each hold was told.
    told: Mutex<Vec<(Hold, Arc<AtomicU32>)>>,
    eyes: Option<Arc<Eyes>>,
    /// The waits that may be cancelled.
    cancels: Mutex<Vec<Cancel>>,
    habits: Habits,
    taken: Arc<AtomicU64>,
    wanted: u64,
    faults: Faults,
    /// The kinds that are taken, one phase after the other.
    phases: Vec<Vec<Kind>>,
}

#[derive(Clone)]
struct Inside {
    number: u64,
    is_alone: bool,
    hold: Hold,
}

impl Scene {
    fn act(&self, client: &Client, is_closed: &AtomicBool) {
        while self.taken.load(Ordering::Relaxed) < self.wanted && !is_closed.load(Ordering::Relaxed) {
            if self.world.below(16) == 0 {
                self.interfere(client, is_closed);
            } else {
                self.take_any(client);
            }
            thread::sleep(Duration::from_micros(self.world.below(20_000)));
        }
    }

    /// Takes a lock of one of the kinds of this phase.
    fn take_any(&self, client: &Client) {
        let kinds = kinds::hot(&self.phases, self.taken.load(Ordering::Relaxed));
        match kinds[usize::try_from(self.world.below(kinds.len() as u64)).unwrap_or(0)] {
            Kind::Plain => self.take("plain", true, &client.get_lock("plain")),
            Kind::Spin => self.take_as("spun", "spin", true, &client.get_spin_lock("spun")),
            Kind::Token => self.take_as("one value", "token", true, &client.get_token_lock("one value")),
            Kind::Election => self.lead(&client.get_election("jobs")),
            Kind::Fair => self.take("fair", true, &client.get_fair_lock("fair")),
            Kind::Shared if self.world.below(3) == 0 => {
                self.take("shared", true, &client.get_read_write_lock("shared").get_write_lock());
            }
            Kind::Shared => self.take("shared", false, &client.get_read_write_lock("shared").get_read_lock()),
            Kind::Fenced => self.take_fenced(&client.get_fenced_lock("fenced")),
            Kind::Permits => self.take_permit(&client.get_semaphore("permits")),
            Kind::Expiring => self.take_expiring(&client.get_permit_expirable_semaphore("expiring")),
            Kind::Multi if self.world.below(3) == 0 => self.take("plain", true, &client.get_lock("plain")),
            Kind::Multi => {
                let (other, lock) = match self.world.below(2) {
                    0 => ("fair", client.get_fair_lock("fair")),
                    // Both in one request.
                    _ => ("spun", client.get_lock("spun")),
                };
                self.take_several(&["plain", other], &Lock::multi([client.get_lock("plain"), lock]));
            }
            Kind::Group => {
                let seats = [&["1", "2"][..], &["2", "3"], &["3"]][self.world.below(3) as usize];
                let names: Vec<String> = seats.iter().map(|seat| format!("seats[{seat}]")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.take_several(&names, &client.get_group_lock("seats", seats));
            }
        }
    }

    /// Does what other users and operators do.
    fn interfere(&self, client: &Client, is_closed: &AtomicBool) {
        let happens = |once_in: u64| once_in > 0 && self.world.below(once_in) == 0;
        if happens(self.habits.force / 10) {
            let held = self.server.held();
            let name =
                held.get(usize::try_from(self.world.below(9)).unwrap_or(0) % held.len().max(1)).unwrap_or(&"plain");
            let outcome = match *name {
                "fair" => client.get_fair_lock(name).force_unlock(),
                "shared" if self.world.below(2) == 0 => client.get_read_write_lock(name).read().force_unlock(),
                "shared" => client.get_read_write_lock(name).write().force_unlock(),
                "one value" => client.get_token_lock(name).force_unlock(),
                "jobs" => client.get_election(name).depose(),
                _ => client.get_lock(name).force_unlock(),
            };
            self.world.tell(format_args!("forces {name:?} open: {outcome:?}"));
            outcome.inspect_err(|error| self.expected(error)).ok();
        }
        if happens(self.habits.cancel / 5) {
            let cancels = std::mem::take(&mut *self.cancels.lock());
            cancels.iter().for_each(Cancel::cancel);
        }
        if happens(self.habits.close / 10) {
            self.world.tell("closes the client");
            is_closed.store(true, Ordering::Relaxed);
            client.close();
        }
    }

    /// Leads for a while.
    fn lead(&self, election: &Election) {
        let candidate = election.candidate("somebody");
        let Some(leadership) = self.granted("jobs", |wait| candidate.campaign_for(wait)) else { return };
        let number = self.enter("jobs", true, leadership.hold().clone());
        self.grows("jobs", leadership.hold(), leadership.token());
        self.stay("jobs");
        self.leave("jobs", number);
        self.given_back(|| leadership.resign());
    }

    fn take(&self, name: &str, is_alone: bool, lock: &Lock) {
        self.take_as(name, name, is_alone, lock);
    }

    /// Takes a lock by a kind whose waiters hear of no release, where `wait` is not the name.
    fn take_as(&self, name: &str, wait: &str, is_alone: bool, lock: &Lock) {
        let cancel = Cancel::new();
        let lock = self.with_lease(lock);
        let lock = if self.habits.cancel > 0 && self.world.below(4) == 0 {
            self.cancels.lock().push(cancel.clone());
            lock.with_cancel(&cancel)
        } else {
            lock
        };
        let Some(guard) = self.granted(wait, |wait| lock.try_lock_for(wait)) else { return };
        let number = self.enter(name, is_alone, guard.hold().clone());
        self.stay(name);
        if self.world.below(4) == 0 {
            let (began, mut stays_on) = (self.world.now(), false);
            match lock.try_lock() {
                Ok(Some(again)) => {
                    self.check(name);
                    drop(again);
                    stays_on = self.world.below(2) == 0;
                }
                Ok(None) if guard.is_held() && self.server.taken_away(guard.owner()).is_none() => {
                    self.world.fail(format_args!("no re-entry into {name}"))
                }
                Ok(None) => {}
                Err(error) => self.expected(&error),
            }
            self.ended_in_time("a re-entry", began, DROP);
            if stays_on {
                self.stay(name);
            }
        }
        self.leave(name, number);
        self.given_back(|| guard.unlock());
    }

    /// One of four acts has a lease.
    fn with_lease(&self, lock: &Lock) -> Lock {
        let lease = Duration::from_millis(1_000 + self.world.below(9_000));
        if self.world.below(4) == 0 { lock.with_lease(lease) } else { lock.clone() }
    }

    /// Takes several locks at once, each of which others take alone.
    fn take_several(&self, names: &[&str], lock: &Lock) {
        let lock = &self.with_lease(lock);
        let Some(guard) = self.granted("several", |wait| lock.try_lock_for(wait)) else { return };
        let of_name = |name: &str| guard.hold().members().iter().find(|member| member.name() == name);
        let hold = |name| of_name(name).unwrap_or(guard.hold()).clone();
        let inside: Vec<u64> = names.iter().map(|name| self.enter(name, true, hold(name))).collect();
        names.iter().for_each(|name| self.stay(name));
        names.iter().zip(inside).for_each(|(name, number)| self.leave(name, number));
        self.given_back(|| guard.unlock());
    }

    /// Takes a fenced lock: a later token is greater.
    fn take_fenced(&self, lock: &Lock<FencingToken>) {
        let Some(guard) = self.granted("fenced", |wait| lock.try_lock_for(wait)) else { return };
        let number = self.enter("fenced", true, guard.hold().clone());
        self.grows("fenced", guard.hold(), guard.token());
        self.stay("fenced");
        self.leave("fenced", number);
        self.given_back(|| guard.unlock());
    }

    /// The token of whoever holds a lock is the greatest one.
    fn grows(&self, name: &str, hold: &Hold, token: FencingToken) {
        let is_held = hold.is_held() && self.server.taken_away(hold.owner()).is_none();
        let (token, mut tokens) = (token.value(), self.tokens.lock());
        let last = tokens.entry(name.to_owned()).or_default();
        if is_held && token <= *last {
            self.world.fail(format_args!("token {token} of {name} after {last}"));
        }
        *last = token.max(*last);
    }

    fn take_permit(&self, semaphore: &Semaphore) {
        let Some(permit) = self.granted("permits", |wait| semaphore.try_acquire_for(1, wait)) else { return };
        self.taken.fetch_add(1, Ordering::Relaxed);
        // A close gives back what its client has taken.
        if self.permits.fetch_add(1, Ordering::Relaxed) >= PERMITS && self.habits.close == 0 {
            self.world.fail(format_args!("more than {PERMITS} permits are taken"));
        }
        self.stay("permits");
        self.permits.fetch_sub(1, Ordering::Relaxed);
        self.given_back(|| permit.release());
    }

    fn take_expiring(&self, semaphore: &PermitExpirableSemaphore) {
        let lease = Duration::from_millis(1_000 + self.world.below(9_000));
        let semaphore = if self.world.below(4) == 0 { &semaphore.with_lease(lease) } else { semaphore };
        let Some(permit) = self.granted("expiring", |wait| semaphore.try_acquire_for(1, wait)) else { return };
        let number = self.enter("expiring", false, permit.hold().clone());
        self.stay("expiring");
        self.leave("expiring", number);
        self.given_back(|| permit.release());
    }

    /// Takes within a time by chance. Returns the grant, if there is one.
    fn granted<T>(&self, what: &str, take: impl FnOnce(Duration) -> lockson::Result<Option<T>>) -> Option<T> {
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
    fn was_awake(&self, name: &str, began: u64, is_granted: bool) {
        let Some(free) = self.server.free(name) else { return };
        let (from, to) = match free.since {
            Some(since) => (since.max(began), self.world.now()),
            None if is_granted && free.last.0 >= began => free.last,
            None => return,
        };
        let slept = Duration::from_nanos(to.saturating_sub(from));
        // Nobody tells of a deleted lock.
        let is_deleted = self.server.deleted().is_some_and(|at| at + REMEMBERED >= from);
        let longest = if is_deleted { ASKS_AGAIN } else { LONGEST_SLEEP };
        if slept > longest && self.faults.leave_the_network_alone() {
            self.world.fail(format_args!("a waiter slept for {slept:?} beside {name}, which was free"));
        }
    }

    fn given_back(&self, release: impl FnOnce() -> lockson::Result<()>) {
        let began = self.world.now();
        if let Err(error) = release() {
            self.expected(&error);
        }
        self.ended_in_time("a release", began, Duration::ZERO);
    }

    /// Stays inside for a while, now and then for longer than a time to live.
    fn stay(&self, name: &str) {
        let most = if self.world.below(20) == 0 { 70_000 } else { 1 + self.world.below(300) };
        for _ in 0..1 + self.world.below(3) {
            thread::sleep(Duration::from_millis(self.world.below(most)));
            self.check(name);
        }
    }

    fn enter(&self, name: &str, is_alone: bool, hold: Hold) -> u64 {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        self.world.tell(format_args!("is inside {name} as {}", hold.owner()));
        let told = Arc::new(AtomicU32::new(0));
        self.told.lock().push((hold.clone(), Arc::clone(&told)));
        hold.on_lost(move |_| _ = told.fetch_add(1, Ordering::Relaxed));
        self.inside.lock().entry(name.to_owned()).or_default().push(Inside { number, is_alone, hold });
        self.check(name);
        number
    }

    fn leave(&self, name: &str, number: u64) {
        self.check(name);
        self.world.tell(format_args!("leaves {name}"));
        self.inside.lock().entry(name.to_owned()).or_default().retain(|inside| inside.number != number);
    }

    /// Whoever is inside alone is so: all others know that they are not inside any more.
    fn check(&self, name: &str) {
        let inside: Vec<Inside> = self.inside.lock().get(name).cloned().unwrap_or_default();
        let believers = inside.iter().filter(|inside| inside.hold.is_held());
        // Who was robbed is told at once.
        let is_robbed = |inside: &&Inside| match self.server.taken_away(inside.hold.owner()) {
            Some(at) => {
                let late = Duration::from_nanos(self.world.now() - at);
                let within = if self.faults.no_tracking { TOLD_BY_RENEWAL } else { TOLD_WITHIN };
                if self.faults.leave_the_network_alone() && late > within {
                    self.world.fail(format_args!("{} was not told of a loss for {late:?}", inside.hold.owner()));
                }
                true
            }
            None => false,
        };
        let believers: Vec<&Inside> = believers.filter(|inside| !is_robbed(inside)).collect();
        if believers.len() > 1 && believers.iter().any(|believer| believer.is_alone) {
            let owners: Vec<_> = believers.iter().map(|believer| believer.hold.owner().to_owned()).collect();
            self.world.fail(format_args!("two inside {name}: {owners:?}"));
        }
        if name == "expiring" && believers.len() > PERMITS as usize {
            self.world.fail(format_args!("{} permits of {PERMITS} are taken", believers.len()));
        }
    }

    fn ended_in_time(&self, what: &str, began: u64, wait: Duration) {
        let took = Duration::from_nanos(self.world.now() - began);
        let most = wait + COMMAND_TIMEOUT + SLACK;
        if took > most && !self.world.was_stopped_since(began) {
            self.world.fail(format_args!("{what} of {wait:?} took {took:?}"));
        }
    }

    /// Errors are for worlds in which something goes wrong; no error is a surprise of another sort.
    fn expected(&self, error: &lockson::Error) {
        self.world.tell(format_args!("{error}"));
        let has_reason = match error.kind() {
            ErrorKind::Connection | ErrorKind::Unknown => !self.faults.leave_the_network_alone(),
            ErrorKind::Closed => self.habits.close > 0,
            ErrorKind::Cancelled => self.habits.cancel > 0,
            _ => error.is_lost(),
        };
        if !has_reason {
            self.world.fail(format_args!("an error without a reason: {error:?}"));
        }
    }
}

const PERMITS: u32 = 2;
const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);
/// A message arrives within some milliseconds, and a name that was asked about rests for a moment.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// Without the right to watch keys the next renewal tells.
const TOLD_BY_RENEWAL: Duration = Duration::from_secs(12);
const ASKS_AGAIN: Duration = Duration::from_millis(1_200);
const LONGEST_SLEEP: Duration = Duration::from_millis(300);
/// Nanoseconds for which waiters may not yet know that their entries in a queue were deleted.
const REMEMBERED: u64 = 3_000_000_000;
const SLACK: Duration = Duration::from_millis(100);
/// A dropped guard may take so long.
const DROP: Duration = Duration::from_secs(1);
