//! Reads the configuration file of a Redisson client, so that a mixed fleet shares one file.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_norway::{Mapping, Value};

use crate::config::ClientBuilder;
use crate::conn::Target;
use crate::error::{Error, ErrorKind, Result};

/// The result of reading a Redisson configuration: the settings, and warnings about settings without effect.
///
/// ```no_run
/// # let yaml = String::new();
/// let read = lockson::ClientBuilder::from_redisson_yaml(&yaml)?;
/// for warning in &read.warnings {
///     eprintln!("{warning}");
/// }
/// let client = read.builder.connect()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "the builder in it opens the client"]
pub struct RedissonConfig {
    /// The settings, ready for [`connect`](ClientBuilder::connect).
    pub builder: ClientBuilder,
    /// One sentence for each setting without effect here; the sentence begins with the name of the setting.
    pub warnings: Vec<String>,
}

impl ClientBuilder {
    /// Reads a Redisson configuration in YAML: `singleServerConfig` and the common settings.
    ///
    /// `${NAME}` and `${NAME:-default}` are replaced by environment variables, as in Redisson. A setting without
    /// effect here is named in [`RedissonConfig::warnings`]. A setting that would make both sides use different names
    /// or servers is an error.
    ///
    /// ```
    /// # use lockson::ClientBuilder;
    /// let read = ClientBuilder::from_redisson_yaml("
    /// singleServerConfig:
    ///   address: redis://localhost:6379
    ///   timeout: 2000
    /// lockWatchdogTimeout: 15000
    /// threads: 16
    /// ")?;
    /// assert_eq!(read.warnings.len(), 1, "there is no pool of threads here");
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Config` for a file that is not a Redisson configuration; `Unsupported` for other topologies, TLS, and mappers
    /// of names or commands that are Java code.
    pub fn from_redisson_yaml(yaml: &str) -> Result<RedissonConfig> {
        let yaml = substitute(yaml)?;
        let malformed = |error: serde_norway::Error| config(&not_yaml(&yaml, error.location().map(|at| at.line())));
        let root: Value = serde_norway::from_str(&yaml).map_err(malformed)?;
        let Value::Mapping(root) = root else { return Err(config("the Redisson configuration is empty")) };
        // The parser keeps only tags that begin with an exclamation mark. This copy is read only for its tags.
        let tagged = serde_norway::from_str(&yaml.replace("!<", "!<!")).map_err(malformed)?;
        let mut reader = Reader { tagged, builder: Self::new(""), server: Server::default(), warnings: vec![] };
        reader.common(&root)?;
        reader.finish()
    }
}

/// Classes of Redisson that leave names, commands and logins unchanged; the second class is that of Redisson 3.
const CLASSES_OF_NOTHING: [&str; 4] = [
    "org.redisson.config.DefaultNameMapper",
    "org.redisson.api.DefaultNameMapper",
    "org.redisson.config.DefaultCommandMapper",
    "org.redisson.config.DefaultCredentialsResolver",
];

/// The settings with an effect here. An unknown setting with almost the same name is taken as misspelled.
const COUNTED: [&str; 16] = [
    "singleServerConfig",
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
const WITHOUT_EFFECT: [&str; 28] = [
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
];

/// Applies the settings, one by one.
struct Reader {
    /// The configuration with the Java classes of its values.
    tagged: Value,
    builder: ClientBuilder,
    server: Server,
    warnings: Vec<String>,
}

#[derive(Default)]
struct Server {
    address: Option<String>,
    username: Option<String>,
    password: Option<String>,
    database: u64,
    resp3: bool,
}

impl Reader {
    fn common(&mut self, settings: &Mapping) -> Result<()> {
        for (key, value) in settings {
            let key = name(key)?;
            match key {
                "singleServerConfig" => match value {
                    Value::Mapping(settings) => self.single(settings)?,
                    _ => return Err(config("singleServerConfig has no settings")),
                },
                "sentinelServersConfig"
                | "masterSlaveServersConfig"
                | "clusterServersConfig"
                | "replicatedServersConfig" => {
                    return Err(unsupported(key, "only singleServerConfig can be used"));
                }
                "lockWatchdogTimeout" => {
                    let timeout = millis(key, value)?;
                    self.builder = self.builder.clone().watchdog(timeout, timeout / 3);
                }
                "lockWatchdogBatchSize" => {
                    let most = usize::try_from(number(key, value)?).map_err(|_| bad(key, "a smaller number"))?;
                    self.builder = self.builder.clone().watchdog_batch(most);
                }
                "fairLockWaitTimeout" => self.builder = self.builder.clone().fair_patience(millis(key, value)?),
                "username" | "password" | "protocol" | "nameMapper" | "commandMapper" | "credentialsResolver" => {
                    let class = class_of(Some(&self.tagged), key);
                    self.shared(key, value, class)?;
                }
                "useScriptCache" if value == &Value::Bool(true) => {}
                "codec" => self.warn(key, "locks are stored as plain text, whatever the codec"),
                "checkLockSyncedSlaves" | "slavesSyncTimeout" => {
                    self.warn(key, "replicas are not waited for, as in Redisson's own single server mode");
                }
                _ => self.no_effect(key)?,
            }
        }
        Ok(())
    }

    fn single(&mut self, settings: &Mapping) -> Result<()> {
        for (key, value) in settings {
            let key = name(key)?;
            match key {
                "address" => self.server.address = Some(text(key, value)?),
                "database" => self.server.database = number(key, value)?,
                "clientName" => match value {
                    Value::Null => {}
                    _ => self.builder = self.builder.clone().client_name(&text(key, value)?),
                },
                "timeout" => self.builder = self.builder.clone().command_timeout(millis(key, value)?),
                "connectionPoolSize" => {
                    let most = usize::try_from(number(key, value)?).map_err(|_| bad(key, "a smaller number"))?;
                    self.builder = self.builder.clone().max_connections(most);
                }
                "idleConnectionTimeout" => self.builder = self.builder.clone().idle_timeout(millis(key, value)?),
                "username" | "password" | "protocol" | "nameMapper" | "commandMapper" | "credentialsResolver" => {
                    let class = class_of(self.tagged.get("singleServerConfig"), key);
                    self.shared(key, value, class)?;
                }
                "connectTimeout" => self.warn(key, "connecting counts towards the command timeout"),
                "retryAttempts" | "retryInterval" | "retryDelay" | "reconnectionDelay" => {
                    self.warn(key, "a request is repeated until its caller's own time is over");
                }
                "subscriptionConnectionPoolSize"
                | "subscriptionConnectionMinimumIdleSize"
                | "subscriptionsPerConnection"
                | "subscriptionTimeout" => self.warn(key, "one connection listens, however many locks are waited for"),
                "connectionMinimumIdleSize" => self.warn(key, "one idle connection is kept"),
                "pingConnectionInterval" => self.warn(key, "a connection is looked at before each use"),
                "dnsMonitoringInterval" | "dnsMonitoringTimes" => {
                    self.warn(key, "the name is resolved at every connect")
                }
                "tcpNoDelay" | "keepAlive" | "tcpKeepAlive" if value == &Value::Bool(true) => {}
                _ => self.no_effect(key)?,
            }
        }
        Ok(())
    }

    /// Applies a setting that may be common or belong to the server.
    fn shared(&mut self, key: &str, value: &Value, class: Option<String>) -> Result<()> {
        match (key, value) {
            // These classes change nothing.
            ("nameMapper" | "commandMapper" | "credentialsResolver", _)
                if class.as_ref().is_some_and(|class| CLASSES_OF_NOTHING.contains(&class.as_str())) => {}
            (_, Value::Null) if class.is_none() => {}
            ("username", _) => self.server.username = Some(text(key, value)?),
            ("password", _) => self.server.password = Some(text(key, value)?),
            ("protocol", _) => match text(key, value)?.as_str() {
                "RESP2" => self.server.resp3 = false,
                "RESP3" => self.server.resp3 = true,
                _ => return Err(bad(key, "RESP2 or RESP3")),
            },
            ("credentialsResolver", _) => {
                let why = "this Java class, which gives user and password, cannot be run here; give them as username and \
                           password, or in the URL of Client::builder()";
                return Err(unsupported(key, why));
            }
            ("nameMapper", mapper) => match prefix(mapper) {
                Some(prefix) => {
                    self.builder = self.builder.clone().name_prefix(&prefix);
                    self.warn(key, &format!("taken to put {prefix:?} in front of every name"));
                }
                None => return Err(unsupported(key, "this Java class cannot be run here; use name_prefix()")),
            },
            _ => return Err(unsupported(key, "Java code cannot be run here")),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<RedissonConfig> {
        let address = self
            .server
            .address
            .ok_or_else(|| config("singleServerConfig in the Redisson configuration needs an address"))?;
        let Some((scheme, place)) = address.split_once("://") else {
            return Err(bad("address", "one like redis://host:6379"));
        };
        let login = match (&self.server.username, &self.server.password) {
            (None, None) => String::new(),
            _ if place.contains('@') => {
                return Err(bad("address", "no user and password where username or password are given, too"));
            }
            (user, password) => {
                let part = |part: &Option<String>| {
                    utf8_percent_encode(part.as_deref().unwrap_or(""), NON_ALPHANUMERIC).to_string()
                };
                format!("{}:{}@", part(user), part(password))
            }
        };
        let protocol = if self.server.resp3 { "?protocol=resp3" } else { "" };
        let url = format!("{scheme}://{login}{}/{}{protocol}", place.trim_end_matches('/'), self.server.database);
        Target::parse(&url).map_err(|error| {
            let why = error.to_string().replace("the server URL: ", "");
            Error::new(error.kind(), format!("the address in the Redisson configuration: {why}"))
        })?;
        self.builder.url.0 = url;
        Ok(RedissonConfig { builder: self.builder, warnings: self.warnings })
    }

    /// Warns about a setting without effect. A misspelled setting is an error, as in Redisson.
    fn no_effect(&mut self, key: &str) -> Result<()> {
        if WITHOUT_EFFECT.contains(&key) || key.starts_with("ssl") {
            self.warn(key, "it has no effect here: locks do not depend on it");
        } else if let Some(meant) = COUNTED.iter().find(|counted| is_almost(key, counted)) {
            return Err(config(&format!("{key} in the Redisson configuration is no setting; is {meant} meant?")));
        } else {
            self.warn(key, "it is not known here and has no effect");
        }
        Ok(())
    }

    fn warn(&mut self, key: &str, why: &str) {
        self.warnings.push(format!("{key}: {why}"));
    }
}

/// The error text for a file that is not YAML. The message of the parser is dropped, because the message may quote a
/// line with a password.
fn not_yaml(yaml: &str, line: Option<usize>) -> String {
    // The parser stops at a tab, or a line later.
    let indented_by_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    let tab = yaml.lines().position(indented_by_tab).map(|at| at + 1);
    match (tab, line) {
        (Some(tab), _) => {
            format!("line {tab} of the Redisson configuration begins with a tab; YAML takes only spaces there")
        }
        (None, Some(line)) => format!("the Redisson configuration is not valid YAML, see its line {line}"),
        (None, None) => "the Redisson configuration is not valid YAML".to_owned(),
    }
}

/// Whether two names differ by at most two letters, ignoring case.
fn is_almost(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let other: Vec<char> = other.chars().collect();
    let mut costs: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut costs[0], row + 1);
        for (column, counterpart) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *counterpart);
            before = costs[column + 1];
            costs[column + 1] = changed.min(before + 1).min(costs[column] + 1);
        }
    }
    costs[other.len()] <= 2
}

/// Replaces `${NAME}` and `${NAME:-default}` by the environment.
fn substitute(yaml: &str) -> Result<String> {
    let mut out = String::with_capacity(yaml.len());
    let mut rest = yaml;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else {
            return Err(config("a ${ without its } in the configuration"));
        };
        let inside = &rest[start + 2..start + length];
        let (variable, default) =
            inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        out.push_str(&rest[..start]);
        match (std::env::var(variable), default) {
            (Ok(value), _) => out.push_str(&value),
            (Err(_), Some(default)) => out.push_str(default),
            (Err(_), None) => return Err(config(&format!("the environment variable {variable} is not set"))),
        }
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The Java class that a setting is tagged with.
fn class_of(settings: Option<&Value>, key: &str) -> Option<String> {
    match settings?.get(key)? {
        Value::Tagged(tagged) => Some(tagged.tag.to_string().trim_start_matches('!').to_owned()),
        _ => None,
    }
}

/// The prefix in the fields of a mapper, if the mapper has one.
fn prefix(fields: &Value) -> Option<String> {
    Some(fields.as_mapping()?.get("prefix")?.as_str()?.to_owned())
}

fn name(key: &Value) -> Result<&str> {
    key.as_str().ok_or_else(|| config("a setting without a name in the Redisson configuration"))
}

fn text(key: &str, value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        // YAML reads a password of digits as a number. The text of other numbers is lost.
        Value::Number(number) if number.is_u64() => Ok(number.to_string()),
        Value::Number(_) => Err(config(&format!("put the value of {key} in quotes: without, it is a number"))),
        _ => Err(bad(key, "a text")),
    }
}

fn number(key: &str, value: &Value) -> Result<u64> {
    value.as_u64().ok_or_else(|| bad(key, "a whole number"))
}

fn millis(key: &str, value: &Value) -> Result<Duration> {
    number(key, value).map(Duration::from_millis)
}

fn config(text: &str) -> Error {
    Error::new(ErrorKind::Config, text)
}

fn bad(key: &str, wanted: &str) -> Error {
    config(&format!("the value of {key} in the Redisson configuration is not possible; it must be {wanted}"))
}

fn unsupported(key: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{key} in the Redisson configuration: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
singleServerConfig:
  address: "redis://cache.example:7000"
  database: 3
  username: service
  password: "p@ss/word canary"
  clientName: orders
  timeout: 1500
  connectionPoolSize: 12
  idleConnectionTimeout: 20000
  retryAttempts: 4
  subscriptionsPerConnection: 5
lockWatchdogTimeout: 60000
lockWatchdogBatchSize: 50
fairLockWaitTimeout: 8000
checkLockSyncedSlaves: true
codec: !<org.redisson.codec.Kryo5Codec> {}
protocol: RESP3
nameMapper: !<com.acme.Prefixer> { prefix: "app:" }
"#;

    #[test]
    fn every_setting_is_honoured_or_named() {
        let read = ClientBuilder::from_redisson_yaml(FULL).unwrap();
        let config = &read.builder.config;
        assert_eq!(read.builder.url.0, "redis://service:p%40ss%2Fword%20canary@cache.example:7000/3?protocol=resp3");
        assert_eq!(
            (config.watchdog_timeout, config.watchdog_interval),
            (Duration::from_secs(60), Duration::from_secs(20))
        );
        assert_eq!((config.watchdog_batch, config.max_connections), (50, 12));
        assert_eq!(
            (config.command_timeout, config.fair_patience),
            (Duration::from_millis(1_500), Duration::from_secs(8))
        );
        assert_eq!((config.client_name.as_str(), config.name_prefix.as_str()), ("orders", "app:"));
        let named: Vec<_> = read.warnings.iter().map(|warning| warning.split(':').next().unwrap()).collect();
        assert_eq!(
            named,
            ["retryAttempts", "subscriptionsPerConnection", "checkLockSyncedSlaves", "codec", "nameMapper"]
        );
        assert!(!format!("{read:?}").contains("canary"));
    }

    #[test]
    fn a_setting_that_splits_the_fleet_is_an_error() {
        let check = |yaml: &str, kind| {
            let error = ClientBuilder::from_redisson_yaml(yaml).map(drop).unwrap_err();
            assert_eq!(error.kind(), kind, "{yaml}: {error}");
            assert!(!error.to_string().contains("canary"));
        };
        check("clusterServersConfig: {nodeAddresses: []}", ErrorKind::Unsupported);
        check("singleServerConfig: {address: 'redis://h'}\nnameMapper: !<com.acme.Mapper> {}", ErrorKind::Unsupported);
        let mapped = |mapper: &str| format!("singleServerConfig: {{address: 'redis://h'}}\nnameMapper: {mapper}\n");
        check(&mapped("!<com.acme.DefaultMapper> {}"), ErrorKind::Unsupported);
        check(&mapped("!<com.acme.Mapper>"), ErrorKind::Unsupported);
        let commented = format!("# nameMapper: !<{}> {{}}\n", CLASSES_OF_NOTHING[0]);
        check(&(commented + &mapped("!<com.acme.Mapper> {}")), ErrorKind::Unsupported);
        let inside = "singleServerConfig: {address: 'redis://h', nameMapper: !<com.acme.Mapper> {}}";
        check(&format!("{inside}\nnameMapper: !<{}> {{}}", CLASSES_OF_NOTHING[0]), ErrorKind::Unsupported);
        let resolved = "singleServerConfig: {address: 'redis://h', credentialsResolver: !<com.acme.Vault> {}}";
        check(resolved, ErrorKind::Unsupported);
        check(
            &resolved.replace("redis:", "rediss:").replace("com.acme.Vault", CLASSES_OF_NOTHING[3]),
            ErrorKind::Unsupported,
        );
        check("singleServerConfig: {address: 'redis://u:canary@h', password: canary}", ErrorKind::Config);
        check("singleServerConfig: {address: 'redis://h', protocol: RESP4}", ErrorKind::Config);
        check("singleServerConfig: {password: canary}", ErrorKind::Config);
        check("singleServerConfig: {address: 'redis://h', timeout: canary}", ErrorKind::Config);
        check("password: [canary", ErrorKind::Config);
        check("singleServerConfig: {address: 'redis://h', password: 1.50}", ErrorKind::Config);
        check("", ErrorKind::Config);
    }

    #[test]
    fn a_text_names_the_setting_or_the_line_and_what_to_do() {
        let check = |yaml: &str, words: &[&str]| {
            let error = ClientBuilder::from_redisson_yaml(yaml).map(drop).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{yaml}: {error}");
        };
        check("singleServerConfig:\n\taddress: 'redis://h'", &["line 2", "tab", "spaces"]);
        check("singleServerConfig:\n  address: 'redis://h'\n  password: 'canary\n", &["not valid YAML", "line"]);
        check("singleServerConfig: {adress: 'redis://h'}", &["adress in", "is address meant?"]);
        check("singleServerConfig: {address: 'redis://h', databse: 3}", &["databse", "is database meant?"]);
        check("lockWatchDogTimout: 3", &["lockWatchDogTimout", "is lockWatchdogTimeout meant?"]);
        check(
            "singleServerConfig: {address: 'redis://h', credentialsResolver: !<a.B> {}}",
            &["credentialsResolver", "username"],
        );
        check("singleServerConfig: {address: 'redis://h:0'}", &["address", "port"]);
        check("singleServerConfig: {address: 'redis://h', timeout: soon}", &["timeout", "whole number"]);
        let unknown =
            "singleServerConfig: {address: 'redis://h', newlyInvented: 1, sslProtocols: x, tcpUserTimeout: 1}";
        let warnings = ClientBuilder::from_redisson_yaml(unknown).unwrap().warnings;
        assert!(warnings[0].starts_with("newlyInvented: it is not known"), "{warnings:?}");
        assert!(warnings[1..].iter().all(|warning| warning.contains("has no effect here")), "{warnings:?}");
    }

    #[test]
    fn an_idle_mapper_is_none_and_a_prefix_mapper_is_kept() {
        let read = |mapper: &str| {
            let yaml =
                format!("singleServerConfig: {{address: 'redis://h', password: 'a!<b'}}\nnameMapper: {mapper}\n");
            let read = ClientBuilder::from_redisson_yaml(&yaml).unwrap();
            assert_eq!(read.builder.url.0, "redis://:a%21%3Cb@h/0");
            (read.builder.config.name_prefix, read.warnings.len())
        };
        for class in &CLASSES_OF_NOTHING[..3] {
            assert_eq!(read(&format!("!<{class}> {{}}")), (String::new(), 0));
        }
        assert_eq!(read("null"), (String::new(), 0));
        assert_eq!(read("!<com.acme.DefaultPrefixer> {prefix: 't:'}"), ("t:".to_owned(), 1));
    }

    #[test]
    fn the_environment_fills_in() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(substitute("a ${PATH} b ${NOT_SET_HERE:-c:d}").unwrap(), format!("a {path} b c:d"));
        assert_eq!(substitute("${NOT_SET_HERE}").unwrap_err().kind(), ErrorKind::Config);
    }
}
