//! Every knob, its default and its unit, and the builder that sets them.

use std::sync::Arc;
use std::time::Duration;

use crate::conn::Address;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{NoObserver, Observer};
use crate::time::Lease;

/// Collects the settings of a client; [`connect`](Self::connect) checks them and opens it.
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
    pub(crate) url: Url,
    pub(crate) config: Config,
}

/// A URL that never shows itself: it may hold a password.
#[derive(Clone)]
pub(crate) struct Url(pub(crate) String);

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Address::parse(&self.0) {
            Ok(address) => write!(f, "{address}"),
            Err(error) => write!(f, "{error}"),
        }
    }
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) watchdog_timeout: Duration,
    pub(crate) watchdog_interval: Duration,
    pub(crate) watchdog_batch: usize,
    pub(crate) command_timeout: Duration,
    pub(crate) outage_limit: Duration,
    pub(crate) drop_timeout: Duration,
    pub(crate) fair_patience: Duration,
    pub(crate) max_connections: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) client_name: String,
    pub(crate) name_prefix: String,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) has_observer: bool,
}

impl ClientBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: Url(url.to_owned()), config: Config::default() }
    }

    /// Sets the time to live of locks taken without a lease, and how often the watchdog renews them.
    ///
    /// A crashed holder blocks others for at most the timeout. The timeout is 1 second to 365 days,
    /// the interval 100 ms to half of the timeout. Defaults to 30 seconds and 10 seconds.
    pub fn watchdog(mut self, timeout: Duration, interval: Duration) -> Self {
        self.config.watchdog_timeout = timeout;
        self.config.watchdog_interval = interval;
        self
    }

    /// Sets how many locks one request of the watchdog renews at most. 1 to 1,000. Defaults to 100.
    pub fn watchdog_batch(mut self, most: usize) -> Self {
        self.config.watchdog_batch = most;
        self
    }

    /// Sets what is put in front of every name, in Redis and in all texts: the same as a Redisson
    /// `NameMapper` that adds a prefix. Defaults to nothing.
    pub fn name_prefix(mut self, prefix: &str) -> Self {
        self.config.name_prefix = prefix.to_owned();
        self
    }

    /// Sets the time in which a server must have answered one request, connecting included.
    ///
    /// 10 ms to 1 hour. Defaults to 3 seconds.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.config.command_timeout = timeout;
        self
    }

    /// Sets how long [`Lock::lock`](crate::Lock::lock), which waits without limit for a busy lock,
    /// bears a server that does not answer at all. Defaults to 10 seconds.
    pub fn outage_limit(mut self, limit: Duration) -> Self {
        self.config.outage_limit = limit;
        self
    }

    /// Sets how long dropping a guard may take before the release goes on in the background.
    /// Defaults to 1 second.
    pub fn drop_timeout(mut self, timeout: Duration) -> Self {
        self.config.drop_timeout = timeout;
        self
    }

    /// Sets how long a waiter for a fair lock keeps its place without being heard of, and so what a
    /// dead one costs those behind it.
    ///
    /// Waiters ask at least once a second. In a fleet with Redisson, whose clients go by their own
    /// clocks, add the largest difference between clocks. 2 seconds to 1 hour. Defaults to 5 seconds.
    pub fn fair_patience(mut self, patience: Duration) -> Self {
        self.config.fair_patience = patience;
        self
    }

    /// Sets how many connections for requests may be open to one server.
    ///
    /// Beside them there are at most two: one listens, one renews. 1 to 10,000. Defaults to 64.
    pub fn max_connections(mut self, most: usize) -> Self {
        self.config.max_connections = most;
        self
    }

    /// Sets after which time a connection nobody uses is closed; one is always kept.
    /// Defaults to 30 seconds.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.config.idle_timeout = timeout;
        self
    }

    /// Sets the name that `CLIENT LIST` shows for our connections: 1 to 64 printable ASCII
    /// characters without spaces. Defaults to `lockson`.
    pub fn client_name(mut self, name: &str) -> Self {
        self.config.client_name = name.to_owned();
        self
    }

    /// Sets who sees what the client does. Defaults to nobody.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.config.observer = Arc::new(observer);
        self.config.has_observer = true;
        self
    }
}

impl Config {
    /// Refuses what cannot work, before anything is opened.
    pub(crate) fn check(&self) -> Result<()> {
        let fail = |text: String| Err(Error::new(ErrorKind::Config, text));
        let (timeout, interval) = (self.watchdog_timeout, self.watchdog_interval);
        if timeout < Duration::from_secs(1) || timeout > Lease::LONGEST {
            return fail(format!("a watchdog timeout of {timeout:?} is not possible; give 1 second to 365 days"));
        }
        if interval < Duration::from_millis(100) || interval > timeout / 2 {
            return fail(format!(
                "a watchdog interval of {interval:?} is not possible; give 100 ms to half of the timeout ({:?})",
                timeout / 2
            ));
        }
        if self.command_timeout < Duration::from_millis(10) || self.command_timeout > Duration::from_secs(3_600) {
            return fail(format!(
                "a command timeout of {:?} is not possible; give 10 ms to 1 hour",
                self.command_timeout
            ));
        }
        if self.fair_patience < Duration::from_secs(2) || self.fair_patience > Duration::from_secs(3_600) {
            return fail(format!(
                "a fair patience of {:?} is not possible; give 2 seconds to 1 hour",
                self.fair_patience
            ));
        }
        if self.watchdog_batch == 0 || self.watchdog_batch > 1_000 {
            return fail(format!("{} locks in one renewal are not possible; give 1 to 1,000", self.watchdog_batch));
        }
        if self.max_connections == 0 || self.max_connections > 10_000 {
            return fail(format!("{} connections are not possible; give 1 to 10,000", self.max_connections));
        }
        let name = &self.client_name;
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return fail("the client name must be 1 to 64 printable ASCII characters without spaces".into());
        }
        Ok(())
    }

    pub(crate) fn watchdog_lease(&self) -> Result<Lease> {
        Lease::new(self.watchdog_timeout)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watchdog_timeout: Duration::from_secs(30),
            watchdog_interval: Duration::from_secs(10),
            watchdog_batch: 100,
            command_timeout: Duration::from_secs(3),
            outage_limit: Duration::from_secs(10),
            drop_timeout: Duration::from_secs(1),
            fair_patience: Duration::from_secs(5),
            max_connections: 64,
            idle_timeout: Duration::from_secs(30),
            client_name: "lockson".into(),
            name_prefix: String::new(),
            observer: Arc::new(NoObserver),
            has_observer: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let check = |change: &dyn Fn(ClientBuilder) -> ClientBuilder| {
            let error = change(ClientBuilder::new("redis://h")).config.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        };
        let seconds = Duration::from_secs;
        check(&|b| b.watchdog(Duration::from_millis(999), Duration::from_millis(300)));
        check(&|b| b.watchdog(seconds(10), seconds(6)));
        check(&|b| b.watchdog(seconds(10), Duration::from_millis(99)));
        check(&|b| b.watchdog(Duration::MAX, seconds(1)));
        check(&|b| b.command_timeout(Duration::ZERO));
        check(&|b| b.fair_patience(seconds(1)));
        check(&|b| b.watchdog_batch(0));
        check(&|b| b.max_connections(0));
        check(&|b| b.client_name("two words"));
        assert!(ClientBuilder::new("redis://h").config.check().is_ok());
    }

    #[test]
    fn a_builder_never_shows_the_password() {
        let shown = format!("{:?}", ClientBuilder::new("redis://user:canary@localhost"));
        assert!(!shown.contains("canary"), "{shown}");
    }
}
