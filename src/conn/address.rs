//! Where a server is and how to introduce ourselves there, parsed from a URL.

use std::fmt;
use std::path::PathBuf;

use redis::Cmd;

/// The endpoint of a server and the credentials for it. The text forms never show a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) endpoint: Endpoint,
    /// Whether the server is reached by TLS.
    pub(super) tls: bool,
    pub(super) login: Userinfo,
    /// Whether the server gets the login only after it has refused a connection without one.
    pub(super) login_when_asked: bool,
    pub(super) database: i64,
    pub(super) resp3: bool,
}

/// A user and a password, either of which may be missing.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Userinfo {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Address {
    /// Returns user and password for the login, where the URL has any. A user without a password is sent with an
    /// empty one: the default user may have other rights, so the login must not fall back to the default user.
    pub(crate) fn login(&self) -> Option<(Option<&str>, &str)> {
        match (&self.login.username, &self.login.password) {
            (None, None) => None,
            (user, password) => Some((user.as_deref(), password.as_deref().unwrap_or(""))),
        }
    }

    /// The command of the login, where the URL has any.
    pub(super) fn packed_login(&self) -> Option<Vec<u8>> {
        let (user, password) = self.login()?;
        Some(Cmd::new().arg("AUTH").arg(user).arg(password).get_packed_command())
    }

    /// The address of another server with the same login and database.
    pub(super) fn moved_to(&self, endpoint: Endpoint) -> Self {
        Self { endpoint, ..self.clone() }
    }
}

impl Endpoint {
    /// The endpoint that a server names; `None` where it does not know host or port.
    pub(super) fn at(host: &str, port: &str) -> Option<Self> {
        let port = port.parse().ok().filter(|port| *port != 0)?;
        (!host.is_empty()).then(|| Self::Tcp(host.to_owned(), port))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Shows endpoint and database as a URL has them.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if matches!(self.endpoint, Endpoint::Tcp(..)) { "/" } else { "?db=" };
        write!(f, "{}{separator}{}", self.endpoint, self.database)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}
