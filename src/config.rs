//! All settings with defaults and units, and their builder.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "credentials")]
use crate::conn::Provider;
use crate::conn::Target;
#[cfg(feature = "credentials")]
use crate::credentials::Credentials;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Observer;
use crate::name::LockName;
use crate::time::Lease;

/// Collects the settings of a client; [`connect`](Self::connect) checks the settings and opens the client.
///
/// ```no_run
/// # use std::time::Duration;
/// # use lockson::Client;
/// let client = Client::builder("redis://localhost")
///     .watchdog(Duration::from_secs(15), Duration::from_secs(5))
///     .max_connections(16)
///     .connect()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until connect()"]
pub struct ClientBuilder {
    /// What the URL leads to, which shows no password.
    pub(crate) target: Result<Target>,
    pub(crate) config: Config,
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) watchdog_timeout: Duration,
    pub(crate) watchdog_interval: Duration,
    pub(crate) watchdog_batch: usize,
    pub(crate) command_timeout: Duration,
    /// Whether the command timeout was set explicitly.
    pub(crate) has_command_timeout: bool,
    pub(crate) outage_limit: Duration,
    pub(crate) drop_timeout: Duration,
    pub(crate) fair_patience: Duration,
    pub(crate) peer_clock_skew: Duration,
    pub(crate) durability: Option<Durability>,
    /// Redisson's AUTO unless set.
    pub(crate) sharded_pub_sub: Option<bool>,
    pub(crate) max_connections: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) client_name: String,
    pub(crate) name_prefix: String,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::tls::Tls>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    #[cfg(feature = "credentials")]
    pub(crate) credentials: Option<Provider>,
}

impl ClientBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self { target: Target::parse(url), config: Config::default() }
    }

    fn with(mut self, set: impl FnOnce(&mut Config)) -> Self {
        set(&mut self.config);
        self
    }

    /// Sets the time to live of locks taken without a lease, and how often the watchdog renews them.
    ///
    /// A crashed holder blocks others for at most the timeout. The timeout is 1 second to 365 days,
    /// the interval 100 ms to half of the timeout. Defaults to 30 seconds and 10 seconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .watchdog(Duration::from_secs(15), Duration::from_secs(5))
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn watchdog(self, timeout: Duration, interval: Duration) -> Self {
        self.with(|config| (config.watchdog_timeout, config.watchdog_interval) = (timeout, interval))
    }

    /// Sets the number of locks that the watchdog renews together, in requests of up to 20 locks: more where the link is
    /// so slow that the renewal of all would take more than a quarter of the interval. 1 to 1,000. Defaults to 100.
    ///
    /// ```
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .watchdog_batch(500)
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn watchdog_batch(self, most: usize) -> Self {
        self.with(|config| config.watchdog_batch = most)
    }

    /// Sets the prefix of every name, in Redis and in all texts, as a Redisson `NameMapper` that adds a prefix. At
    /// most 4,095 bytes, because a whole name has at most 4,096. Defaults to no prefix.
    ///
    /// Handles, guards, events and lists show the name with the prefix; given to `get_lock`, such a name gets the
    /// prefix a second time.
    ///
    /// ```
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .name_prefix("shop:") // get_lock("orders") is the key `shop:orders`
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name_prefix(self, prefix: impl AsRef<str>) -> Self {
        self.with(|config| prefix.as_ref().clone_into(&mut config.name_prefix))
    }

    /// Sets the time limit of one request, connecting included.
    ///
    /// 10 ms to 1 hour, and shorter than the timeout of the [watchdog](Self::watchdog): a renewal that takes longer
    /// than the lock lives keeps no lock. Defaults to 3 seconds, or to three quarters of the timeout of the watchdog
    /// where that is shorter.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .command_timeout(Duration::from_millis(500))
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn command_timeout(self, timeout: Duration) -> Self {
        self.with(|config| (config.command_timeout, config.has_command_timeout) = (timeout, true))
    }

    /// Sets whether a client of a Redis Cluster publishes and subscribes by sharded pub/sub, as Redisson's
    /// `shardedSubscriptionMode` `ON` and `OFF`. No effect without a cluster.
    ///
    /// All clients of a lock must use the same kind: a message of one kind does not reach listeners of the other, whose
    /// waiters then ask after a second, and those of Redisson after the time to live. Set this only where some clients
    /// set it. Defaults to Redisson's `AUTO`: sharded where the first node that answers knows sharded pub/sub, which is
    /// Redis 7.0 and later.
    ///
    /// ```
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .sharded_pub_sub(false) // the Java side has `shardedSubscriptionMode: OFF`
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn sharded_pub_sub(self, sharded: bool) -> Self {
        self.with(|config| config.sharded_pub_sub = Some(sharded))
    }

    /// Sets how long [`Lock::lock`](crate::Lock::lock), which waits without limit for a busy lock, keeps trying while
    /// the server does not respond. At most 365 days. Defaults to 10 seconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .outage_limit(Duration::from_secs(120)) // bear the restart of a server
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn outage_limit(self, limit: Duration) -> Self {
        self.with(|config| config.outage_limit = limit)
    }

    /// Sets how long the drop of a guard may take before the release goes on in the background. At most 1 hour.
    /// Defaults to 1 second.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .drop_timeout(Duration::from_millis(200))
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn drop_timeout(self, timeout: Duration) -> Self {
        self.with(|config| config.drop_timeout = timeout)
    }

    /// Sets how long a silent waiter for a fair lock keeps its place. A crashed waiter delays the waiters behind by
    /// this time.
    ///
    /// Waiters ask at least twice in that time. In a fleet with Redisson, whose clients use their own clocks, add the
    /// largest difference between clocks. Give all clients of a lock the same time: a client judges the waiters of the
    /// others by its own. 2 seconds to 1 hour. Defaults to 5 seconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .fair_patience(Duration::from_secs(10))
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn fair_patience(self, patience: Duration) -> Self {
        self.with(|config| config.fair_patience = patience)
    }

    /// Sets the largest difference between the clock of the server and the clocks of Redisson clients that use the same
    /// group locks and expiring permits.
    ///
    /// The values of a group have deadlines in place of times to live, and Redisson judges the deadlines by the clock
    /// of its machine. The time is added to each deadline that the client writes or judges: another client takes the
    /// value of a crashed holder, or of `once_per`, by so much later, and by twice as much where both have set it.
    /// Expiring permits stay taken for that much longer than their holder believes. Other locks have no use for it. At
    /// most 1 hour. Defaults to zero, for fleets without Redisson or with clocks in step.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .peer_clock_skew(Duration::from_millis(500))
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn peer_clock_skew(self, skew: Duration) -> Self {
        self.with(|config| config.peer_clock_skew = skew)
    }

    /// Sets what every lock must have reached before it counts as taken. Expiring permits and leaderships count as
    /// locks; counting semaphores and latches do not wait. Defaults to nothing.
    ///
    /// [`Lock::with_durability`](crate::Lock::with_durability) sets another one for a handle. For a lock with a short
    /// lease the time of the client's setting to reach the replicas is at most half of the lease.
    ///
    /// ```
    /// # use lockson::Durability;
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .durability(Durability::replicas(1))
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn durability(self, durability: Durability) -> Self {
        self.with(|config| config.durability = Some(durability))
    }

    /// Sets the largest number of open connections for requests to one server.
    ///
    /// At most two more connections are open: one listens, one renews and watches. 1 to 10,000. Defaults to 64.
    ///
    /// ```
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .max_connections(16)
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn max_connections(self, most: usize) -> Self {
        self.with(|config| config.max_connections = most)
    }

    /// Sets the time after which an idle connection is closed; one connection is always kept. 10 ms to 365 days.
    /// Defaults to 30 seconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .idle_timeout(Duration::from_secs(300))
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        self.with(|config| config.idle_timeout = timeout)
    }

    /// Sets the name that `CLIENT LIST` shows for the connections of the client, followed by the
    /// [id](crate::Client::id) of the client, the host and the id of the process, with colons between: 1 to 64 printable ASCII characters without spaces. Defaults to
    /// `lockson`.
    ///
    /// ```
    /// let client = lockson::Client::builder("redis://localhost")
    ///     .client_name("orders-service")
    ///     .connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn client_name(self, name: impl AsRef<str>) -> Self {
        self.with(|config| name.as_ref().clone_into(&mut config.client_name))
    }

    /// Sets the provider of user and password, which is asked whenever the client connects: for passwords that rotate
    /// and tokens that expire. Needs the feature `credentials`. Defaults to what the URL says.
    ///
    /// Open connections go on after a rotation, until the server closes them; new ones use the new credentials. After a
    /// refused login the provider is asked once more. A URL with a user or a password is refused as `Config`.
    ///
    /// ```no_run
    /// use lockson::{Client, Login};
    ///
    /// let client = Client::builder("redis://redis.example")
    ///     .credentials(|| Ok(Login::new("app", std::fs::read_to_string("/run/secrets/redis")?.trim_end())))
    ///     .connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    #[cfg(feature = "credentials")]
    pub fn credentials(self, provider: impl Credentials + 'static) -> Self {
        self.with(|config| config.credentials = Some(Provider::new(provider)))
    }

    /// Sets whom to trust, and the certificate of this client, for a URL with TLS: `rediss://`, `valkeys://`, or
    /// `rediss+` with `cluster`, `sentinel` or `replicated`. Refused with any other URL. Defaults to the authorities of
    /// the system. Needs the cargo feature `tls`.
    ///
    /// ```no_run
    /// use lockson::{Client, Tls};
    ///
    /// let client = Client::builder("rediss://redis.example")
    ///     .tls(Tls::new().with_ca_file("/etc/redis/ca.pem"))
    ///     .connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: crate::tls::Tls) -> Self {
        self.with(|config| config.tls = Some(tls))
    }

    /// Sets the observer, which gets the events of the client. Defaults to no observer.
    ///
    /// ```
    /// use lockson::{LockLost, Observer};
    ///
    /// #[derive(Debug)]
    /// struct Log;
    ///
    /// impl Observer for Log {
    ///     fn lost(&self, event: &LockLost) {
    ///         eprintln!("lost {}", event.name());
    ///     }
    /// }
    ///
    /// let client = lockson::Client::builder("redis://localhost").observer(Log).connect_lazily()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn observer(self, observer: impl Observer + 'static) -> Self {
        self.with(|config| config.observer = Some(Arc::new(observer)))
    }
}

/// The observer is only ever called, and what it panics with is caught.
impl UnwindSafe for ClientBuilder {}
impl RefUnwindSafe for ClientBuilder {}

impl Config {
    /// Tells the observer of an event, which is made only for an observer. A panic of the observer must not end a thread
    /// of the client or a request of a caller.
    pub(crate) fn observe<E>(&self, tell: fn(&(dyn Observer + 'static), &E), event: impl FnOnce() -> E) {
        if let Some(observer) = &self.observer {
            let _ = catch_unwind(AssertUnwindSafe(|| tell(&**observer, &event())));
        }
    }

    /// Refuses settings that cannot work, before any connection is opened, and derives defaults from other settings.
    pub(crate) fn checked(mut self) -> Result<Self> {
        let (timeout, interval) = (self.watchdog_timeout, self.watchdog_interval);
        within("the timeout of watchdog()", timeout, SECOND, Lease::LONGEST, "1 second to 365 days")?;
        let (half, bounds) = (timeout / 2, format!("100 ms to half of the timeout ({:?})", timeout / 2));
        within("the interval of watchdog()", interval, Duration::from_millis(100), half, &bounds)?;
        if !self.has_command_timeout {
            self.command_timeout = self.command_timeout.min(timeout * 3 / 4);
        }
        within("command_timeout()", self.command_timeout, Duration::from_millis(10), HOUR, "10 ms to 1 hour")?;
        if self.command_timeout >= timeout {
            return fail(format!(
                "command_timeout() cannot be {:?} where the timeout of watchdog() is {timeout:?}: a renewal could take \
                 longer than the lock lives; give less than {timeout:?}, a third or a tenth of it",
                self.command_timeout
            ));
        }
        within("fair_patience()", self.fair_patience, SECOND * 2, HOUR, "2 seconds to 1 hour")?;
        within("peer_clock_skew()", self.peer_clock_skew, Duration::ZERO, HOUR, "at most 1 hour")?;
        if let Some(durability) = self.durability {
            durability.checked(ErrorKind::Config, timeout)?;
        }
        within("outage_limit()", self.outage_limit, Duration::ZERO, Lease::LONGEST, "at most 365 days")?;
        within("drop_timeout()", self.drop_timeout, Duration::ZERO, HOUR, "at most 1 hour")?;
        within("idle_timeout()", self.idle_timeout, Duration::from_millis(10), Lease::LONGEST, "10 ms to 365 days")?;
        within("watchdog_batch()", self.watchdog_batch, 1, 1_000, "1 to 1,000")?;
        within("max_connections()", self.max_connections, 1, 10_000, "1 to 10,000")?;
        let name = &self.client_name;
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let name: String = name.chars().take(64).collect();
            let bounds = "1 to 64 printable ASCII characters without spaces";
            return fail(format!("client_name() cannot be {name:?}; give {bounds}"));
        }
        if self.name_prefix.len() >= LockName::LONGEST {
            let (bytes, most) = (self.name_prefix.len(), LockName::LONGEST);
            return fail(format!("name_prefix() cannot have {bytes} bytes: a name with its prefix has at most {most}"));
        }
        Ok(self)
    }

    /// Refuses a URL with credentials where a provider gives others.
    #[cfg(feature = "credentials")]
    pub(crate) fn check_credentials(&self, target: &Target) -> Result<()> {
        if self.credentials.is_some() && target.address().login().is_some() {
            return fail(
                "credentials() cannot be set where the URL has a user or a password; leave them out of the URL".into(),
            );
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watchdog_timeout: Duration::from_secs(30),
            watchdog_interval: Duration::from_secs(10),
            watchdog_batch: 100,
            command_timeout: Duration::from_secs(3),
            has_command_timeout: false,
            outage_limit: Duration::from_secs(10),
            drop_timeout: Duration::from_secs(1),
            fair_patience: Duration::from_secs(5),
            peer_clock_skew: Duration::ZERO,
            durability: None,
            sharded_pub_sub: None,
            max_connections: 64,
            idle_timeout: Duration::from_secs(30),
            client_name: "lockson".into(),
            name_prefix: String::new(),
            #[cfg(feature = "tls")]
            tls: None,
            observer: None,
            #[cfg(feature = "credentials")]
            credentials: None,
        }
    }
}

fn within<T: PartialOrd + Debug>(setting: &str, value: T, least: T, most: T, bounds: &str) -> Result<()> {
    if value < least || value > most {
        let value = format!("{value:?}").replace(&format!("{:?}", Duration::MAX), "Duration::MAX");
        return fail(format!("{setting} cannot be {value}; give {bounds}"));
    }
    Ok(())
}

fn fail<T>(text: String) -> Result<T> {
    Err(Error::new(ErrorKind::Config, text))
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let check = |setting: &str, change: &dyn Fn(ClientBuilder) -> ClientBuilder| {
            let error = change(ClientBuilder::new("redis://h")).config.checked().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains(&format!("{setting}() cannot")), "{error}");
        };
        let seconds = Duration::from_secs;
        let millis = Duration::from_millis;
        check("watchdog", &|b| b.watchdog(millis(999), millis(300)));
        check("watchdog", &|b| b.watchdog(seconds(10), seconds(6)));
        check("watchdog", &|b| b.watchdog(seconds(10), millis(99)));
        check("watchdog", &|b| b.watchdog(Duration::MAX, seconds(1)));
        check("command_timeout", &|b| b.command_timeout(Duration::ZERO));
        check("command_timeout", &|b| b.command_timeout(seconds(2)).watchdog(seconds(2), millis(500)));
        check("fair_patience", &|b| b.fair_patience(seconds(1)));
        check("peer_clock_skew", &|b| b.peer_clock_skew(seconds(3_601)));
        check("idle_timeout", &|b| b.idle_timeout(Duration::MAX));
        check("watchdog_batch", &|b| b.watchdog_batch(0));
        let good = |builder: ClientBuilder| builder.config.checked().unwrap();
        let builder = || ClientBuilder::new("redis://h");
        assert_eq!(good(builder()).command_timeout, seconds(3));
        assert_eq!(good(builder().watchdog(seconds(2), millis(500))).command_timeout, millis(1_500));
        good(builder().command_timeout(millis(1_999)).watchdog(seconds(2), millis(500)));
        good(builder().outage_limit(Duration::ZERO).drop_timeout(Duration::ZERO).name_prefix("x".repeat(4_095)));
    }

    #[test]
    fn a_builder_never_shows_the_password() {
        for url in ["redis://user:canary@localhost", "redis://user:canary@h:port"] {
            let shown = format!("{:?}", ClientBuilder::new(url));
            assert!(!shown.contains("canary"), "{shown}");
        }
    }
}
