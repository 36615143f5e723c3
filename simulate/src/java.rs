//! A Java client: it does on the wire what Redisson's `RLock`, `RFairLock` and `RReadWriteLock` do, without retries.

mod scripts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockson_world::system::sockopt::{Timeout, set_socket_timeout};
use lockson_world::system::{BEGAN, TcpStream, new_uuid, recv, send, thread};
use redis::Value;
use rustix::net::{RecvFlags, SendFlags};

use crate::kinds::{self, Kind};
use crate::scene::{Holder, Scene};
use crate::server::FIRST_PORT;

/// A process of one thread.
pub struct Java {
    scene: Arc<Scene>,
    id: String,
    /// A new one after each error: nobody knows what became of its requests.
    thread: u64,
    requests: Option<TcpStream>,
}

/// The locks that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Plain,
    Fair,
    Read,
    Write,
}

/// Nobody knows what became of a request.
struct Broken;

type Outcome<T> = Result<T, Broken>;

impl Java {
    pub fn new(scene: &Arc<Scene>) -> Self {
        Self { scene: Arc::clone(scene), id: new_uuid().to_string(), thread: 1, requests: None }
    }

    /// Takes locks until the story is over.
    pub fn act(mut self) {
        while self.scene.taken.load(Ordering::Relaxed) < self.scene.wanted && self.scene.is_going_on() {
            let below = |bound| self.scene.world.below(bound);
            let kinds = kinds::hot(&self.scene.phases, self.scene.taken.load(Ordering::Relaxed));
            let lock = match kinds[usize::try_from(below(kinds.len() as u64)).unwrap_or(0)] {
                Kind::Fair => Lock::Fair,
                Kind::Shared if below(3) == 0 => Lock::Write,
                Kind::Shared => Lock::Read,
                _ => Lock::Plain,
            };
            if self.take(lock).is_err() {
                self.scene.world.tell("breaks off");
                self.requests = None;
                // Late copies run first: many dead waiters would stand in the queue for longer than a story lasts.
                thread::sleep(Duration::from_secs(7));
                let _ = lock != Lock::Fair || (0..4).any(|_| self.give_up(0).is_ok());
                self.thread += 1;
            }
            thread::sleep(Duration::from_micros(self.scene.world.below(40_000)));
        }
    }

    fn take(&mut self, lock: Lock) -> Outcome<()> {
        let (scene, name) = (Arc::clone(&self.scene), lock.name());
        let (began, wait) = (scene.world.now(), scene.world.below(15_000));
        let Some(sent) = self.wait(lock, began, wait)? else {
            self.was_awake(lock, began, false);
            return Ok(());
        };
        self.was_awake(lock, began, true);
        let until = Arc::new(AtomicU64::new(sent + LEASE_NANOS));
        let number = scene.enter_as(name, lock != Lock::Read, Holder::Java(self.owner(), Arc::clone(&until)));
        let mut inside = (lock, number);
        let outcome = self.stay(lock, &until).and_then(|()| self.take_again(&mut inside, &until));
        let (lock, number) = inside;
        scene.leave(name, number);
        let is_held = scene.world.now() < until.load(Ordering::Relaxed);
        outcome?;
        let was_there = self.unlock(lock)? != Value::Nil;
        if !was_there && is_held && scene.is_quiet && scene.server.taken_away(&self.owner()).is_none() {
            scene.world.fail(format_args!("{} had {name} and has it no more", self.owner()));
        }
        Ok(())
    }

    /// Takes the lock again, once in three times, and gives back one of both holds. Whoever writes may read, and go on
    /// reading.
    fn take_again(&mut self, inside: &mut (Lock, u64), until: &Arc<AtomicU64>) -> Outcome<()> {
        let (scene, lock) = (Arc::clone(&self.scene), inside.0);
        if !scene.java_reenters || scene.world.below(3) > 0 {
            return Ok(());
        }
        let inner = if lock == Lock::Write && scene.world.below(2) == 0 { Lock::Read } else { lock };
        let is_held = scene.world.now() + SECOND < until.load(Ordering::Relaxed);
        let Ok(sent) = self.try_lock(inner, 0)? else {
            if is_held && scene.is_quiet && scene.server.taken_away(&self.owner()).is_none() {
                scene.world.fail(format_args!("{} holds {}, and cannot take it again", self.owner(), lock.name()));
            }
            return if lock == Lock::Fair { self.give_up(1) } else { Ok(()) };
        };
        // Each hold of a reader has a time to live of its own.
        if inner != Lock::Read {
            until.store(sent + LEASE_NANOS, Ordering::Relaxed);
        }
        self.stay(lock, until)?;
        if inner != lock && scene.world.below(2) == 0 {
            scene.leave("shared", inside.1);
            let until_read = Arc::new(AtomicU64::new(sent + LEASE_NANOS));
            *inside = (inner, scene.enter_as("shared", false, Holder::Java(self.owner(), Arc::clone(&until_read))));
            self.unlock(lock)?;
            let outcome = self.stay(inner, &until_read);
            until.store(until_read.load(Ordering::Relaxed), Ordering::Relaxed);
            return outcome;
        }
        // The hold that was there before is gone.
        if self.unlock(inner)? == Value::Int(1) && inner == lock && lock != Lock::Read {
            if is_held && scene.is_quiet && scene.server.taken_away(&self.owner()).is_none() {
                scene.world.fail(format_args!("{} had {} when it took it again", self.owner(), lock.name()));
            }
            until.store(0, Ordering::Relaxed);
        }
        self.stay(lock, until)
    }

    /// Waits by subscription. Returns when the request was sent that took the lock.
    fn wait(&mut self, lock: Lock, began: u64, wait: u64) -> Outcome<Option<u64>> {
        let world = Arc::clone(&self.scene.world);
        let mut left = self.try_lock(lock, wait)?;
        let end = began + wait * 1_000_000;
        let listening = match left {
            Ok(_) => None,
            Err(_) if world.now() >= end => None,
            Err(_) => Some(self.subscribe(lock)?),
        };
        if let Some(listening) = &listening {
            left = self.try_lock(lock, wait)?;
            while let Err(left_ms) = left
                && world.now() < end
            {
                // Redisson asks without a pause where the time to live is zero.
                let pause = Duration::from_millis(left_ms.clamp(10, 30_000));
                let _ = receive(listening, pause.min(Duration::from_nanos(end - world.now())))?;
                left = self.try_lock(lock, wait)?;
            }
        }
        if left.is_err() && lock == Lock::Fair {
            self.give_up(wait)?;
        }
        Ok(left.ok())
    }

    /// Leaves the queue of the fair lock.
    fn give_up(&mut self, wait: u64) -> Outcome<()> {
        self.run(scripts::GIVE_UP_FAIR, &[QUEUE, DEADLINES], &[&self.owner(), &wait.to_string()]).map(drop)
    }

    /// Stays inside, and renews the lock every ten seconds.
    fn stay(&mut self, lock: Lock, until: &AtomicU64) -> Outcome<()> {
        let world = Arc::clone(&self.scene.world);
        let mut left = world.below(if world.below(self.scene.habits.linger) == 0 { 70_000 } else { 300 });
        loop {
            thread::sleep(Duration::from_millis(left.min(RENEWED_MS)));
            self.scene.check(lock.name());
            if left <= RENEWED_MS {
                return Ok(());
            }
            left -= RENEWED_MS;
            let (sent, owner) = (world.now(), self.owner());
            let prefix = format!("{{shared}}:{owner}:rwlock_timeout");
            let renewed = match lock {
                Lock::Read => self.run(scripts::RENEW_READ, &["shared", &prefix], &[LEASE, &owner])?,
                Lock::Write => self.run(scripts::RENEW, &["shared"], &[LEASE, &format!("{owner}:write")])?,
                _ => self.run(scripts::RENEW, &[lock.name()], &[LEASE, &owner])?,
            };
            if renewed == Value::Int(1) {
                until.store(sent + LEASE_NANOS, Ordering::Relaxed);
            }
        }
    }

    /// Returns when the request was sent that took the lock, or the time to live of the lock.
    fn try_lock(&mut self, lock: Lock, wait: u64) -> Outcome<Result<u64, u64>> {
        let (sent, owner) = (self.scene.world.now(), self.owner());
        let prefix = format!("{{shared}}:{owner}:rwlock_timeout");
        let now = (u64::try_from(BEGAN).unwrap_or(0) * 1_000 + sent / 1_000_000).to_string();
        let reply = match lock {
            Lock::Plain => self.run(scripts::LOCK, &["plain"], &[LEASE, &owner]),
            Lock::Fair => {
                let wait = wait.max(1).to_string();
                self.run(scripts::LOCK_FAIR, &["fair", QUEUE, DEADLINES], &[LEASE, &owner, &wait, &now])
            }
            Lock::Read => self.run(scripts::LOCK_READ, &["shared", &prefix], &[LEASE, &owner]),
            Lock::Write => self.run(scripts::LOCK_WRITE, &["shared"], &[LEASE, &format!("{owner}:write")]),
        };
        match reply? {
            Value::Nil => Ok(Ok(sent)),
            Value::Int(left) => Ok(Err(u64::try_from(left).unwrap_or(0))),
            _ => Err(Broken),
        }
    }

    /// Returns 1 where the lock is free now, 0 where holds are left, nil where there was none.
    fn unlock(&mut self, lock: Lock) -> Outcome<Value> {
        let owner = self.owner();
        let latch = format!("redisson_unlock_latch:{{{}}}:{}", lock.name(), new_uuid().simple());
        let channel = lock.channel();
        let now = (u64::try_from(BEGAN).unwrap_or(0) * 1_000 + self.scene.world.now() / 1_000_000).to_string();
        let reply = match lock {
            Lock::Plain => self.run(scripts::UNLOCK, &["plain", channel, &latch], &["0", LEASE, &owner, LATCH]),
            Lock::Fair => {
                let keys = ["fair", QUEUE, DEADLINES, channel, &latch];
                self.run(scripts::UNLOCK_FAIR, &keys, &["0", LEASE, &owner, LATCH, &now])
            }
            Lock::Read => {
                let keys = ["shared", channel, &format!("{{shared}}:{owner}:rwlock_timeout"), "{shared}", &latch];
                self.run(scripts::UNLOCK_READ, &keys, &["0", &owner, LATCH])
            }
            Lock::Write => {
                let words = ["1", LEASE, &format!("{owner}:write"), LATCH];
                self.run(scripts::UNLOCK_WRITE, &["shared", channel, &latch], &words)
            }
        };
        let reply = reply?;
        self.ask(redis::cmd("DEL").arg(&latch))?;
        Ok(reply)
    }

    /// A lock that is given back wakes its waiters.
    fn was_awake(&self, lock: Lock, began: u64, is_granted: bool) {
        // Nobody tells of a lock that is deleted or ends by time, and Redisson does not ask; a waiter of its own that gives
        // up passes nothing on.
        let faults = self.scene.faults;
        let is_told = self.scene.server.free(lock.name()).is_some_and(|free| !free.is_by_time);
        if is_told && (faults.deletes, faults.flushes) == (0, 0) && lock != Lock::Fair {
            self.scene.was_awake(lock.name(), began, is_granted);
        }
    }

    fn owner(&self) -> String {
        format!("{}:{}", self.id, self.thread)
    }

    fn run(&mut self, script: &str, keys: &[&str], words: &[&str]) -> Outcome<Value> {
        self.ask(redis::cmd("EVAL").arg(script).arg(keys.len()).arg(keys).arg(words))
    }

    fn ask(&mut self, command: &redis::Cmd) -> Outcome<Value> {
        let stream = match self.requests.take() {
            Some(stream) => stream,
            None => connect()?,
        };
        send(&stream, &command.get_packed_command(), SendFlags::NOSIGNAL).map_err(|_| Broken)?;
        let reply = receive(&stream, TIMEOUT)?.ok_or(Broken)?;
        self.requests = Some(stream);
        if let Value::ServerError(_) = reply { Err(Broken) } else { Ok(reply) }
    }

    fn subscribe(&self, lock: Lock) -> Outcome<TcpStream> {
        let stream = connect()?;
        let channel = match lock {
            Lock::Fair => format!("{}:{}", lock.channel(), self.owner()),
            _ => lock.channel().to_owned(),
        };
        let command = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
        send(&stream, &command, SendFlags::NOSIGNAL).map_err(|_| Broken)?;
        receive(&stream, TIMEOUT)?.ok_or(Broken)?;
        Ok(stream)
    }
}

impl Lock {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fair => "fair",
            Self::Read | Self::Write => "shared",
        }
    }

    fn channel(self) -> &'static str {
        match self {
            Self::Plain => "redisson_lock__channel:{plain}",
            Self::Fair => "redisson_lock__channel:{fair}",
            Self::Read | Self::Write => "redisson_rwlock:{shared}",
        }
    }
}

fn connect() -> Outcome<TcpStream> {
    let address = ([127, 0, 0, 1], FIRST_PORT).into();
    TcpStream::connect_timeout(&address, TIMEOUT).map_err(|_| Broken)
}

/// Returns a reply, or a message, or nothing when the time is up.
fn receive(stream: &TcpStream, limit: Duration) -> Outcome<Option<Value>> {
    let (mut bytes, mut buffer) = (vec![], [0; 4_096]);
    set_socket_timeout(stream, Timeout::Recv, Some(limit)).map_err(|_| Broken)?;
    loop {
        match recv(stream, &mut buffer, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(Broken),
            Ok((_, length)) => bytes.extend(&buffer[..length]),
            Err(rustix::io::Errno::AGAIN) if bytes.is_empty() => return Ok(None),
            Err(_) => return Err(Broken),
        }
        // Of several messages the first one wakes.
        if let Ok(value) = redis::parse_redis_value(&bytes) {
            return Ok(Some(value));
        }
    }
}

const QUEUE: &str = "redisson_lock_queue:{fair}";
const DEADLINES: &str = "redisson_lock_timeout:{fair}";
const TIMEOUT: Duration = Duration::from_secs(3);
const LEASE: &str = "30000";
/// Redisson believes without end; here, for as long as Redis keeps the lock.
const LEASE_NANOS: u64 = 30_000_000_000;
const SECOND: u64 = 1_000_000_000;
const RENEWED_MS: u64 = 10_000;
/// The time to live of the mark of a release, ms.
const LATCH: &str = "16000";
