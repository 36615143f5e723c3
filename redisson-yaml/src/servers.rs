//! Which servers a Redisson configuration names, as a URL.

use lockson::Client;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_norway::Value;

use crate::error::{Error, Result};
use crate::values::{bad, config, number, text};

/// How the servers belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Single,
    Sentinel,
    Cluster,
    Replicated,
    MasterSlave,
}

/// The servers and the logins.
#[derive(Default)]
pub(super) struct Servers {
    layout: Option<Layout>,
    addresses: Vec<String>,
    service: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    sentinel_username: Option<String>,
    sentinel_password: Option<String>,
    database: u64,
    pub(super) resp3: bool,
}

impl Layout {
    pub(super) fn of_section(section: &str) -> Option<Self> {
        Some(match section {
            "singleServerConfig" => Self::Single,
            "sentinelServersConfig" => Self::Sentinel,
            "clusterServersConfig" => Self::Cluster,
            "replicatedServersConfig" => Self::Replicated,
            "masterSlaveServersConfig" => Self::MasterSlave,
            _ => return None,
        })
    }

    /// The setting that has the addresses.
    fn place(self) -> &'static str {
        match self {
            Self::Single => "address",
            Self::Sentinel => "sentinelAddresses",
            Self::Cluster | Self::Replicated => "nodeAddresses",
            Self::MasterSlave => "masterAddress",
        }
    }

    /// What is written behind the scheme.
    fn form(self) -> &'static str {
        match self {
            Self::Single | Self::MasterSlave => "",
            Self::Sentinel => "+sentinel",
            Self::Cluster => "+cluster",
            Self::Replicated => "+replicated",
        }
    }
}

impl Servers {
    pub(super) fn begin(&mut self, layout: Layout) -> Result<()> {
        match self.layout.replace(layout) {
            None => Ok(()),
            Some(_) => Err(config("the Redisson configuration has two sections of servers; keep one")),
        }
    }

    /// Takes a setting about the servers. Returns whether it is one.
    pub(super) fn take(&mut self, layout: Layout, key: &str, value: &Value) -> Result<bool> {
        match (key, layout) {
            _ if key == layout.place() => self.addresses = addresses(key, value)?,
            ("database", _) => self.database = number(key, value)?,
            ("masterName", Layout::Sentinel) => self.service = Some(text(key, value)?),
            ("sentinelUsername" | "sentinelPassword", Layout::Sentinel) if value == &Value::Null => {}
            ("sentinelUsername", Layout::Sentinel) => self.sentinel_username = Some(text(key, value)?),
            ("sentinelPassword", Layout::Sentinel) => self.sentinel_password = Some(text(key, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    #[cfg(feature = "tls")]
    pub(super) fn use_tls(&self) -> bool {
        self.addresses.iter().any(|address| address.starts_with("rediss:") || address.starts_with("valkeys:"))
    }

    /// The URL of the servers.
    pub(super) fn url(&self) -> Result<String> {
        let Some(layout) = self.layout else {
            return Err(config("the Redisson configuration names no servers, as singleServerConfig does"));
        };
        let key = layout.place();
        let Some(first) = self.addresses.first() else {
            return Err(config(&format!("the section of servers in the Redisson configuration needs {key}")));
        };
        let Some((scheme, _)) = first.split_once("://") else { return Err(bad(key, "one like redis://host:6379")) };
        let mut places = vec![];
        for address in &self.addresses {
            match address.split_once("://") {
                Some((other, place)) if other == scheme => places.push(place.trim_end_matches('/')),
                _ => return Err(bad(key, "addresses that all begin alike, as redis://host:6379")),
            }
        }
        let login = match (&self.username, &self.password) {
            (None, None) => String::new(),
            _ if places.iter().any(|place| place.contains('@')) => {
                return Err(bad(key, "no user and password where username or password are given, too"));
            }
            (user, password) => format!("{}:{}@", encoded(user.as_ref()), encoded(password.as_ref())),
        };
        let service = match (layout, &self.service) {
            (Layout::Sentinel, Some(service)) => format!("/{service}"),
            (Layout::Sentinel, None) => {
                return Err(config("sentinelServersConfig in the Redisson configuration needs masterName"));
            }
            _ => String::new(),
        };
        let mut query = vec![];
        if self.resp3 {
            query.push("protocol=resp3".to_owned());
        }
        if layout == Layout::Sentinel {
            let (user, password) = (self.sentinel_username.as_ref(), self.sentinel_password.as_ref());
            query.extend(user.map(|user| format!("sentinel_user={}", encoded(Some(user)))));
            query.extend(password.map(|password| format!("sentinel_pass={}", encoded(Some(password)))));
        }
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let (form, places, database) = (layout.form(), places.join(","), self.database);
        let url = format!("{scheme}{form}://{login}{places}{service}/{database}{query}");
        // The check opens no connection; without TLS it reads no file of the system.
        let plain = if cfg!(feature = "tls") {
            url.replacen("rediss", "redis", 1).replacen("valkeys", "valkey", 1)
        } else {
            url.clone()
        };
        Client::builder(&plain).connect_lazily().map_err(|error| {
            let why = error.to_string().replace("the server URL: ", "");
            Error::new(error.kind(), format!("{key} in the Redisson configuration: {why}"))
        })?;
        Ok(url)
    }
}

/// One address, or a list of addresses.
fn addresses(key: &str, value: &Value) -> Result<Vec<String>> {
    match value {
        Value::Sequence(addresses) => addresses.iter().map(|address| text(key, address)).collect(),
        Value::Null => Ok(vec![]),
        address => Ok(vec![text(key, address)?]),
    }
}

fn encoded(part: Option<&String>) -> String {
    utf8_percent_encode(part.map_or("", String::as_str), NON_ALPHANUMERIC).to_string()
}
