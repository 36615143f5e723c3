//! The door: open a client, ask it for locks.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::config::ClientBuilder;
#[cfg(test)]
use crate::conn::Topology;
use crate::conn::{Address, Dialer, Server, Standalone};
use crate::engine::{Engine, Handle, HoldState, Kind};
use crate::error::{Error, ErrorKind, Result};
use crate::kinds::{Backoff, Fair, Fenced, ReadWriteLock, Reentrant, Spin, TokenLock, TokenOptions};
use crate::listing::{HeldLock, LockWaiter};
use crate::lock::Lock;
use crate::owner::Owners;
use crate::script::Side;
use crate::state::ledger::Phase;
use crate::time::Instant;
use crate::token::Token;
use crate::transport::ServerNumber;

/// A client of one Redis, shared by all threads of a process.
///
/// Open one and clone it; clones are the same client. It stays open while it, a handle or a guard
/// of it is alive, or until [`close`](Self::close), which dropping the last one of them does, too. A
/// forked child must open its own: there every call on this one fails with `Closed`.
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
#[derive(Clone)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Opens a client with default settings and makes sure that the server answers.
    ///
    /// URLs: `redis://[user:password@]host[:port][/database]` and `redis+unix:///path`, both with the
    /// parameters `?db=n&user=name&pass=word&protocol=resp3`. In user and password `/`, `?`, `#`, `@` and
    /// `%` are written `%2F`, `%3F`, `%23`, `%40` and `%25`. A user without a password logs in with an
    /// empty one. What else a URL says is refused by name.
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
    /// `Config` for a URL that cannot be meant, `Unsupported` for one with TLS and for a node of a Redis
    /// Cluster or a Sentinel, `Connection` when the server is not reached, `Refused` when it does not let
    /// us in, or is a replica.
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
    /// `Config` when it is not set; otherwise as [`connect`](Self::connect).
    pub fn from_env() -> Result<Self> {
        let url = std::env::var("REDIS_URL");
        Self::connect(
            &url.map_err(|_| {
                Error::new(ErrorKind::Config, "set REDIS_URL to the server's URL, like redis://localhost")
            })?,
        )
    }

    /// Starts the settings of a client for this URL.
    ///
    /// ```no_run
    /// let client = lockson::Client::builder("redis://localhost").name_prefix("shop:").connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// Returns the lock of this name. No I/O; a bad name fails when it is used.
    ///
    /// A name has 1 to 4,096 bytes, prefix included; any UTF-8 is good.
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
        self.lock(Arc::new(Reentrant { once: false }), name)
    }

    /// Returns the lock of this name that its holder cannot take again: a second take by the same
    /// thread is [`AlreadyHeld`](ErrorKind::AlreadyHeld) at once. Redisson's `getNonReentrantLock`.
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
        self.lock(Arc::new(Reentrant { once: true }), name)
    }

    /// Returns the lock of this name that serves waiters in the order they came, across processes
    /// and languages. Redisson's `getFairLock`.
    ///
    /// Costs a queue in Redis and a channel for each waiter. Waiters that died together cost those
    /// behind them at most one [`fair_patience`](ClientBuilder::fair_patience).
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// // Whoever asked first is served first, on whatever machine.
    /// let ticket = client.get_fair_lock("box-office").lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        self.fair(name, false)
    }

    /// Returns the fair lock of this name that its holder cannot take again.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let ticket = client.get_non_reentrant_fair_lock("box-office").lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_non_reentrant_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        self.fair(name, true)
    }

    /// Returns the lock of this name whose waiters ask again after pauses instead of listening.
    /// Redisson's `getSpinLock`.
    ///
    /// For many short holds, or where listening is not allowed. Nobody is told of a release.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let count = client.get_spin_lock("counter").run(|_| 1 /* a millisecond of work */)?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_spin_lock(&self, name: impl AsRef<str>) -> Lock {
        self.get_spin_lock_with(name, Backoff::default())
    }

    /// Returns the spin lock of this name with pauses of your own.
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
        self.lock(Arc::new(Spin { backoff }), name)
    }

    /// Returns the lock of this name whose guards carry a [`Token`]. Redisson's
    /// `getFencedLock`.
    ///
    /// Costs one key for each name that is never deleted.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// # fn write(amount: u32, token: i64) {}
    /// let guard = client.get_fenced_lock("stock:42").lock()?;
    /// write(41, guard.token().into()); // the store refuses a smaller token than it has seen
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_fenced_lock(&self, name: impl AsRef<str>) -> Lock<Token> {
        Lock::fenced(&self.handle, Arc::new(Fenced), self.handle.name(name.as_ref()))
    }

    /// Returns the read-write lock of this name. Redisson's `getReadWriteLock`.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let prices = client.get_read_write_lock("prices");
    /// let reading = prices.get_read_lock().lock()?; // others may read, too
    /// reading.unlock()?;
    /// let writing = prices.get_write_lock().lock()?; // nobody else is here
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock::new(&self.handle, self.handle.name(name.as_ref()))
    }

    /// Returns the lock of this name that is one value under its key, set by `SET NX PX` and deleted
    /// by whoever knows the value: the lock of redis-py's `Lock`, redsync, node-redlock, rslock and
    /// hand-written code. Redisson does not take part in it.
    ///
    /// Waiters ask again after pauses, as nobody is told of a release.
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

    /// Returns the token lock of this name with options of your own.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::{ReleaseBy, TokenOptions};
    ///
    /// let options = TokenOptions::new().release_by(ReleaseBy::Transaction);
    /// let guard = client.get_token_lock_with("report", options).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn get_token_lock_with(&self, name: impl AsRef<str>, options: TokenOptions) -> Lock {
        self.lock(Arc::new(TokenLock(options)), name)
    }

    fn fair(&self, name: impl AsRef<str>, once: bool) -> Lock {
        let patience = self.handle.fair_patience();
        self.lock(Arc::new(Fair { patience, once }), name)
    }

    fn lock(&self, kind: Arc<dyn Kind>, name: impl AsRef<str>) -> Lock {
        Lock::new(&self.handle, kind, self.handle.name(name.as_ref()))
    }

    /// Lists what this client holds now, also guards that were leaked; nothing in a forked child.
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
        let mut held: Vec<_> = engine.registry.all().iter().filter_map(|hold| held_lock(engine, hold)).collect();
        held.sort_by(|a, b| a.name.cmp(&b.name));
        held
    }

    /// Lists the threads of this client that wait for a lock now, those that have waited longest first;
    /// nothing in a forked child.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// for waiter in client.waiting() {
    ///     println!("{:?} waits for {} since {:?}", waiter.thread_name(), waiter.name(), waiter.waited());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn waiting(&self) -> Vec<LockWaiter> {
        self.handle.look().map_or_else(Vec::new, |engine| engine.waiters.all(Instant::now()))
    }

    /// Returns the uuid that begins every owner id of this client, and ends the names that `CLIENT LIST`
    /// shows for its connections.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_lock("orders:42").lock()?;
    /// assert!(guard.owner().starts_with(client.id()));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn id(&self) -> &str {
        self.handle.client_id()
    }

    /// Ends every wait with `Closed` and every hold with `Lost(Closed)`, gives the holds back, lets the calls
    /// under way on other threads end, and closes all connections.
    ///
    /// Takes at most [`drop_timeout`](ClientBuilder::drop_timeout); what could not be given back by then ends
    /// with its time to live. A second call returns at once. In a forked child it does nothing.
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
        self.handle.close();
    }
}

impl ClientBuilder {
    /// Checks the settings, opens the client and makes sure that the server answers.
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
        let client = self.connect_lazily()?;
        client.handle.begin()?.greet()?;
        Ok(client)
    }

    /// Checks the settings and opens the client; the server is asked at the first use.
    ///
    /// ```
    /// // The service starts although Redis does not answer yet.
    /// let client = lockson::Client::builder("redis://redis.example").connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Config` for impossible settings or a malformed URL, `Unsupported` for one with TLS.
    pub fn connect_lazily(self) -> Result<Client> {
        let Self { url, config } = self;
        let (config, owners) = (config.checked()?, Owners::new());
        // An owner in Redis begins with the client's id, so the id leads from an owner to its host.
        let shown = format!("{}:{}", config.client_name, owners.client());
        let dialer = Dialer::new(ServerNumber::default(), Address::parse(&url.0)?, shown);
        let server = Server::new(dialer, config.max_connections);
        let engine = Engine::new(config, owners, Box::new(Standalone::new(server)))?;
        Ok(Client { handle: Handle::new(engine) })
    }

    /// A client of these servers, whatever the URL says.
    #[cfg(test)]
    pub(crate) fn open(self, topology: Box<dyn Topology>) -> Result<Client> {
        let engine = Engine::new(self.config.checked()?, Owners::new(), topology)?;
        Ok(Client { handle: Handle::new(engine) })
    }
}

/// A panic of a caller's own code leaves nothing half done: no mutex is held while it runs.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// The list's entry of one hold; `None` when the hold has ended.
fn held_lock(engine: &Engine, hold: &HoldState) -> Option<HeldLock> {
    engine.with(hold, |ledger, now| {
        let counts = ledger.counts();
        let side = if counts.exclusive > 0 { Side::Exclusive } else { Side::Shared };
        (ledger.look(now) == Phase::Live).then(|| HeldLock {
            name: hold.name.to_string(),
            owner: hold.owner.to_string(),
            kind: hold.kind.label(side),
            hold_count: u64::try_from(counts.exclusive + counts.shared).unwrap_or(u64::MAX),
            token: hold.token.map(Token::new),
            held_for: hold.since.until(now),
            remaining: now.until(ledger.good_until()),
            is_renewed: ledger.renewal(now).is_some(),
        })
    })
}
