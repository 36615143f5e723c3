//! Other lock crates of Rust behind the protocol of `speak.rs`: `lockson-compare-rust-peers NAME`.

#[path = "../../src/speak.rs"]
mod speak;

use std::cell::RefCell;
use std::future::Future;
use std::time::{Duration, Instant};

use distkit::DistkitRedisKey;
use distkit::lock::{LockGuardState, LockOptions, Mutex, MutexGuard};
use redis::aio::ConnectionManager;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::task::LocalSet;

use speak::{Clock, Locks, Threads, World, at_once, serve, unknown};

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    match &name[..] {
        "distkit" => wait_for(serve::<Distkit>(version("distkit"))),
        "rslock" => wait_for(serve::<Rslock>(version("rslock"))),
        "redlock" => at_once(serve::<Redlock>(version("redlock"))),
        #[cfg(feature = "redisson")]
        "redisson" => at_once(serve::<redisson_crate::Redisson>(version("redisson"))),
        _ => panic!("no such peer: {name}"),
    }
}

/// The version of a crate, from the lock file.
fn version(name: &str) -> &'static str {
    let start = format!("name = \"{name}\"\nversion = \"");
    let entry = include_str!("../Cargo.lock").split(&start).nth(1);
    entry.and_then(|rest| rest.split('"').next()).unwrap_or("unknown")
}

/// One thread runs all tasks: the fastest way to wait for one connection.
struct Tasks;

fn wait_for(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio starts");
    LocalSet::new().block_on(&runtime, future);
    // A thread of tokio may still read standard input.
    std::process::exit(0);
}

thread_local! {
    static INPUT: RefCell<Option<Lines<BufReader<Stdin>>>> = const { RefCell::new(None) };
}

impl World for Tasks {
    async fn line() -> Option<String> {
        let input = INPUT.take();
        let mut input = input.unwrap_or_else(|| BufReader::new(tokio::io::stdin()).lines());
        let line = input.next_line().await.ok()?;
        INPUT.set(Some(input));
        line
    }

    async fn sleep(time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn all<T: Send + 'static, F: Future<Output = T> + 'static>(
        count: usize,
        job: impl Fn() -> F + Send + Sync + 'static,
    ) -> Vec<T> {
        let tasks: Vec<_> = (0..count).map(|_| tokio::task::spawn_local(job())).collect();
        let mut values = vec![];
        for task in tasks {
            values.push(task.await.expect("no task panics"));
        }
        values
    }
}

struct Distkit(ConnectionManager);

impl Locks for Distkit {
    type World = Tasks;
    type Lock = std::sync::Arc<Mutex>;
    type Hold = MutexGuard;
    const RENEWS: bool = true;

    async fn open(urls: Vec<String>) -> Self {
        let client = redis::Client::open(urls[0].as_str()).expect("a good address");
        Self(client.get_connection_manager().await.expect("redis is reached"))
    }

    async fn lock(&self, name: &str) -> Self::Lock {
        let key = DistkitRedisKey::try_from(name.replace(':', "_")).expect("a good name");
        Mutex::new(LockOptions::new(key, self.0.clone()))
    }

    async fn take(lock: &Self::Lock) -> MutexGuard {
        lock.lock().await.expect("redis answers")
    }

    async fn give(hold: MutexGuard) {
        hold.release().await.expect("redis answers");
    }

    fn believes(hold: &MutexGuard) -> bool {
        hold.get_state() == LockGuardState::Acquired
    }

    async fn pairs(&self, _: &str, _: &str, _: &mut Clock) -> Result<(), String> {
        unknown()
    }
}

struct Rslock {
    one: rslock::LockManager,
    all: rslock::LockManager,
}

impl Locks for Rslock {
    type World = Tasks;
    type Lock = (rslock::LockManager, String);
    type Hold = (rslock::LockGuard, Instant);
    const RENEWS: bool = false;

    async fn open(urls: Vec<String>) -> Self {
        Self { one: rslock::LockManager::new(vec![urls[0].clone()]), all: rslock::LockManager::new(urls) }
    }

    async fn lock(&self, name: &str) -> Self::Lock {
        (self.one.clone(), name.to_owned())
    }

    async fn take((manager, name): &Self::Lock) -> Self::Hold {
        let asked = Instant::now();
        let guard = manager.acquire(name.as_str(), LEASE).await.expect("a good lease");
        let valid = Duration::from_millis(guard.lock.validity_time as u64);
        // A wait is no part of the validity, which counts from the end of the take.
        (guard, asked.max(Instant::now()) + valid)
    }

    async fn give((guard, _): Self::Hold) {
        guard.release().await;
    }

    fn believes((_, until): &Self::Hold) -> bool {
        Instant::now() < *until
    }

    async fn pairs(&self, kind: &str, name: &str, clock: &mut Clock) -> Result<(), String> {
        if kind != "red" {
            return unknown();
        }
        let lock = (self.all.clone(), name.to_owned());
        while clock.goes_on() {
            Self::give(Self::take(&lock).await).await;
        }
        Ok(())
    }
}

struct Redlock {
    one: &'static redlock::RedLock,
    all: &'static redlock::RedLock,
}

impl Locks for Redlock {
    type World = Threads;
    type Lock = (&'static redlock::RedLock, String);
    type Hold = (redlock::RedLockGuard<'static>, Instant);
    const RENEWS: bool = false;

    async fn open(urls: Vec<String>) -> Self {
        let manager = |urls: &[String]| &*Box::leak(Box::new(redlock::RedLock::new(urls.to_vec())));
        Self { one: manager(&urls[..1]), all: manager(&urls) }
    }

    async fn lock(&self, name: &str) -> Self::Lock {
        (self.one, name.to_owned())
    }

    async fn take((manager, name): &Self::Lock) -> Self::Hold {
        let guard = manager.acquire(name.as_bytes(), LEASE.as_millis() as usize).expect("redis answers");
        let valid = Duration::from_millis(guard.lock.validity_time as u64);
        (guard, Instant::now() + valid)
    }

    async fn give(hold: Self::Hold) {
        drop(hold);
    }

    fn believes((_, until): &Self::Hold) -> bool {
        Instant::now() < *until
    }

    async fn pairs(&self, kind: &str, name: &str, clock: &mut Clock) -> Result<(), String> {
        if kind != "red" {
            return unknown();
        }
        let lock = (self.all, name.to_owned());
        while clock.goes_on() {
            Self::give(Self::take(&lock).await).await;
        }
        Ok(())
    }

    fn refuses(command: &str) -> Option<&'static str> {
        let reason = "the library opens a connection for each request, so that many use up the ports of a machine";
        ["crowd", "many"].contains(&command).then_some(reason)
    }
}

#[cfg(feature = "redisson")]
mod redisson_crate {
    use std::sync::Arc;

    use redisson::{RLock, RRedLock, RedissonClient, RedissonConfig, SyncRedisConnectionManager};

    use crate::speak::{Clock, Locks, Threads, unknown};

    pub(crate) struct Redisson {
        client: RedissonClient,
        urls: Vec<String>,
    }

    impl Locks for Redisson {
        type World = Threads;
        type Lock = RLock;
        type Hold = RLock;
        const RENEWS: bool = false;

        async fn open(urls: Vec<String>) -> Self {
            let client = RedissonClient::new(RedissonConfig::single_server(&urls[0])).expect("redis is reached");
            Self { client, urls }
        }

        async fn lock(&self, name: &str) -> RLock {
            self.client.get_lock(name)
        }

        async fn take(lock: &RLock) -> RLock {
            lock.lock().expect("redis answers");
            lock.clone()
        }

        async fn give(hold: RLock) {
            hold.unlock().expect("redis answers");
        }

        fn believes(hold: &RLock) -> bool {
            hold.is_held_by_current_thread()
        }

        async fn pairs(&self, kind: &str, name: &str, clock: &mut Clock) -> Result<(), String> {
            match kind {
                "multi" => {
                    let locks = self.client.get_multi_lock((0..10).map(|each| format!("{name}:{each}")).collect());
                    while clock.goes_on() {
                        locks.lock().and_then(|()| locks.unlock()).map_err(|error| error.to_string())?;
                    }
                }
                "semaphore" => {
                    let semaphore = self.client.get_semaphore(name, 5);
                    while clock.goes_on() {
                        semaphore.acquire().and_then(|_| semaphore.release(1)).map_err(|error| error.to_string())?;
                    }
                }
                "red" => {
                    let manager = |url: &String| {
                        let config = RedissonConfig::single_server(url);
                        Arc::new(SyncRedisConnectionManager::new(&config).expect("redis is reached"))
                    };
                    let red = RRedLock::new(self.urls.iter().map(manager).collect(), name.into(), super::LEASE);
                    while clock.goes_on() {
                        red.lock().and_then(|()| red.unlock()).map_err(|error| error.to_string())?;
                    }
                }
                "reentry" => return Err("each take of the crate has an owner of its own, so a second one waits".into()),
                _ => return unknown(),
            }
            Ok(())
        }
    }
}

/// As long as the lease of Lockson and of Java's Redisson.
const LEASE: Duration = Duration::from_secs(30);
