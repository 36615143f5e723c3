//! The door: open a client, ask it for locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{ClientBuilder, Config};
use crate::conn::{Address, Dialer, Server, Standalone};
use crate::engine::{Engine, Phase};
use crate::error::{Error, ErrorKind, Result};
use crate::kinds::{Backoff, Fair, Fenced, ReadWriteLock, Reentrant, Spin, TokenLock, TokenOptions};
use crate::lock::Lock;

/// A client of one Redis, shared by all threads of a process.
///
/// Open one and clone it; clones are the same client. It stays open while it, a handle or a guard
/// of it is alive, or until [`close`](Self::close). A forked child must open its own.
///
/// ```no_run
/// use lockson::Client;
///
/// let client = Client::connect("redis://localhost")?;
/// let guard = client.lock("nightly-report").lock()?;
/// // ... only one machine is here at a time ...
/// guard.unlock()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
}

/// One lock that this client holds, as [`Client::held`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    name: String,
    owner: String,
    hold_count: u64,
    remaining: Duration,
}

impl Client {
    /// Opens a client with default settings and makes sure that the server answers.
    ///
    /// URLs: `redis://[user:password@]host[:port][/database]`, `redis+unix:///path[?db=n]`; with
    /// `?protocol=resp3` the newer protocol is spoken.
    ///
    /// # Errors
    ///
    /// `Config` for a malformed URL, `Unsupported` for one with TLS, `Connection` when the server is not
    /// reached, `Refused` when it does not let us in.
    pub fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect()
    }

    /// Opens a client with the URL in the environment variable `REDIS_URL`.
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
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// Returns the lock of this name. No I/O; a bad name fails when it is used.
    ///
    /// A name has 1 to 4,096 bytes; any UTF-8 is good.
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(&self.engine, Arc::new(Reentrant { once: false }), name)
    }

    /// Returns the lock of this name that its holder cannot take again: a second take by the same
    /// thread is [`AlreadyHeld`](ErrorKind::AlreadyHeld) at once. Redisson's `getNonReentrantLock`.
    pub fn non_reentrant_lock(&self, name: &str) -> Lock {
        Lock::new(&self.engine, Arc::new(Reentrant { once: true }), name)
    }

    /// Returns the lock of this name that serves waiters in the order they came, across processes
    /// and languages. Redisson's `getFairLock`.
    ///
    /// Costs a queue in Redis and a channel for each waiter. A waiter that died costs those behind
    /// it at most the [`fair_patience`](ClientBuilder::fair_patience).
    pub fn fair_lock(&self, name: &str) -> Lock {
        self.fair(name, false)
    }

    /// Returns the fair lock of this name that its holder cannot take again.
    pub fn non_reentrant_fair_lock(&self, name: &str) -> Lock {
        self.fair(name, true)
    }

    /// Returns the lock of this name whose waiters ask again after pauses instead of listening.
    /// Redisson's `getSpinLock`.
    ///
    /// For many short holds, or where listening is not allowed. Nobody is told of a release.
    pub fn spin_lock(&self, name: &str) -> Lock {
        self.spin_lock_with(name, Backoff::default())
    }

    /// Returns the spin lock of this name with pauses of your own.
    pub fn spin_lock_with(&self, name: &str, backoff: Backoff) -> Lock {
        Lock::new(&self.engine, Arc::new(Spin { backoff }), name)
    }

    /// Returns the lock of this name whose guards carry a [`Token`](crate::Token). Redisson's
    /// `getFencedLock`.
    ///
    /// Costs one key for each name that is never deleted.
    pub fn fenced_lock(&self, name: &str) -> Lock {
        Lock::new(&self.engine, Arc::new(Fenced), name)
    }

    /// Returns the read-write lock of this name. Redisson's `getReadWriteLock`.
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        ReadWriteLock::new(&self.engine, name)
    }

    /// Returns the lock of this name that is one value under its key, set by `SET NX PX` and deleted
    /// by whoever knows the value: the lock of redis-py's `Lock`, redsync, node-redlock, rslock and
    /// hand-written code. Redisson does not take part in it.
    ///
    /// Waiters ask again after pauses, as nobody is told of a release.
    pub fn token_lock(&self, name: &str) -> Lock {
        self.token_lock_with(name, TokenOptions::new())
    }

    /// Returns the token lock of this name with options of your own.
    pub fn token_lock_with(&self, name: &str, options: TokenOptions) -> Lock {
        Lock::new(&self.engine, Arc::new(TokenLock(options)), name)
    }

    fn fair(&self, name: &str, once: bool) -> Lock {
        let patience = self.engine.fair_patience;
        Lock::new(&self.engine, Arc::new(Fair { patience, once }), name)
    }

    /// Lists what this client holds now, also guards that were leaked; nothing in a forked child.
    pub fn held(&self) -> Vec<Held> {
        let mut held = vec![];
        if self.engine.is_forked() {
            return held;
        }
        for hold in self.engine.registry.all() {
            let live = self.engine.with(&hold, |ledger, now| {
                (ledger.look(now) == Phase::Live).then(|| (ledger.counts(), now.until(ledger.good_until())))
            });
            if let Some((counts, remaining)) = live {
                let hold_count = u64::try_from(counts.exclusive + counts.shared).unwrap_or(u64::MAX);
                held.push(Held { name: hold.name.to_string(), owner: hold.owner.to_string(), hold_count, remaining });
            }
        }
        held.sort_by(|a, b| a.name.cmp(&b.name));
        held
    }

    /// Returns the uuid that begins every owner id of this client.
    pub fn id(&self) -> &str {
        self.engine.owners.client()
    }

    /// Ends every wait with `Closed` and every hold with `Lost(Closed)`, gives back what it can
    /// within [`drop_timeout`](ClientBuilder::drop_timeout), and closes all connections.
    ///
    /// What could not be given back ends with its time to live.
    pub fn close(&self) {
        self.engine.close();
    }
}

impl ClientBuilder {
    /// Checks the settings, opens the client and makes sure that the server answers.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and `Config` for impossible settings.
    pub fn connect(self) -> Result<Client> {
        let client = self.connect_lazily()?;
        client.engine.greet()?;
        Ok(client)
    }

    /// Checks the settings and opens the client; the server is asked at the first use.
    ///
    /// # Errors
    ///
    /// `Config` for impossible settings or a malformed URL, `Unsupported` for one with TLS.
    pub fn connect_lazily(self) -> Result<Client> {
        let Self { url, config } = self;
        config.check()?;
        let topology = Standalone::new(server(&url.0, &config)?);
        Ok(Client { engine: Engine::new(config, Box::new(topology))? })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Held {
    /// Returns the name of the lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the owner id as it stands in Redis.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns how often it is held.
    pub fn hold_count(&self) -> u64 {
        self.hold_count
    }

    /// Returns how long it is held yet if nothing prolongs it.
    pub fn remaining(&self) -> Duration {
        self.remaining
    }
}

fn server(url: &str, config: &Config) -> Result<Server> {
    let dialer = Dialer::new(Address::parse(url)?, config.client_name.clone());
    Ok(Server::new(dialer, config.max_connections))
}
