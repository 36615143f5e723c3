//! Where a server is and how to introduce ourselves there, parsed from a URL.

use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};

use crate::error::{Error, ErrorKind, Result};

/// A server's place, and the credentials for it. Its texts never show a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) place: Place,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    pub(super) resp3: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("redis" | "valkey" | "redis+unix" | "valkey+unix" | "unix") => {}
            Some("rediss" | "valkeys") => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "TLS (rediss://) is not built into this version; use redis:// through a TLS tunnel",
                ));
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::Config,
                    "the server URL must look like redis://[user:password@]host[:port][/database] or redis+unix:///path",
                ));
            }
        }
        // The crate's own message is dropped: it may repeat the URL, and with it the password.
        let malformed = || {
            Error::new(
                ErrorKind::Config,
                format!("the {}:// URL of the server is malformed", scheme.unwrap_or("redis")),
            )
        };
        let info = url.into_connection_info().map_err(|_| malformed())?;
        let settings = info.redis_settings();
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Place::Tcp(host.clone(), *port),
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(malformed()),
        };
        if settings.db() < 0 {
            return Err(malformed());
        }
        Ok(Self {
            place,
            username: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            database: settings.db(),
            resp3: settings.protocol() == ProtocolVersion::RESP3,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp(host, port) => write!(f, "{host}:{port}")?,
            Place::Unix(path) => write!(f, "{}", path.display())?,
        }
        if self.database == 0 { Ok(()) } else { write!(f, "/{}", self.database) }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_every_supported_form_parse() {
        let tcp = Address::parse("redis://user:secret@example.com:7000/3?protocol=resp3").unwrap();
        assert_eq!(tcp.place, Place::Tcp("example.com".into(), 7000));
        assert_eq!((tcp.username.as_deref(), tcp.password.as_deref()), (Some("user"), Some("secret")));
        assert_eq!((tcp.database, tcp.resp3), (3, true));
        let unix = Address::parse("redis+unix:///run/redis.sock?db=2&pass=secret").unwrap();
        assert_eq!(unix.place, Place::Unix("/run/redis.sock".into()));
        assert_eq!(unix.database, 2);
    }

    #[test]
    fn no_text_shows_the_password() {
        let address = Address::parse("redis://user:canary@localhost/1").unwrap();
        assert!(!format!("{address} {address:?}").contains("canary"));
        for bad in [
            "redis://user:canary@:bad",
            "redis://u:canary@h/notanumber",
            "http://u:canary@h",
            "canary",
            "redis://u:canary@h/-1",
        ] {
            let error = Address::parse(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{bad}: {error:?}");
        }
        assert_eq!(Address::parse("rediss://h").unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
