//! The client: opens the connection to Redis and makes handles of locks.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::config::{ClientBuilder, Config};
#[cfg(feature = "tls")]
use crate::conn::connector;
use crate::conn::{
    Cluster, Dialer, MakesDialers, Server, Standalone, Target, Topology, at_the_start, master_among, master_of_service,
};
use crate::election::Election;
use crate::engine::{Engine, Handle, HoldState, Named};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Hold;
use crate::inspection::Inspection;
use crate::kinds::{Backoff, Fair, Fenced, Group, Kind, Plain, Spin, TokenLock, TokenOptions};
use crate::latch::CountDownLatch;
use crate::listing::{HeldLock, LockWaiter};
use crate::lock::{Lock, ReadWriteLock};
use crate::owner::Owners;
use crate::permits::PermitExpirableSemaphore;
use crate::script::Side;
use crate::script::examination::Examination;
use crate::script::inspection::Connections;
use crate::semaphore::Semaphore;
use crate::state::ledger::Phase;
use crate::time::Instant;
use crate::token::FencingToken;

/// The kind of most locks, kept from its first use.
static PLAIN: OnceBox<Arc<dyn Kind>> = OnceBox::new();

/// A client of one Redis, shared by all threads of a process.
///
/// Open one client and clone it; clones are the same client. The client stays open while a clone, a handle or a guard
/// of it is alive, or until [`close`](Self::close); dropping the last of them closes the client, too. A forked child
/// must open a client of its own: there every call on this client fails with `Closed`.
///
/// ```no_run
/// use lockson::Client;
///
/// let client = Client::connect("redis://localhost")?;
/// let guard = client.get_lock("nightly-report").lock()?;
/// // ... only one machine is here at a time ...
/// guard.unlock()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Opens a client with default settings and checks that the server answers.
    ///
    /// | URL | what it reaches |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | a server |
    /// | `redis+cluster://[user:password@]host[:port],host[:port]` | a Redis Cluster |
    /// | `redis+sentinel://[user:password@]host[:port],host[:port]/service[/database]` | the master behind these sentinels |
    /// | `redis+replicated://host,host[/database]` | the master of these servers |
    /// | `redis+unix:///path` | a server, by a Unix socket |
    ///
    /// `rediss` in place of `redis` is TLS (cargo feature `tls`), but of a Unix socket. All take the parameters
    /// `?db=n&user=name&pass=word&protocol=resp3`. In user and password `/`, `?`, `#`, `@` and `%` are written `%2F`,
    /// `%3F`, `%23`, `%40` and `%25`, in a parameter also `+` as `%2B`. A user without a password logs in with an empty
    /// password. A URL of sentinels also takes their `sentinel_user` and `sentinel_pass`. Any other part of a URL is
    /// refused by name.
    ///
    /// ```no_run
    /// use lockson::Client;
    ///
    /// let client = Client::connect("redis://app:secret@redis.example:6379/2")?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Config` for a malformed URL, and for a certificate that one side refuses; `Unsupported` for TLS without the
    /// cargo feature `tls`, a Sentinel or a node of a Redis Cluster behind `redis://`, or a server of its own behind
    /// `redis+cluster://`; `Connection` when the server is not reached; `Refused` when the server refuses the login or
    /// is a replica.
    pub fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect()
    }

    /// Opens a client with the URL in the environment variable `REDIS_URL`.
    ///
    /// ```no_run
    /// // REDIS_URL=redis://redis.example
    /// let client = lockson::Client::from_env()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Config` when the variable is not set; otherwise as [`connect`](Self::connect).
    pub fn from_env() -> Result<Self> {
        let text = "set REDIS_URL to the server's URL, like redis://localhost";
        let url = std::env::var("REDIS_URL").map_err(|_| Error::new(ErrorKind::Config, text));
        Self::connect(&url?)
    }

    /// Returns a builder with the default settings for this URL.
    ///
    /// ```no_run
    /// let client = lockson::Client::builder("redis://localhost").name_prefix("shop:").connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// Returns the lock of this name. No I/O; an invalid name fails at the first use.
    ///
    /// A name has 1 to 4,096 bytes of UTF-8, prefix included.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let order = 42;
    /// let guard = client.get_lock(format!("orders:{order}")).lock()?;
    /// // ... pay, one machine at a time ...
    /// guard.unlock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_lock(&self, name: impl AsRef<str>) -> Lock {
        let plain = PLAIN.get_or_init(|| Box::new(Arc::new(Plain { reentrant: true })));
        self.handle_to(Arc::clone(plain), name)
    }

    /// Returns the lock of this name without re-entry: a second take by the same thread fails at once with
    /// [`AlreadyHeld`](ErrorKind::AlreadyHeld). Redisson's `getNonReentrantLock`.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// # use lockson::ErrorKind;
    /// let lock = client.get_non_reentrant_lock("import");
    /// let guard = lock.lock()?;
    /// assert!(lock.lock().is_err_and(|error| error.kind() == ErrorKind::AlreadyHeld));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_non_reentrant_lock(&self, name: impl AsRef<str>) -> Lock {
        self.handle_to(Arc::new(Plain { reentrant: false }), name)
    }

    /// Returns the fair lock of this name, which serves waiters in the order of arrival, across processes and
    /// languages. Redisson's `getFairLock`.
    ///
    /// Costs a queue in Redis and a channel for each waiter. Waiters that died together delay the waiters behind them
    /// by at most one [`fair_patience`](ClientBuilder::fair_patience).
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // Whoever asked first is served first, on whatever machine.
    /// let ticket = client.get_fair_lock("box-office").lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        self.handle_to(Arc::new(Fair { patience: self.handle.fair_patience(), reentrant: true }), name)
    }

    /// Returns the fair lock of this name without re-entry.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let ticket = client.get_non_reentrant_fair_lock("box-office").lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_non_reentrant_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        self.handle_to(Arc::new(Fair { patience: self.handle.fair_patience(), reentrant: false }), name)
    }

    /// Returns the spin lock of this name, whose waiters ask again after pauses instead of listening. Redisson's
    /// `getSpinLock`.
    ///
    /// For many short holds, or for users without the right to subscribe. A release publishes no message.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let count = client.get_spin_lock("counter").run(|_| 1 /* a millisecond of work */)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_spin_lock(&self, name: impl AsRef<str>) -> Lock {
        self.get_spin_lock_with(name, Backoff::default())
    }

    /// Returns the spin lock of this name with the given pauses.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// # use std::time::Duration;
    /// use lockson::Backoff;
    ///
    /// let lock = client.get_spin_lock_with("counter", Backoff::fixed(Duration::from_millis(5)));
    /// let guard = lock.lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_spin_lock_with(&self, name: impl AsRef<str>, backoff: Backoff) -> Lock {
        self.handle_to(Arc::new(Spin { backoff }), name)
    }

    /// Returns the fenced lock of this name, whose guards have a [`FencingToken`]. Redisson's `getFencedLock`.
    ///
    /// Costs one key for each name, which is never deleted.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// # fn write(amount: u32, token: i64) {}
    /// let guard = client.get_fenced_lock("stock:42").lock()?;
    /// write(41, guard.token().into()); // the store refuses a smaller token than it has seen
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_fenced_lock(&self, name: impl AsRef<str>) -> Lock<FencingToken> {
        Lock::carrying(Hold::token, &self.handle, Arc::new(Fenced), self.handle.name(name.as_ref()))
    }

    /// Returns the read-write lock of this name. Redisson's `getReadWriteLock`.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let prices = client.get_read_write_lock("prices");
    /// let reading = prices.read().lock()?; // others may read, too
    /// reading.unlock()?;
    /// let writing = prices.write().lock()?; // nobody else is here
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock(self.named("lock", name))
    }

    /// Returns the election of this name. Redisson has no elections; a [fenced lock](Self::get_fenced_lock) of the same
    /// name keeps the candidates out, and the other way round.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let leadership = client.get_election("scheduler").candidate("host-7:8080").campaign()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_election(&self, name: impl AsRef<str>) -> Election {
        Election(self.named("leadership", name))
    }

    /// Returns the semaphore of this name whose permits expire. Redisson's `getPermitExpirableSemaphore`.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let calls = client.get_permit_expirable_semaphore("paid-api");
    /// calls.set_permits_once(5)?;
    /// let permit = calls.acquire(1)?; // kept until it is given back, or until this process dies
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_permit_expirable_semaphore(&self, name: impl AsRef<str>) -> PermitExpirableSemaphore {
        PermitExpirableSemaphore(self.named("semaphore", name))
    }

    /// Returns the token lock of this name: one value under the key, set by `SET NX PX` and deleted by the client
    /// that knows the value, as in redis-py's `Lock`, redsync, node-redlock, rslock and hand-written code. Redisson
    /// has no such lock.
    ///
    /// Waiters ask again after pauses, because a release publishes no message.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // `redis.lock("report", timeout=30)` in Python waits for this one.
    /// let guard = client.get_token_lock("report").lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_token_lock(&self, name: impl AsRef<str>) -> Lock {
        self.get_token_lock_with(name, TokenOptions::new())
    }

    /// Returns the token lock of this name with the given options.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::{ReleaseBy, TokenOptions};
    ///
    /// let options = TokenOptions::new().with_release_by(ReleaseBy::Transaction);
    /// let lock = client.get_token_lock_with("report", options).with_lease(std::time::Duration::from_secs(30));
    /// let guard = lock.lock()?; // without scripts a lease is needed
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_token_lock_with(&self, name: impl AsRef<str>, options: TokenOptions) -> Lock {
        self.handle_to(Arc::new(TokenLock(options)), name)
    }

    /// Returns the group lock of these values: a [multi-lock](Lock::multi) of values that share one key, taken and
    /// released in one request. Redisson's `getMultiLock(group, values)`.
    ///
    /// For many locks of one sort, like the students of a class: values of one group that do not overlap are held side
    /// by side, and a thread that holds some values may take a set with further ones. The values of a group are on one
    /// server. At most 1,000 values; a value that is named twice counts once.
    ///
    /// Java clients of the group must use `StringCodec`: with the default codec of Redisson the same values get other
    /// fields, and both sides hold them at once. Redisson judges the ends of such holds by the clocks of its clients.
    /// Where Java holds locks of the group, set [`peer_clock_skew`](ClientBuilder::peer_clock_skew) to the largest
    /// difference between the clock of a Java machine and that of the server.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let pair = client.get_group_lock("class:1000", ["student:001", "student:002"]).lock()?;
    /// // ... student 3 of the same class is free for others ...
    /// pair.unlock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_group_lock<V: AsRef<str>>(&self, group: impl AsRef<str>, values: impl IntoIterator<Item = V>) -> Lock {
        let (group, mut seen) = (group.as_ref(), HashSet::new());
        let values = values.into_iter().filter(|value| seen.insert(value.as_ref().to_owned()));
        let kind: Arc<dyn Kind> = Arc::new(Group { skew_ms: self.handle.peer_clock_skew_ms() });
        let name = |value: V| self.handle.name_of_value(group, value.as_ref());
        Lock::multi(values.map(|value| Lock::new(&self.handle, Arc::clone(&kind), name(value))))
    }

    /// Returns the semaphore of this name. Redisson's `getSemaphore`.
    ///
    /// A permit whose process dies stays taken. [`Client::held`](Self::held) does not list permits, because they belong
    /// to no owner.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let downloads = client.get_semaphore("downloads");
    /// downloads.set_permits_once(10)?;
    /// let permits = downloads.acquire(1)?; // at most ten at a time, on all machines
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore(self.named("semaphore", name))
    }

    /// Returns the count-down latch of this name. Redisson's `getCountDownLatch`.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let loaded = client.get_count_down_latch("shards-loaded");
    /// loaded.set_count_once(16)?;
    /// loaded.wait()?; // until sixteen workers have counted down
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_count_down_latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch(self.handle.named("latch", self.handle.name_of_latch(name.as_ref())))
    }

    fn named(&self, noun: &'static str, name: impl AsRef<str>) -> Named {
        self.handle.named(noun, self.handle.name(name.as_ref()))
    }

    fn handle_to(&self, kind: Arc<dyn Kind>, name: impl AsRef<str>) -> Lock {
        Lock::new(&self.handle, kind, self.handle.name(name.as_ref()))
    }

    /// Lists the holds of this client, those of leaked guards included; empty in a forked child.
    ///
    /// A hold whose thread ended is listed until its deadline, not renewed any more, and reported by
    /// [`Observer::abandoned`](crate::Observer::abandoned). A lost hold is listed no more.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// for held in client.held() {
    ///     println!("{} {} for {:?}", held.kind(), held.name(), held.held_for());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn held(&self) -> Vec<HeldLock> {
        let Some(engine) = self.handle.look() else { return vec![] };
        let mut held: Vec<_> = engine.cells.registry.all().iter().filter_map(|hold| held_lock(engine, hold)).collect();
        held.sort_by(|a, b| a.name.cmp(&b.name));
        held
    }

    /// Lists the threads of this client that wait for a lock, permits or a leadership, the longest wait first; empty in
    /// a forked child. Waits for latches are not listed.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// for waiter in client.waiting() {
    ///     println!("{:?} has waited for {} for {:?}", waiter.thread_name(), waiter.name(), waiter.waited());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn waiting(&self) -> Vec<LockWaiter> {
        self.handle.look().map_or_else(Vec::new, |engine| engine.cells.waiters.all(Instant::now()))
    }

    /// Asks each server for the settings and states that decide whether locks are safe there. Lists each server, by its
    /// address, with its answers; the crate `lockson-doctor` judges them.
    ///
    /// Changes nothing, and takes at most one [`command_timeout`](ClientBuilder::command_timeout) for each server, and
    /// one more on a cluster.
    ///
    /// ```no_run
    /// let client = lockson::Client::connect("redis://localhost")?;
    /// for (server, answers) in client.examine()? {
    ///     println!("{server} lacks rights: {:?}", answers?.missing?);
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Closed` on a closed client. A server that does not answer has an error in its place.
    pub fn examine(&self) -> Result<Vec<(String, Result<Examination>)>> {
        Ok(self.handle.begin()?.examine())
    }

    /// Asks Redis for the holders of this name, with their hosts and times to live, and for its waiters. Reads locks of all kinds and of Redisson, from any client.
    ///
    /// Changes nothing and runs no script. The questions follow each other within some milliseconds, so a lock that
    /// changes hands meanwhile may be shown in part before and in part after. For a held lock,
    /// one more connection asks the server for the list of all its connections.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let found = client.inspect("orders:42")?;
    /// if let Some(process) = found.holders().first().and_then(|holder| holder.client()) {
    ///     println!("held on {:?} by process {:?}", process.host(), process.process_id());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name; `OtherKind` for a key that is no lock; refusals and outages of the server. A
    /// command that the user may not run is no error: [`Inspection::without_rights`] lists it. Nor is a list of
    /// connections that does not come: [`Inspection::without_clients`] says why.
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection> {
        self.inspect_with(name.as_ref(), &mut BTreeMap::new())
    }

    /// Inspects these names one by one, each when the iterator is asked for it, as [`inspect`](Self::inspect) does. Each
    /// server lists its connections once, at the first held lock: a client that connects later is not shown.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// for found in client.inspect_all(client.scan("orders:", 1_000)?) {
    ///     let found = found?; // without a prefix of the client
    ///     println!("{}: {} hold it", found.name(), found.holder_count());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn inspect_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> impl Iterator<Item = Result<Inspection>> {
        let mut told = BTreeMap::new();
        names.into_iter().map(move |name| self.inspect_with(name.as_ref(), &mut told))
    }

    fn inspect_with(&self, name: &str, told: &mut BTreeMap<usize, Connections>) -> Result<Inspection> {
        self.named("lock", name).ask(|engine, name| engine.inspect(name, told))
    }

    /// Lists at most `limit` names that begin with `prefix` and certainly belong to a lock that is held, in order, from
    /// all servers. The prefix follows that of the client; names are returned with both, and
    /// are the keys in Redis.
    ///
    /// A free lock stores nothing. Semaphores and latches are not listed, because a number shows no lock; nor are
    /// expiring permits while none is taken, and token locks with a [value](crate::TokenOptions::with_value) of their own
    /// form. `SCAN` walks all keys of a server, in steps that block no other client; a lock that is taken, given back
    /// or moved meanwhile may be missing.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// for name in client.scan("orders:", 1_000)? {
    ///     println!("{name}");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refusals and outages of any server, also for a user without `+scan`, `+type`, `+hrandfield` and `+getrange`;
    /// `Closed` on a closed client. A scan that an outage, a lost connection or a fail-over disturbs begins anew, for one
    /// more [`command_timeout`](ClientBuilder::command_timeout).
    pub fn scan(&self, prefix: impl AsRef<str>, limit: usize) -> Result<Vec<String>> {
        self.handle.begin()?.scan(prefix.as_ref(), limit)
    }

    /// Returns the uuid at the start of the owner ids of this client, and in the names that `CLIENT LIST` shows for
    /// its connections. The id of an expiring permit begins with the first 16 digits of the uuid.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("lock:orders:42").lock()?;
    /// assert!(guard.owner().starts_with(client.id()));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn id(&self) -> &str {
        self.handle.client_id()
    }

    /// Ends every wait of this client with `Cancelled`, now and later: the first step of a shutdown. It lasts until
    /// [`close`](Self::close).
    ///
    /// A call that may wait fails at once, also where the lock is free, so a loop over `lock()` ends. Holders go on:
    /// their locks are renewed, and may be re-entered and released, unlike after
    /// [`Cancel::cancel`](crate::Cancel::cancel). So do calls that do not wait, as `try_lock()`, and waits for a loss.
    /// A multi-lock ends its wait with the first of its clients. Not to be called in a signal handler, because it takes a
    /// mutex. Does nothing in a forked child.
    ///
    /// ```no_run
    /// # use std::thread::JoinHandle;
    /// # fn end(client: lockson::Client, workers: Vec<JoinHandle<()>>) {
    /// // After SIGTERM:
    /// client.stop_waiting(); // who waits for a lock gets `Cancelled`
    /// for worker in workers {
    ///     let _ = worker.join(); // holders finish their work
    /// }
    /// client.close();
    /// # }
    /// ```
    pub fn stop_waiting(&self) {
        if let Some(engine) = self.handle.look() {
            engine.life.stop_waiting();
        }
    }

    /// Ends every wait with `Closed` and every hold with `Lost(Closed)`, releases the locks, waits for running calls
    /// of other threads, and closes all connections.
    ///
    /// Takes at most [`drop_timeout`](ClientBuilder::drop_timeout); a lock that is not released by then expires. A
    /// second call returns at once. Does nothing in a forked child.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// # let stop = || true;
    /// if stop() {
    ///     client.close(); // waits on other threads end with `Closed`, holds are given back
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn close(&self) {
        if let Some(engine) = self.handle.look() {
            engine.close();
        }
    }
}

impl ClientBuilder {
    /// Checks the settings, opens the client, and checks that the server answers.
    ///
    /// ```no_run
    /// let client = lockson::Client::builder("redis://localhost").max_connections(16).connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and `Config` for impossible settings.
    pub fn connect(self) -> Result<Client> {
        let began = Instant::now();
        let client = self.connect_lazily()?;
        client.handle.begin()?.sender.greet(began).map_err(at_the_start)?;
        Ok(client)
    }

    /// Checks the settings and opens the client; the first use connects to the server.
    ///
    /// ```
    /// // The service starts although Redis does not answer yet.
    /// let client = lockson::Client::builder("redis://redis.example").connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Config` for impossible settings, a malformed URL, or a file for TLS that cannot be used; `Unsupported` for TLS
    /// without the cargo feature `tls`.
    pub fn connect_lazily(self) -> Result<Client> {
        let Self { target, config } = self;
        let (config, owners) = (config.checked()?, Owners::new());
        // An owner id in Redis begins with the id of the client, so `CLIENT LIST` leads from an owner to its process.
        let shown = owners.connection_name(&config.client_name);
        let target = target?;
        #[cfg(feature = "credentials")]
        config.check_credentials(&target)?;
        #[cfg(feature = "tls")]
        let tls = connector(config.tls.clone(), target.address(), Instant::now().after(config.command_timeout))?;
        #[cfg(not(feature = "tls"))]
        let tls = None;
        #[cfg(feature = "credentials")]
        let provider = config.credentials.clone();
        let dialer: Arc<MakesDialers> = Arc::new(move |address| {
            let dialer = Dialer::new(address, tls.clone(), shown.clone());
            #[cfg(feature = "credentials")]
            let dialer = dialer.with_credentials(provider.clone());
            dialer
        });
        let (label, authority) = (target.label(), target.authority());
        let Config { command_timeout, max_connections, sharded_pub_sub, .. } = config;
        let one = |dialer| Box::new(Standalone(Arc::new(Server::new(dialer, max_connections))));
        let topology: Box<dyn Topology> = match target {
            Target::Fixed(address) => one(dialer(address)),
            Target::Sentinel(service) => one(master_of_service(label, service, command_timeout, dialer)),
            Target::Replicated(login, nodes) => one(master_among(label, (login, nodes), command_timeout, dialer)),
            Target::Cluster(login, seeds) => {
                Box::new(Cluster::new(login, seeds, dialer, max_connections, sharded_pub_sub, command_timeout))
            }
        };
        Ok(Client { handle: Handle::new(Engine::new(config, owners, authority, topology)?) })
    }
}

/// Makes the list entry of a hold; `None` for a hold that has ended.
fn held_lock(engine: &Engine, hold: &HoldState) -> Option<HeldLock> {
    engine.keeper.with_ledger(hold, |ledger, now| {
        let counts = ledger.counts();
        let side = if counts.exclusive > 0 { Side::Exclusive } else { Side::Shared };
        (ledger.look(now) == Phase::Live).then(|| HeldLock {
            name: hold.name.to_string(),
            owner: hold.owner.to_string(),
            kind: hold.kind.label(side),
            hold_count: u64::try_from(counts.exclusive + counts.shared).unwrap_or(u64::MAX),
            token: hold.token().map(FencingToken),
            held_for: hold.since.until(now),
            remaining: now.until(ledger.good_until),
            is_renewed: ledger.renewal(now).is_some(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ClientBuilder {
        /// A client of these servers, whatever the URL says.
        pub(crate) fn open(self, topology: Box<dyn Topology>) -> Result<Client> {
            let authority = topology.servers()[0].label();
            let engine = Engine::new(self.config.checked()?, Owners::new(), authority, topology)?;
            Ok(Client { handle: Handle::new(engine) })
        }
    }
}
