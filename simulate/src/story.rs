//! One story: clients with threads take locks of several kinds while things go wrong; promises are checked throughout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lockson::{Client, ErrorKind, FencingToken, Hold, Lock, PermitExpirableSemaphore, Semaphore};
use lockson_world::system::thread;
use lockson_world::{Report, World};
use parking_lot::Mutex;

use crate::reply::Reply;
use crate::server::{Faults, OneServer, Server};

/// Parts of the bundled scripts, and mistakes in their place that a story has to find.
pub const MISTAKES: &[(&str, &str)] = &[
    // A busy lock is granted.
    (
        "if redis.call('exists', KEYS[1]) == 0 then\n  redis.call('hset', KEYS[1], ARGV[2], 1)",
        "if true then\n  redis.call('hset', KEYS[1], ARGV[2], 1)",
    ),
    ("if free and (not head or head == owner) then", "if not head or head == owner then"),
    // A late release frees the lock of the next one.
    ("if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then", "if redis.call('del', KEYS[1]) == 0 then"),
    // The watchdog prolongs nothing.
    ("if redis.call('pttl', key) < lease_ms then", "if false then"),
    // A writer beside readers, readers beside a writer.
    (
        "if redis.call('exists', KEYS[1]) == 0 then\n  -- A user who may not release must not take the lock: a release",
        "if redis.call('hget', KEYS[1], 'mode') ~= 'write' then\n  -- A release",
    ),
    ("if mode == 'write' then\n  return {0", "if mode == 'none' then\n  return {0"),
    // More permits than there are; a permit that is taken twice.
    ("local suffices = free >= wanted", "local suffices = free + 1 >= wanted"),
    ("if last == number then\n  return {1, free}", "if false then\n  return {1, free}"),
    ("if not free or tonumber(free) < wanted then", "if not free then"),
    ("if redis.call('zscore', KEYS[2], ARGV[4]) then", "if false then"),
    ("string.format('%.0f', now), 'LIMIT'", "string.format('%.0f', now + 5000), 'LIMIT'"),
    // A lock without expiry.
    ("local set = redis.pcall('pexpire', KEYS[1], ARGV[1])", "local set = 1"),
];

/// Plays the story of a seed until `wanted` locks were taken. A broken promise ends the process with the story.
pub fn play(seed: u64, wanted: u64, mistake: Option<usize>) -> (Report, u64) {
    let server = Server::new();
    if let Some((right, wrong)) = mistake.and_then(|mistake| MISTAKES.get(mistake)) {
        server.plant(right, wrong);
    }
    let taken = Arc::new(AtomicU64::new(0));
    let report = World::run(seed, Arc::new(OneServer(Arc::clone(&server))), |world| {
        let scene = Arc::new(Scene {
            world: Arc::clone(world),
            inside: Mutex::default(),
            permits: AtomicU32::new(0),
            token: AtomicU64::new(0),
            taken: Arc::clone(&taken),
            wanted,
            faults: draw_faults(world),
        });
        let clients: Vec<Client> = (0..1 + world.below(3)).map(|_| connect()).collect();
        clients[0].get_semaphore("permits").set_permits_once(PERMITS).unwrap_or_else(|error| world.fail(error));
        let expiring = |client: &Client| client.get_permit_expirable_semaphore("expiring");
        expiring(&clients[0]).set_permits_once(PERMITS).unwrap_or_else(|error| world.fail(error));
        server.set_faults(scene.faults);
        world.tell(format_args!("{} clients, {:?}", clients.len(), scene.faults));
        let mut threads = vec![];
        for (number, client) in clients.iter().enumerate() {
            // The client's background threads belong to it, as they are started by its own.
            for thread in 0..1 + world.below(3) {
                let (scene, client) = (Arc::clone(&scene), client.clone());
                let name = format!("client {number} thread {thread}");
                threads.push(
                    thread::Builder::new()
                        .name(name)
                        .spawn(move || {
                            scene.world.join_process(number + 1);
                            scene.act(&client);
                        })
                        .expect("a thread"),
                );
            }
        }
        threads.into_iter().for_each(thread::JoinHandle::join);
        server.set_faults(Faults::default());
        clients.into_iter().for_each(|client| client.close());
        // Longer than any lease, and than the memory of requests of semaphores.
        thread::sleep(Duration::from_secs(700));
        let free = server.with_data(world, |data| data.run(&[b"GET".to_vec(), b"permits".to_vec()]));
        if free != Reply::text(PERMITS.to_string()) {
            world.fail(format_args!("of {PERMITS} permits there are {free:?}"));
        }
        let available = expiring(&connect()).available();
        if available.as_ref().ok() != Some(&PERMITS.into()) {
            world.fail(format_args!("of {PERMITS} expiring permits there are {available:?}"));
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

fn connect() -> Client {
    Client::connect("redis://127.0.0.1:6379").expect("no faults so far")
}

fn draw_faults(world: &World) -> Faults {
    let each = || if world.below(2) == 0 { 0 } else { 10 + world.below(150) };
    Faults {
        cut_before: each(),
        cut_after: each(),
        late: each(),
        forgets: each(),
        restarts: each() * 5,
        stops: each() * 3,
        no_kill: world.below(4) == 0,
    }
}

struct Scene {
    world: Arc<World>,
    /// Who says that it is inside, by the name of the lock.
    inside: Mutex<BTreeMap<String, Vec<Inside>>>,
    permits: AtomicU32,
    /// The greatest fencing token so far.
    token: AtomicU64,
    taken: Arc<AtomicU64>,
    wanted: u64,
    faults: Faults,
}

#[derive(Clone)]
struct Inside {
    number: u64,
    is_alone: bool,
    hold: Hold,
}

impl Scene {
    fn act(&self, client: &Client) {
        while self.taken.load(Ordering::Relaxed) < self.wanted {
            match self.world.below(13) {
                0..=3 => self.take("plain", true, &client.get_lock("plain")),
                4..=5 => self.take("fair", true, &client.get_fair_lock("fair")),
                6 => self.take("shared", true, &client.get_read_write_lock("shared").get_write_lock()),
                7..=8 => self.take("shared", false, &client.get_read_write_lock("shared").get_read_lock()),
                9 => self.take_fenced(&client.get_fenced_lock("fenced")),
                10 => self.take_permit(&client.get_semaphore("permits")),
                11 => self.take_expiring(&client.get_permit_expirable_semaphore("expiring")),
                _ if self.world.below(2) == 0 => {
                    let both = [client.get_lock("plain"), client.get_fair_lock("fair")];
                    self.take_several(&["plain", "fair"], &Lock::multi(both));
                }
                _ => {
                    let seats = [&["1", "2"][..], &["2", "3"], &["3"]][self.world.below(3) as usize];
                    self.take_several(seats, &client.get_group_lock("seats", seats));
                }
            }
            thread::sleep(Duration::from_micros(self.world.below(20_000)));
        }
    }

    fn take(&self, name: &str, is_alone: bool, lock: &Lock) {
        let lease = Duration::from_millis(1_000 + self.world.below(9_000));
        let lock = if self.world.below(4) == 0 { &lock.with_lease(lease) } else { lock };
        let Some(guard) = self.granted(name, |wait| lock.try_lock_for(wait)) else { return };
        let number = self.enter(name, is_alone, guard.hold().clone());
        self.stay(name);
        if self.world.below(4) == 0 {
            let began = self.world.now();
            match lock.try_lock() {
                Ok(Some(again)) => {
                    self.check(name);
                    drop(again);
                }
                Ok(None) if guard.is_held() => self.world.fail(format_args!("no re-entry into {name}")),
                Ok(None) => {}
                Err(error) => self.expected(&error),
            }
            self.ended_in_time("a re-entry", began, DROP);
        }
        self.leave(name, number);
        self.given_back(|| guard.unlock());
    }

    /// Takes several locks at once, each of which others take alone.
    fn take_several(&self, names: &[&str], lock: &Lock) {
        let Some(guard) = self.granted("several", |wait| lock.try_lock_for(wait)) else { return };
        let inside: Vec<u64> = names.iter().map(|name| self.enter(name, true, guard.hold().clone())).collect();
        names.iter().for_each(|name| self.stay(name));
        names.iter().zip(inside).for_each(|(name, number)| self.leave(name, number));
        self.given_back(|| guard.unlock());
    }

    /// Takes a fenced lock: a later token is greater.
    fn take_fenced(&self, lock: &Lock<FencingToken>) {
        let Some(guard) = self.granted("fenced", |wait| lock.try_lock_for(wait)) else { return };
        let number = self.enter("fenced", true, guard.hold().clone());
        let (token, last) = (guard.token().value(), self.token.load(Ordering::Relaxed));
        if guard.is_held() && token <= last {
            self.world.fail(format_args!("token {token} after {last}"));
        }
        self.token.fetch_max(token, Ordering::Relaxed);
        self.stay("fenced");
        self.leave("fenced", number);
        self.given_back(|| guard.unlock());
    }

    fn take_permit(&self, semaphore: &Semaphore) {
        let Some(permit) = self.granted("permits", |wait| semaphore.try_acquire_for(1, wait)) else { return };
        self.taken.fetch_add(1, Ordering::Relaxed);
        if self.permits.fetch_add(1, Ordering::Relaxed) >= PERMITS {
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
        let (wait, began) = (Duration::from_millis(self.world.below(15_000)), self.world.now());
        let outcome = take(wait);
        self.ended_in_time(what, began, wait);
        outcome.unwrap_or_else(|error| {
            self.expected(&error);
            None
        })
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
        let most = if self.world.below(100) == 0 { 70_000 } else { 1 + self.world.below(300) };
        for _ in 0..1 + self.world.below(3) {
            thread::sleep(Duration::from_millis(self.world.below(most)));
            self.check(name);
        }
    }

    fn enter(&self, name: &str, is_alone: bool, hold: Hold) -> u64 {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        self.world.tell(format_args!("is inside {name} as {}", hold.owner()));
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
        let believers: Vec<&Inside> = inside.iter().filter(|inside| inside.hold.is_held()).collect();
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
        let is_of_faults = matches!(error.kind(), ErrorKind::Connection | ErrorKind::Unknown);
        let Faults { cut_before, cut_after, late, restarts, stops, .. } = self.faults;
        if !error.is_lost() && (!is_of_faults || cut_before + cut_after + late + restarts + stops == 0) {
            self.world.fail(format_args!("an error without a reason: {error:?}"));
        }
    }
}

const PERMITS: u32 = 2;
const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_millis(100);
/// A dropped guard may take so long.
const DROP: Duration = Duration::from_secs(1);
