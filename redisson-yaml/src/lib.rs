//! Reads the configuration file of a Redisson client, so that a mixed fleet shares one file.
//!
//! ```
//! let read = lockson_redisson_yaml::read("
//! singleServerConfig:
//!   address: redis://localhost:6379
//!   timeout: 2000
//! lockWatchdogTimeout: 15000
//! threads: 16
//! ")?;
//! assert_eq!(read.warnings.len(), 1, "there is no pool of threads here");
//! let client = read.builder.connect_lazily()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The cargo feature `tls` takes the settings of TLS, for `rediss://` and `valkeys://`.

mod error;
mod servers;
#[cfg(feature = "tls")]
mod tls;
mod values;

use std::fmt::Debug;
use std::time::Duration;

use lockson::{Client, ClientBuilder};
use serde_norway::{Mapping, Value};

pub use error::{Error, Result};
use servers::{Layout, Servers};
#[cfg(feature = "tls")]
use tls::TlsSettings;
use values::{
    bad, class_of, config, is_almost, millis, name, not_yaml, number, prefix, rewritten, substitute, text, unsupported,
};

/// The Rust in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The result of reading a Redisson configuration: the settings, and warnings about settings without effect.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "the builder in it opens the client"]
pub struct RedissonConfig {
    /// The settings, ready for [`connect`](ClientBuilder::connect).
    pub builder: ClientBuilder,
    /// What the builder got for [`tls`](ClientBuilder::tls), for a program that adds to it; `None` for servers without
    /// TLS. Needs the cargo feature `tls`.
    #[cfg(feature = "tls")]
    pub tls: Option<lockson::Tls>,
    /// A sentence for each setting that has no effect here, or another one than in Redisson. The sentence begins with
    /// the name of the setting, and then says `no effect` or `changes what happens`.
    pub warnings: Vec<String>,
}

/// Reads a Redisson configuration in YAML: the common settings, and one of `singleServerConfig`,
/// `sentinelServersConfig`, `clusterServersConfig`, `replicatedServersConfig` and `masterSlaveServersConfig`.
///
/// `${NAME}` and `${NAME:-default}` are replaced by environment variables, as in Redisson. A setting without effect here
/// is named in [`RedissonConfig::warnings`]. A setting that would make both sides use different names or servers is an
/// error.
///
/// # Errors
///
/// `Config` for a file that is not a Redisson configuration; `Unsupported` for mappers of names, addresses or commands
/// and a `credentialsResolver` that are Java code, for keystores of Java, for TLS that is not verified, and for TLS
/// without the cargo feature `tls`.
pub fn read(yaml: &str) -> Result<RedissonConfig> {
    read_without(yaml, &[])
}

/// Reads a Redisson configuration as if it had not these settings, in whatever section: for a file whose other
/// settings count, while the program gives its own in place of what only Java can use.
///
/// ```
/// let yaml = "
/// singleServerConfig: {address: 'redis://localhost:6379'}
/// nameMapper: !<com.acme.ShopMapper> {}
/// ";
/// assert!(lockson_redisson_yaml::read(yaml).is_err(), "this Java class cannot be run here");
/// let read = lockson_redisson_yaml::read_without(yaml, &["nameMapper"])?;
/// let client = read.builder.name_prefix("shop:").connect_lazily()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`read`], for the settings that are left.
pub fn read_without(yaml: &str, settings: &[&str]) -> Result<RedissonConfig> {
    reader(yaml, settings)?.finish()
}

/// Reads the settings one by one.
fn reader(yaml: &str, without: &[&str]) -> Result<Reader> {
    let yaml = substitute(yaml.trim_start_matches('\u{feff}'))?;
    let malformed = |error: serde_norway::Error| config(&not_yaml(&yaml, error.location().map(|at| at.line())));
    let root: Value = serde_norway::from_str(&yaml).map_err(malformed)?;
    let Value::Mapping(mut root) = root else { return Err(config("the Redisson configuration is empty")) };
    // The parser keeps only tags that begin with an exclamation mark. This copy is read only for its tags.
    let tagged = serde_norway::from_str(&yaml.replace("!!", "!").replace("!<", "!<!")).map_err(malformed)?;
    if let Some(line) = rewritten(&yaml) {
        return Err(config(&format!(
            "line {line} of the Redisson configuration has a number that is not in plain decimal, as 010, 0xff or +5; put it in quotes"
        )));
    }
    let is_left = |key: &Value| !key.as_str().is_some_and(|key| without.contains(&key));
    root.retain(|key, _| is_left(key));
    for section in root.values_mut().filter_map(Value::as_mapping_mut) {
        section.retain(|key, _| is_left(key));
    }
    let mut reader = Reader {
        tagged,
        settings: vec![],
        servers: Servers::default(),
        watchdog: SECOND * 30,
        timeout: None,
        #[cfg(feature = "tls")]
        tls: TlsSettings::default(),
        warnings: vec![],
    };
    reader.common(&root)?;
    Ok(reader)
}

const TEN_MS: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a silent waiter for a fair lock keeps its place by default, as `ClientBuilder::fair_patience` says.
const FAIR_PATIENCE: Duration = Duration::from_secs(5);

/// Classes of Redisson that leave names, commands and logins unchanged; the second class is that of Redisson 3.
const CLASSES_OF_NOTHING: [&str; 6] = [
    "org.redisson.config.DefaultNameMapper",
    "org.redisson.api.DefaultNameMapper",
    "org.redisson.config.DefaultCommandMapper",
    "org.redisson.client.DefaultCredentialsResolver",
    "org.redisson.config.DefaultNatMapper",
    "org.redisson.api.DefaultNatMapper",
];

/// Whether this class of Redisson changes nothing.
fn is_idle(class: &str) -> bool {
    CLASSES_OF_NOTHING.contains(&class)
}

/// The settings with an effect here. An unknown setting with almost the same name is taken as misspelled.
const COUNTED: [&str; 29] = [
    "singleServerConfig",
    "sentinelServersConfig",
    "clusterServersConfig",
    "replicatedServersConfig",
    "masterSlaveServersConfig",
    "masterAddress",
    "masterName",
    "masterConnectionPoolSize",
    "nodeAddresses",
    "sentinelAddresses",
    "sentinelUsername",
    "sentinelPassword",
    "shardedSubscriptionMode",
    "natMapper",
    "lockWatchdogTimeout",
    "lockWatchdogBatchSize",
    "fairLockWaitTimeout",
    "username",
    "password",
    "protocol",
    "nameMapper",
    "commandMapper",
    "credentialsResolver",
    "address",
    "database",
    "clientName",
    "timeout",
    "connectionPoolSize",
    "idleConnectionTimeout",
];

/// Settings of Redisson for threads, buffers and objects other than locks.
const WITHOUT_EFFECT: [&str; 29] = [
    "threads",
    "nettyThreads",
    "executor",
    "nettyExecutor",
    "eventLoopGroup",
    "transportMode",
    "nettyHook",
    "connectionListener",
    "addressResolverGroupFactory",
    "useScriptCache",
    "useThreadClassLoader",
    "keepPubSubOrder",
    "reliableTopicWatchdogTimeout",
    "minCleanUpDelay",
    "maxCleanUpDelay",
    "cleanUpKeysAmount",
    "meterMode",
    "meterRegistryProvider",
    "lazyInitialization",
    "registrationKey",
    "tcpNoDelay",
    "keepAlive",
    "tcpKeepAlive",
    "tcpKeepAliveCount",
    "tcpKeepAliveIdle",
    "tcpKeepAliveInterval",
    "tcpUserTimeout",
    "valkeyCapabilities",
    "referenceEnabled",
];

/// Applies the settings, one by one.
struct Reader {
    /// The configuration with the Java classes of its values.
    tagged: Value,
    /// What the builder is told, as soon as the servers are known.
    settings: Vec<Box<dyn FnOnce(ClientBuilder) -> ClientBuilder>>,
    servers: Servers,
    watchdog: Duration,
    timeout: Option<Duration>,
    #[cfg(feature = "tls")]
    tls: TlsSettings,
    warnings: Vec<String>,
}

impl Reader {
    fn common(&mut self, settings: &Mapping) -> Result<()> {
        for (key, value) in settings {
            let key = name(key)?;
            match key {
                "lockWatchdogTimeout" => {
                    let timeout = self.time(key, value, SECOND, YEAR)?;
                    self.watchdog = timeout;
                    self.set(move |builder| builder.watchdog(timeout, timeout / 3));
                }
                "lockWatchdogBatchSize" => {
                    let most = self.count(key, value, 1_000)?;
                    self.set(move |builder| builder.watchdog_batch(most));
                }
                "fairLockWaitTimeout" => {
                    let patience = self.time(key, value, SECOND * 2, HOUR)?;
                    if patience > FAIR_PATIENCE {
                        let why = format!("a dead waiter delays the queue by {patience:?}; see fair_patience()");
                        self.changes(key, &why);
                    }
                    self.set(move |builder| builder.fair_patience(patience));
                }
                "username" | "password" | "protocol" | "nameMapper" | "commandMapper" | "credentialsResolver" => {
                    let class = class_of(Some(&self.tagged), key);
                    self.shared(key, value, class)?;
                }
                "useScriptCache" if value == &Value::Bool(true) => {}
                "codec" => self.warn(key, "locks are stored as plain text, whatever the codec; only the values of getMultiLock(group, values) need \
                                      StringCodec in Java"),
                "checkLockSyncedSlaves" if value == &Value::Bool(false) => {}
                // Redisson writes its default out, and waits only for replicas that are there.
                "checkLockSyncedSlaves" => {
                    self.changes(key, "no replica is waited for; where each lock must reach one, add durability()");
                }
                "slavesSyncTimeout" => self.warn(key, "replicas are waited for as durability() says"),
                _ => match (Layout::of_section(key), value) {
                    (Some(_), Value::Null) => {}
                    (Some(layout), Value::Mapping(settings)) => {
                        self.servers.begin(layout)?;
                        self.section(key, layout, settings)?;
                    }
                    (Some(_), _) => return Err(config(&format!("{key} has no settings"))),
                    (None, _) if key.starts_with("ssl") => self.ssl(key, value)?,
                    (None, _) => self.no_effect(key)?,
                },
            }
        }
        Ok(())
    }

    /// Applies the settings of the servers.
    fn section(&mut self, section: &str, layout: Layout, settings: &Mapping) -> Result<()> {
        for (key, value) in settings {
            let key = name(key)?;
            if self.servers.take(layout, key, value)? {
                continue;
            }
            match key {
                "clientName" if value == &Value::Null => {}
                "clientName" => {
                    let name = text(key, value)?;
                    if (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
                        self.set(move |builder| builder.client_name(name));
                    } else {
                        self.warn(key, "a name has 1 to 64 printable ASCII characters without spaces");
                    }
                }
                "timeout" => self.timeout = Some(millis(key, value)?),
                "connectionPoolSize" | "masterConnectionPoolSize" => {
                    let most = self.count(key, value, 10_000)?;
                    self.set(move |builder| builder.max_connections(most));
                }
                "idleConnectionTimeout" => {
                    let timeout = self.time(key, value, TEN_MS, YEAR)?;
                    self.set(move |builder| builder.idle_timeout(timeout));
                }
                "shardedSubscriptionMode" if layout == Layout::Cluster => match text(key, value)?.as_str() {
                    "AUTO" => {}
                    "ON" => self.set(|builder| builder.sharded_pub_sub(true)),
                    "OFF" => self.set(|builder| builder.sharded_pub_sub(false)),
                    _ => return Err(bad(key, "AUTO, ON or OFF")),
                },
                "username"
                | "password"
                | "protocol"
                | "nameMapper"
                | "commandMapper"
                | "credentialsResolver"
                | "natMapper" => {
                    if matches!(key, "username" | "password" | "nameMapper") && self.is_above(key) {
                        self.warn(key, "as in Redisson, the one above the section counts");
                        continue;
                    }
                    let class = class_of(self.tagged.get(section), key);
                    self.shared(key, value, class)?;
                }
                "tcpNoDelay" | "keepAlive" | "tcpKeepAlive" if value == &Value::Bool(true) => {}
                _ if key.starts_with("ssl") => self.ssl(key, value)?,
                _ => match without_need(key) {
                    Some(why) => self.warn(key, why),
                    None => self.no_effect(key)?,
                },
            }
        }
        Ok(())
    }

    /// Whether a setting stands above the sections, too, other than as its default.
    fn is_above(&self, key: &str) -> bool {
        let class = class_of(Some(&self.tagged), key);
        self.tagged.get(key).is_some_and(|value| !value.is_null()) && !class.as_deref().is_some_and(is_idle)
    }

    /// Applies a setting that may be common or belong to the server.
    fn shared(&mut self, key: &str, value: &Value, class: Option<String>) -> Result<()> {
        match (key, value) {
            // These classes change nothing.
            ("nameMapper" | "commandMapper" | "credentialsResolver" | "natMapper", _)
                if class.as_deref().is_some_and(is_idle) => {}
            (_, Value::Null) if class.is_none() => {}
            ("username", _) => self.servers.username = Some(text(key, value)?),
            ("password", _) => self.servers.password = Some(text(key, value)?),
            ("protocol", _) => match text(key, value)?.as_str() {
                "RESP2" => self.servers.resp3 = false,
                "RESP3" => self.servers.resp3 = true,
                _ => return Err(bad(key, "RESP2 or RESP3")),
            },
            ("credentialsResolver", _) => {
                let why = "this Java class, which gives user and password, cannot be run here; give them as username and \
                           password, or open the client by Client::builder(url).credentials(..), a cargo feature";
                return Err(unsupported(key, why));
            }
            ("natMapper", _) => {
                let why = "addresses are used as the servers tell them; let the servers announce others, by \
                           replica-announce-ip, sentinel announce-ip or cluster-announce-ip";
                return Err(unsupported(key, why));
            }
            ("nameMapper", mapper) => match prefix(mapper) {
                Some(prefix) => {
                    self.changes(key, &format!("taken to put {prefix:?} in front of every name"));
                    self.set(move |builder| builder.name_prefix(prefix));
                }
                None => return Err(unsupported(key, "this Java class cannot be run here; use name_prefix()")),
            },
            _ => return Err(unsupported(key, "Java code cannot be run here")),
        }
        Ok(())
    }

    /// Takes a setting of TLS.
    fn ssl(&mut self, key: &str, value: &Value) -> Result<()> {
        #[cfg(feature = "tls")]
        if self.tls.take(key, value)? {
            return Ok(());
        }
        let _ = value;
        self.no_effect(key)
    }

    fn time(&mut self, key: &str, value: &Value, least: Duration, most: Duration) -> Result<Duration> {
        Ok(self.within(key, millis(key, value)?, least, most))
    }

    fn count(&mut self, key: &str, value: &Value, most: usize) -> Result<usize> {
        let count = usize::try_from(number(key, value)?).unwrap_or(usize::MAX);
        Ok(self.within(key, count, 1, most))
    }

    /// Takes a value that the builder accepts for one that only Redisson accepts.
    fn within<T: Ord + Copy + Debug>(&mut self, key: &str, value: T, least: T, most: T) -> T {
        let taken = value.clamp(least, most);
        if taken != value {
            self.changes(key, &format!("{taken:?} is taken, since the value is not possible here"));
        }
        taken
    }

    fn set(&mut self, setting: impl FnOnce(ClientBuilder) -> ClientBuilder + 'static) {
        self.settings.push(Box::new(setting));
    }

    fn finish(mut self) -> Result<RedissonConfig> {
        if let Some(timeout) = self.timeout {
            // A renewal must not take longer than the lock lives.
            let most = if timeout < self.watchdog { HOUR } else { HOUR.min(self.watchdog * 3 / 4) };
            let timeout = self.within("timeout", timeout, TEN_MS, most);
            self.set(move |builder| builder.command_timeout(timeout));
        }
        #[cfg(feature = "tls")]
        let tls = self.tls.taken(self.servers.use_tls(), &mut self.warnings)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = tls.clone() {
            self.set(|builder| builder.tls(tls));
        }
        let builder = Client::builder(&self.servers.url()?);
        let builder = self.settings.into_iter().fold(builder, |builder, setting| setting(builder));
        Ok(RedissonConfig {
            builder,
            #[cfg(feature = "tls")]
            tls,
            warnings: self.warnings,
        })
    }

    /// Warns about a setting without effect. A misspelled setting is an error, as in Redisson.
    fn no_effect(&mut self, key: &str) -> Result<()> {
        if WITHOUT_EFFECT.contains(&key) || key.starts_with("ssl") {
            self.warn(key, "locks do not depend on it");
        } else if COUNTED.contains(&key) {
            return Err(config(&format!("{key} in the Redisson configuration stands in the wrong section")));
        } else if let Some(meant) = COUNTED.iter().find(|counted| is_almost(key, counted)) {
            return Err(config(&format!("{key} in the Redisson configuration is no setting; is {meant} meant?")));
        } else {
            self.warn(key, "it is not known here");
        }
        Ok(())
    }

    fn warn(&mut self, key: &str, why: &str) {
        self.warnings.push(format!("{key}: no effect: {why}"));
    }

    fn changes(&mut self, key: &str, why: &str) {
        self.warnings.push(format!("{key}: changes what happens: {why}"));
    }
}

/// Why a setting of the servers has no effect.
fn without_need(key: &str) -> Option<&'static str> {
    Some(match key {
        "connectTimeout" => "connecting counts towards the command timeout",
        "retryAttempts" | "retryInterval" | "retryDelay" | "reconnectionDelay" => {
            "a request is repeated until its caller's own time is over"
        }
        "subscriptionConnectionPoolSize"
        | "subscriptionConnectionMinimumIdleSize"
        | "subscriptionsPerConnection"
        | "subscriptionTimeout" => "one connection listens to each server, however many locks are waited for",
        "connectionMinimumIdleSize" | "masterConnectionMinimumIdleSize" => "one idle connection is kept",
        "pingConnectionInterval" => "a connection is looked at before each use",
        "dnsMonitoringInterval" | "dnsMonitoringTimes" | "monitorIPChanges" => "the name is resolved at every connect",
        "readMode"
        | "fallbackLoadingToMaster"
        | "subscriptionMode"
        | "loadBalancer"
        | "slaveAddresses"
        | "checkSlaveStatusWithSyncing" => "masters alone are asked and listened to",
        "slaveConnectionPoolSize"
        | "slaveConnectionMinimumIdleSize"
        | "failedSlaveReconnectionInterval"
        | "failedSlaveCheckInterval"
        | "failedSlaveNodeDetector" => "no connection to a replica is kept",
        "scanInterval" => "sentinels and nodes are asked each second, and a cluster when it redirects",
        "checkSentinelsList" | "sentinelsDiscovery" => "most of the sentinels that are known must agree",
        "checkMasterLinkStatus" | "checkSlotsCoverage" => "it is not looked at when the client opens",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
